"""A worker is killed, in the middle of each operation and between two: all others are told who, and no sum is wrong."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fanin.workers.communicator import Communicator
from fanin.workers.job import calls, membership
from fanin.workers.job.elastic import join_elastic
from fanin.workers.job.membership import join, join_or_ring
from tests.workers.job.operations import OPERATIONS, numbers
from tests.workers.live_job import PATIENCE, Process, die_at, network

pytestmark = pytest.mark.slow

HOSTS = ["h1", "h2", "h3"]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_LEFT_SECONDS", 0.1)


def init() -> Communicator:
    return Communicator(join_or_ring(None, PATIENCE), PATIENCE)


def required() -> Communicator:
    return Communicator(join(timeout=PATIENCE, give_up=PATIENCE), PATIENCE)


@pytest.mark.few(12)
@pytest.mark.parametrize("dies_at", [1, 4], ids=["between two", "in the middle"])
@pytest.mark.parametrize(("what", "how"), [*((what, init) for what in OPERATIONS), ("allreduce", required)])
def test_all_others_are_told_who_died(what: str, dies_at: int, how: Callable[[], Communicator]) -> None:
    def do(comm: Communicator, tell: Callable[[Any], None]) -> None:
        tell(numbers(comm, what))  # as it should be
        if comm.rank == 1:
            die_at(dies_at)
        for _ in range(20):  # of which some may have the result before the other dies
            tell(numbers(comm, what))

    def start(path: Any) -> list[Process]:
        return [Process(path, host, do, how) for host in HOSTS]

    with network(HOSTS, start) as (processes, _, _):
        told = {process.host: process.hear() for process in processes}
        assert [process.killed for process in processes] == [False, True, False]
    for host in ("h1", "h3"):
        *results, error = told[host]
        assert all(result == results[0] for result in results), what
        assert f"LeftError: rank 1 (process {processes[1].id} on h2) ended" in error


def test_children_that_outlive_a_worker_do_not_hide_its_end() -> None:
    """Which have its connection to the service, and those to the ring: data loaders, for instance."""

    def do(comm: Communicator, tell: Callable[[Any], None]) -> None:
        comm.barrier()
        comm.allgather(np.ones(3))
        if comm.rank == 1:
            if not (child := os.fork()):
                signal.pause()
            tell(child)
            os.kill(os.getpid(), signal.SIGKILL)
        comm.allgather(np.ones(3))

    def start(path: Any) -> list[Process]:
        return [Process(path, host, do, init) for host in HOSTS]

    with network(HOSTS, start) as (processes, _, _):
        _, [child], _ = said = [process.hear() for process in processes]
        os.kill(child, signal.SIGKILL)
    for [error] in (said[0], said[2]):
        assert f"LeftError: rank 1 (process {processes[1].id} on h2) ended" in error


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("what", "least"),
    [("allreduce", None), ("allgather", 1), ("allreduce", 1), ("allgather", None)],
)
def test_who_is_slow_is_named_once_and_the_others_wait(
    what: str, least: int | None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A stopped worker does not come: the worker that gives up on it names it."""
    monkeypatch.setattr(calls, "SLOW_SECONDS", 0.3)
    seconds = 6.0

    def do(comm: Communicator, tell: Callable[[Any], None]) -> None:
        OPERATIONS[what](comm)
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        tell(numbers(comm, what))

    def short() -> Communicator:
        place = join_or_ring(None, seconds) if least is None else join_elastic(None, least, seconds)
        return Communicator(place, seconds)

    def start(path: Any) -> list[Process]:
        return [Process(path, host, do, short) for host in HOSTS]

    with network(HOSTS, start) as (processes, _, _):
        said = [process.hear() for process in (processes[0], processes[2])]
        processes[1].kill()
        processes[1].hear()
    # Who gives up second may be asked for another group already, of those who are left: there h2 comes first.
    ranks = "1" if least is None else "[01]"
    who = rf"rank {ranks} \(process {processes[1].id} on h2\)"
    first = f"StallError: {who} did not come: "
    for [error] in said:  # who gives up second may have heard of the first
        assert re.match(rf"(AbortedError: rank [0-2] .* failed in call 2, .*: )?{first}", error)
    assert (
        len(re.findall(f"^fanin: waiting for {who} since ..:..:.., [0-9]+ s$", capfd.readouterr().err, re.M))
        == 1
    )
