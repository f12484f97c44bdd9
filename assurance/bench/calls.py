"""Benchmark of what the calls of `fanin.init()` and of PyTorch add to an all-reduce in the network.

The bare all-reduce (workers/udp.py) and the calls take turns in the same processes, on the same switches, so that other
activity on the machine affects all alike.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fanin.assurance.bench.allreduce import ROOT
from fanin.assurance.bench.allreduce_worker import Order
from fanin.assurance.bench.calls_worker import BARE, NOTHING, Calls
from fanin.native.files import write_json
from fanin.testbed.launch import Launch, run
from fanin.testbed.running import RunningNetwork
from fanin.topologies.errors import NetworkError

_MAX_REPETITIONS, _MIN_REPETITIONS = 500, 20
_BYTES = 1_000_000_000  # roughly how much they sum altogether
_JOB = "bench-calls"


@dataclass(frozen=True, slots=True)
class Added:
    """Seconds more than the bare all-reduce.

    Attributes:
        seconds: Median of the differences within a repetition.
        margin: It is within this margin with a probability of 95 %.
    """

    seconds: float
    margin: float


@dataclass(frozen=True, slots=True)
class Time:
    """A median time.

    Attributes:
        seconds: The median.
        added: Difference from the bare all-reduce. None for the bare one, and for a backend that does nothing.
    """

    seconds: float
    added: Added | None


@dataclass(frozen=True, slots=True)
class WayToCall:
    """One way to call, at one size. For a backend that does nothing, each worker is measured on its own.

    Attributes:
        whole: From the last worker's call to the last worker's result.
        own: Time of the mean worker in which it does not wait.
        processor: Processor time of the mean worker, which spins while it waits.
        wrong: Number of elements outside their bound.
    """

    whole: Time
    own: Time
    processor: Time
    wrong: int


@dataclass(frozen=True, slots=True)
class CallsCase:
    """One size, with the results of each way to call."""

    bytes: int
    workers: int
    repetitions: int
    measured: dict[str, WayToCall]


def repetitions(size: int) -> int:
    """Return the repetitions for a vector of this many bytes, so that no size takes much longer than another."""
    return max(_MIN_REPETITIONS, min(_MAX_REPETITIONS, _BYTES // size))


def topology(workers: int) -> str:
    """Return the text of a topology file with one switch and unlimited links."""
    return f"[leaf_spine]\nspines = 0\nleaves = 1\nhosts_per_leaf = {workers}\n"


async def measure(network: RunningNetwork, python: Path, orders: Sequence[Order]) -> list[CallsCase]:
    """Measure with workers on all hosts of the network, which run in the given Python.

    Raises:
        NetworkError: The network has ended, or a worker has; with the end of its output.
    """
    hosts = list(network.hosts)
    paths = ":".join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    asked = json.dumps([asdict(order) for order in orders])
    argv = [
        "env",
        f"PYTHONPATH={paths}",
        str(python),
        "-P",
        "-m",
        "fanin.assurance.bench.calls_worker",
        asked,
    ]

    def check() -> None:
        if not network.run.alive:
            raise NetworkError("the network has ended")

    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="fanin-") as name:
        said = Path(name)
        launched = Launch(network, hosts, argv, _JOB, output=said)
        if await run(launched, check, failed.append):
            words = [(said / f"rank-{rank}.err").read_text().strip() for rank in range(len(hosts))]
            raise NetworkError("\n  ".join([*failed, *filter(None, words)]))
        lines = [(said / f"rank-{rank}.out").read_text().splitlines() for rank in range(len(hosts))]
    return [
        case_of(order, [{way: Calls(**of) for way, of in json.loads(line).items()} for line in by_rank])
        for order, *by_rank in zip(orders, *lines, strict=True)
    ]


def case_of(order: Order, ranks: Sequence[Mapping[str, Calls]]) -> CallsCase:
    """Summarize the calls of all ranks."""
    whole = {way: _whole([rank[way] for rank in ranks], alone=way == NOTHING) for way in ranks[0]}
    own = {way: np.mean([_own(rank[way]) for rank in ranks], axis=0) for way in ranks[0]}
    processor = {way: np.mean([rank[way].processor for rank in ranks], axis=0) for way in ranks[0]}

    def time(of: Mapping[str, Any], way: str) -> Time:
        more = None if way in (BARE, NOTHING) else added(of[way] - of[BARE])
        return Time(float(np.median(of[way])), more)

    measured = {
        way: WayToCall(
            time(whole, way), time(own, way), time(processor, way), sum(rank[way].wrong for rank in ranks)
        )
        for way in ranks[0]
    }
    return CallsCase(4 * order.elements, len(ranks), order.repetitions, measured)


def _whole(ranks: Sequence[Calls], *, alone: bool) -> Any:
    """Return the time of each repetition [repetitions]. If `alone`, no worker waits for another."""
    starts, ends = ([getattr(rank, name) for rank in ranks] for name in ("starts", "ends"))
    if alone:
        return np.median(np.subtract(ends, starts), axis=0)
    return np.max(ends, axis=0) - np.max(starts, axis=0)


def _own(calls: Calls) -> Any:
    """Return the time of each repetition that was not spent waiting [repetitions]."""
    return np.subtract(calls.ends, calls.starts) - calls.waits


def added(differences: Any) -> Added:
    """Summarize the differences of the repetitions. The margin is the sign test's, for any distribution."""
    ordered, count = sorted(differences), len(differences)
    reach = math.ceil(0.98 * math.sqrt(count))
    low, high = ordered[max(count // 2 - reach, 0)], ordered[min(count // 2 + reach, count - 1)]
    return Added(float(statistics.median(ordered)), float(high - low) / 2)


def write(cases: Sequence[CallsCase], machine: Mapping[str, Any], folder: Path) -> Path:
    """Write calls.json into `folder`; `machine` is the result of host()."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "calls.json"
    document = {"cases": [asdict(case) for case in cases], "machine": machine}
    write_json(document, path)
    return path


HEADINGS = ("in total", "more", "ratio", "in a\nworker", "more", "CPU", "more")


def cells(one: WayToCall, bare: WayToCall) -> list[str]:
    """Return the values below HEADINGS: each time in µs, and by how much it exceeds that of the bare all-reduce."""

    def part(time: Time) -> tuple[str, str]:
        added = time.added and f"{time.added.seconds * 1e6:+.1f} ± {time.added.margin * 1e6:.1f}"
        return f"{time.seconds * 1e6:.1f}", added or ""

    ratio = one.whole.added and f"×{one.whole.seconds / bare.whole.seconds:.3f}"
    return [*part(one.whole), ratio or "", *part(one.own), *part(one.processor)]
