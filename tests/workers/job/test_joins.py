"""Workers that are started again: whatever the moment, they join the others where these have a place for them."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fanin.workers.communicator import Communicator
from fanin.workers.job.elastic import join_elastic
from tests.workers.live_job import PATIENCE, Process, network

pytestmark = pytest.mark.slow

HOSTS = ["h1", "h2", "h3"]
STEPS = 8


def init() -> Communicator:
    return Communicator(join_elastic(None, 1, PATIENCE), PATIENCE)


def _init_after(process: Process) -> Communicator:
    with suppress(ProcessLookupError):
        end = os.pidfd_open(process.id)
        assert select.select([end], [], [], PATIENCE)[0]
    return init()


def train(comm: Communicator, tell: Callable[[Any], None], joins: int, dies: bool = False) -> None:
    """State that all share, in the network and by ring; goes on until so many have joined, each new at some step."""
    state = np.zeros(2)  # the step, and the sum of all that was added up
    joined = 0
    while state[0] < STEPS or joined < joins:
        if comm.regroup():
            joined += 1
            state[:] = comm.broadcast(state, root=0)
            tell(("joined", int(state[0]), int(state[1]), comm.rank, comm.size))
        if state[0] < STEPS:
            if dies and state[0] == STEPS - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            ones = comm.allreduce(np.ones(3000, np.float32))
            numbers = comm.allreduce(np.arange(40.0))
            state += [1, round(float(ones[0]))]
            tell((int(state[0]), int(state[1]), float(numbers[1])))


def run(host: str, dies_at: int, again_at: int = 0, refuses: bool = False) -> Any:
    """Return the reports of those who stay, and of who comes after the first worker on `host` died at this message."""

    def start(path: Path) -> list[Process]:
        workers = [
            Process(path, each, partial(train, joins=2, dies=each == host), init, dies_at * (each == host))
            for each in HOSTS
        ]
        after = partial(_init_after, workers[HOSTS.index(host)])
        return [*workers, Process(path, host, partial(train, joins=1), after, again_at)]

    with network(HOSTS, start, refuses) as (processes, grants, _):
        told = [process.hear() for process in processes]
    assert processes[HOSTS.index(host)].killed
    stayed = [each for place, each in enumerate(told[:3]) if HOSTS[place] != host]
    return stayed, told[3], processes[3].killed, grants


def check(stayed: list[list[Any]], new: list[Any]) -> None:
    """Check that those who stay did each step once, alike, and who joined did those that followed, and no other."""
    steps = [[each for each in told if each[0] != "joined"] for told in (*stayed, new)]
    assert [each[0] for each in steps[0]] == list(range(1, STEPS + 1)), stayed
    assert steps[0] == steps[1]
    beginning = new[0]
    assert beginning[0] == "joined"
    assert beginning[1:3] == (steps[0][beginning[1] - 1][:2] if beginning[1] else (0, 0))
    assert beginning[3:] == (2, 3)  # behind those who stay
    joins = [[each for each in told if each[0] == "joined"] for told in stayed]
    assert [each[1][3:] for each in joins] == [(0, 3), (1, 3)]
    following = steps[0][beginning[1] :]
    assert steps[2] == following[: len(steps[2])]


@pytest.mark.few(6)
@pytest.mark.parametrize("dies_at", [*range(4, 50, 3), 1000])
def test_in_the_place_of_one_that_died_at_any_message(dies_at: int) -> None:
    host = HOSTS[dies_at % 3] if dies_at > 20 else HOSTS[1 + dies_at % 2]  # without a root nobody can begin
    stayed, new, _, grants = run(host, dies_at)
    check(stayed, new)
    assert new[-1][0] == STEPS or new[0][1] == STEPS
    assert tuple(grants.granted[2]) == (*(each for each in HOSTS if each != host), host)


@pytest.mark.few(5)
@pytest.mark.parametrize("again_at", range(3, 40, 3))
def test_one_that_dies_again_at_any_message(again_at: int) -> None:
    stayed, new, killed, _ = run("h2", 12, again_at)
    if new:
        check(stayed, new)
    assert killed or new[-1][0] in (STEPS, "joined")
    assert all(told[-1][0] == STEPS or told[-1][1] == STEPS for told in stayed)


def test_in_a_job_that_goes_by_ring() -> None:
    stayed, new, _, grants = run("h1", 40, refuses=True)
    check(stayed, new)
    assert not grants.granted


def test_nobody_is_new_but_at_the_first_call() -> None:
    def do(comm: Communicator, tell: Callable[[Any], None]) -> None:
        for _ in range(3):
            tell(comm.regroup())
            tell(float(comm.allreduce(np.ones(3, np.float32))[0]))

    def start(path: Path) -> list[Process]:
        return [Process(path, each, do, init) for each in HOSTS]

    with network(HOSTS, start) as (processes, grants, _):
        told = [process.hear() for process in processes]
    assert told == [[True, 3.0, False, 3.0, False, 3.0]] * 3
    assert grants.granted[0] == tuple(HOSTS)
