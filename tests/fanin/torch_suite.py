"""Runs PyTorch's own tests of process groups, DistributedTest, on the ranks of a `fanin launch`.

Arguments: the backend, a folder that all ranks share, and names of tests (by default all). Each test runs in a process
of its own on each rank, and is a job of its own; rank 0 prints a line of JSON for each.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import signal
import sys
import traceback
import unittest
from datetime import timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import torch.distributed as dist
from torch.testing._internal import common_distributed
from torch.testing._internal.common_distributed import TEST_SKIPS, DistTestCases
from torch.testing._internal.common_utils import set_rng_seed

import fanin

BACKEND, SHARED, *NAMES = sys.argv[1:]
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SECONDS = 60.0  # for one test

# PyTorch lists which backends have what. Ours has what Gloo has.
for backends in DistTestCases.backend_feature.values():
    if "gloo" in backends or backends is DistTestCases.backend_feature["plugin"]:
        backends.add("fanin")

# These need three ranks; PyTorch leaves them out below eight.
common_distributed.skip_if_small_worldsize = lambda test: test

os.environ["BACKEND"] = BACKEND
os.environ["TEMP_DIR"] = SHARED
os.environ["INIT_METHOD"] = f"file://{SHARED}/init"
from torch.testing._internal.distributed import distributed_test  # noqa: E402

# Reasons to skip a test that name Gloo where it is not needed: these tests are run.
NOT_ONLY_GLOO = (
    "Only gloo backend supports timeouts",
    "GLOO Batch Send Recv CPU",
    "get_future is only supported on mpi, nccl and gloo",
    "Only Nccl & Gloo backend support DistributedDataParallel",
    "Only Gloo backend supports sparse all reduce",
    "Only MPI supports CPU all_to_all_single",
    "Test requires backend fanin to be one of {'gloo'}",
)


class LikeGloo(str):
    """The backend's name, for tests that choose what they do on a CPU by the name of Gloo."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return other == "gloo" or str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other


distributed_test.BACKEND = LikeGloo(BACKEND)


class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """The tests, as PyTorch runs them for each backend."""


def all_names() -> list[str]:
    return unittest.TestLoader().getTestCaseNames(Suite)


def skipped(name: str) -> str:
    """Why a test is skipped before it begins; empty if it is not."""
    if name.startswith("test_monitored_barrier"):
        return "PyTorch has monitored_barrier only for groups whose backend is named gloo"
    test = getattr(Suite, name)
    why = str(getattr(test, "__unittest_skip_why__", "")) if getattr(test, "__unittest_skip__", False) else ""
    return "" if why.startswith(NOT_ONLY_GLOO) else why


def run(name: str, number: int) -> None:
    """Run a test on this rank, in this process, and end the process."""
    os.environ["FANIN_JOB"] = f"{os.environ['FANIN_JOB'][:40]}-{number}"
    status, why = 1, ""
    with Path(SHARED, f"{number}.{RANK}.out").open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        test = Suite(name)
        test.rank = RANK
        test.file_name = str(Path(SHARED, f"{number}.store"))
        set_rng_seed()
        seconds = distributed_test.CUSTOM_PG_TIMEOUT.get(name, 30)
        dist.init_process_group(
            backend=BACKEND,
            init_method=test.init_method,
            timeout=timedelta(seconds=seconds),
            world_size=SIZE,
            rank=RANK,
        )
        test._barrier()
        getattr(test, name)()
        test._barrier()
        dist.destroy_process_group()
        status = 0
    except unittest.SkipTest as skip:
        status, why = 0, f"skipped: {skip}"
    except SystemExit as end:
        skips = [each.message for each in TEST_SKIPS.values() if each.exit_code == end.code]
        status, why = (0, f"skipped: {skips[0]}") if skips else (1, f"exit status {end.code}")
    except BaseException as error:
        text = io.StringIO()
        traceback.print_exc(file=text)
        Path(SHARED, f"{number}.{RANK}.traceback").write_text(text.getvalue())
        why = f"{type(error).__name__}: {error}"
    Path(SHARED, f"{number}.{RANK}.json").write_text(json.dumps([status, why]))
    if fanin._communicator is not None:
        fanin._communicator.close()
    os._exit(status)


def outcome_here(name: str, number: int) -> list[Any]:
    """Run a test on this rank, and return its status and what there is to say about it."""
    child = os.fork()
    if not child:
        run(name, number)
    deadline = monotonic() + SECONDS
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if monotonic() > deadline:
            os.kill(child, signal.SIGUSR1)
            sleep(1)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return [1, f"does not end within {SECONDS:g} s"]
        sleep(0.02)
    told = Path(SHARED, f"{number}.{RANK}.json")
    if told.exists():
        return list(json.loads(told.read_text()))
    return [1, f"ended with status {os.waitstatus_to_exitcode(ended[1])}"]


def main() -> None:
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), SIZE, RANK == 0)
    for number, name in enumerate(NAMES or all_names()):
        began = monotonic()
        if why := skipped(name):
            outcome = "skipped"
        else:
            if RANK == 0:
                for folder in ("barrier", "test_dir", "init_dir"):
                    Path(SHARED, folder).mkdir(exist_ok=True)
                distributed_test.Barrier.init()
                store.set(f"{number} begins", b"")
            store.wait([f"{number} begins"])
            store.set(f"{number} {RANK}", json.dumps(outcome_here(name, number)))
            ranks = [json.loads(store.get(f"{number} {rank}")) for rank in range(SIZE)]
            failed = [f"rank {rank}: {why}" for rank, (status, why) in enumerate(ranks) if status]
            skips = [why.removeprefix("skipped: ") for _, why in ranks if why.startswith("skipped: ")]
            outcome = "failed" if failed else "skipped" if skips else "passed"
            why = "\n".join(failed) or "".join(skips[:1])
        if RANK == 0:
            seconds = round(monotonic() - began, 1)
            print(json.dumps({"test": name, "outcome": outcome, "why": why, "seconds": seconds}), flush=True)
    store.set(f"end {RANK}", b"")
    if RANK == 0:
        store.wait([f"end {rank}" for rank in range(SIZE)])


if __name__ == "__main__":
    main()
