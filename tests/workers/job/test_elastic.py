"""Jobs that go on without workers that have ended: whatever the moment, those who are left have the same results."""

from __future__ import annotations

import os
import random
import select
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fanin.workers.communicator import Communicator
from fanin.workers.job.elastic import join_elastic
from tests.workers.job.operations import OPERATIONS, numbers
from tests.workers.live_job import PATIENCE, Process, network

pytestmark = pytest.mark.slow

HOSTS = ["h1", "h2", "h3"]


def init(least: int = 1) -> Communicator:
    return Communicator(join_elastic(None, least, PATIENCE), PATIENCE)


def total(ranks: set[int], call: int) -> int:
    """Return what a call of _sums gives if these, by their first ranks, have taken part."""
    return sum((first + 1) * (call + 1) for first in ranks)


def _sums(comm: Communicator, tell: Callable[[Any], None], calls: int) -> None:
    """Sum in turns in the network and round the ring, in place and not, and report what each gave."""
    first = comm.rank
    for call in range(calls):
        x = np.full(3000 if call % 3 else 40, (first + 1) * (call + 1), np.float32)
        kind = call % 4
        if kind == 0:
            said = comm.allreduce(x)
        elif kind == 1:
            said = comm.allreduce(x.astype(float))
        elif kind == 2:
            said = comm.allreduce(x, out=x)
        else:
            said = comm.allreduce([x.astype(np.int32), x])[0]
        assert np.ptp(said) < 1e-3
        tell((call, round(float(said[0])), comm.rank, comm.size))
        x[:] = np.nan if x.dtype.kind == "f" else 0  # what a caller does with its arrays is its affair


def run(
    do: Any,
    dies_at: dict[str, int],
    least: int = 1,
    refuses: bool = False,
) -> Any:
    def start(path: Path) -> list[Process]:
        return [Process(path, host, do, partial(init, least), dies_at.get(host, 0)) for host in HOSTS]

    with network(HOSTS, start, refuses) as (processes, grants, _):
        told = {process.host: process.hear() for process in processes}
    return told, [process.host for process in processes if process.killed], grants


def check(told: dict[str, list[Any]], killed: list[str], calls: int) -> None:
    """All that are left have all results, alike, each over those there were, in an order in which nobody comes back."""
    left = [host for host in HOSTS if host not in killed]
    for host in left:
        assert [each[0] for each in told[host]] == list(range(calls)), told[host]
        assert [each[:2] for each in told[host]] == [each[:2] for each in told[left[0]]]
    taking_part = {0, 1, 2}
    for call, said, *_ in told[left[0]]:
        possible = [
            {HOSTS.index(host) for host in HOSTS} - {HOSTS.index(host) for host in gone}
            for gone in ([], *([host] for host in killed), killed)
        ]
        now = [ranks for ranks in possible if total(ranks, call) == said]
        assert now, (call, said)
        assert any(ranks <= taking_part for ranks in now)
        taking_part = max((ranks for ranks in now if ranks <= taking_part), key=len)
    if killed:
        for place, host in enumerate(left):
            assert told[host][-1][2:] == (place, len(left))


@pytest.mark.few(8)
@pytest.mark.parametrize("dies_at", [*range(3, 60, 3), 71, 89])
def test_a_worker_that_dies_at_any_message(dies_at: int) -> None:
    """It dies in in-network sums, in rings that connect or are connected, or between them."""
    dying = HOSTS[dies_at % 3]
    told, killed, grants = run(partial(_sums, calls=8), {dying: dies_at})
    check(told, killed, 8)
    if killed:
        assert grants.granted[:2] == [tuple(HOSTS), tuple(host for host in HOSTS if host != dying)]


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(6))
def test_two_that_die_one_after_the_other_or_both_at_once(seed: int) -> None:
    draw = random.Random(seed)
    first, second = draw.sample(HOSTS, 2)
    at = draw.randrange(4, 50)
    told, killed, _ = run(partial(_sums, calls=8), {first: at, second: at + draw.randrange(-1, 12)})
    check(told, killed, 8)


def _one(comm: Communicator, tell: Callable[[Any], None], what: str) -> None:
    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    tell(numbers(comm, what))
    tell((comm.rank, comm.size))
    comm.barrier()


@pytest.mark.parametrize("what", OPERATIONS)
def test_every_operation_is_done_by_those_who_are_left(what: str) -> None:
    """Their numbers, of which some have made arrays, are those of before until it has returned."""
    told, killed, _ = run(partial(_one, what=what), {})
    assert killed == ["h2"]
    said, ranks = zip(*(told[host] for host in ("h1", "h3")), strict=True)
    assert ranks == ((0, 2), (1, 2))
    expected: dict[str, Any] = {
        "allreduce": [[4] * 9000] * 2,
        "allreduce of integers": [[4] * 500] * 2,
        "allreduce of several": [[[2] * 5] * 3] * 2,
        "allreduce by ring": [[3] * 9000] * 2,
        "allreduce of what is compressed": [[4] * 500] * 2,
        "reduce": [None, [4] * 500],
        "broadcast": [[3] * 500] * 2,
        "allgather": [[[1] * 500, [3] * 500]] * 2,
        "reduce_scatter": [[4] * 300] * 2,
        "barrier": [None] * 2,
        "in the background": [[2] * 9000] * 2,
    }
    assert list(said) == expected[what]


def test_too_few_are_told_and_so_is_who_waits_for_a_root_that_ended() -> None:
    told, _, _ = run(partial(_one, what="allreduce"), {}, least=3)
    for host in ("h1", "h3"):
        [said] = told[host]
        assert "ended; 2 are left, fewer than min_workers, 3" in said
        assert said.startswith("LeftError: rank 1 (process ")

    def do(comm: Communicator, tell: Callable[[Any], None]) -> None:
        comm.barrier()
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        comm.broadcast(np.ones(3), root=1)
        tell("something")

    told, _, _ = run(do, {})
    assert all(said.startswith("LeftError: rank 1, the root, ended") for [said] in (told["h1"], told["h3"]))


def test_who_leaves_early_leaves_what_it_has_finished() -> None:
    """A program's end is no death: nothing is done again without who has finished it."""

    def do(comm: Communicator, tell: Callable[[Any], None]) -> None:
        first = comm.rank
        for call in range(4 + 4 * (first != 0)):
            tell(comm.allreduce(np.full(2000, first + 1, np.float32)).tolist()[0])
            tell(float(comm.allreduce(np.array([first + 1.0]))[0]))
            assert call >= 4 or first or comm.size == 3

    told, _, grants = run(do, {})
    assert told["h1"] == [6] * 8
    assert told["h2"] == told["h3"] == [6] * 8 + [5] * 8
    assert grants.granted[:2] == [("h1", "h2", "h3"), ("h2", "h3")]


def test_a_revoked_lease_makes_a_group_that_goes_by_ring() -> None:
    asks, to_ask = os.pipe()
    done, to_do = os.pipe()

    def do(comm: Communicator, tell: Callable[[Any], None]) -> None:
        for call in range(200):
            if call == 100 and comm.rank == 0:
                os.write(to_ask, b".")
                os.read(done, 1)
            tell(float(comm.allreduce(np.full(40, comm.rank + 1, np.float32))[0]))

    def start(path: Path) -> list[Process]:
        return [Process(path, host, do, init) for host in HOSTS]

    with network(HOSTS, start) as (processes, grants, _):
        assert select.select([asks], [], [], PATIENCE)[0]
        grants.revoke("job-1")
        os.write(to_do, b".")
        told = {process.host: process.hear() for process in processes}
    for each in (asks, to_ask, done, to_do):
        os.close(each)
    assert told == dict.fromkeys(HOSTS, [6] * 200)
    assert grants.granted == [tuple(HOSTS)]


def test_what_is_refused_a_lease_goes_by_ring_in_all_its_groups() -> None:
    told, killed, grants = run(partial(_sums, calls=8), {"h1": 30}, refuses=True)
    assert killed == ["h1"]
    check(told, killed, 8)
    assert not grants.granted
