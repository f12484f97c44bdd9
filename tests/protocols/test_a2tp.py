"""A2TP: what differs from ATP. A window for slots, next to that for links, follows collisions and late workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fanin.assurance.soak.generate import scenario_for
from fanin.assurance.soak.run import run_scenario
from fanin.assurance.soak.scenario import Scenario, Work
from fanin.experiments.protocol import Protocol, protocol_of
from fanin.p4switch.engine.engine import Engine
from fanin.protocols.atp.protocol import COLLIDED, CONGESTED, RESENT
from fanin.simulator.fabric import load_switch
from fanin.workers import wire
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from tests.protocols.mutants import FAULTY, protocol_with

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("atp")]

WINDOW, ROUND_TRIP = 16, 1e-5


@pytest.fixture(scope="module")
def a2tp() -> Protocol:
    return protocol_of("a2tp")


@pytest.fixture(scope="module")
def switch(a2tp: Protocol) -> Engine:
    return load_switch(a2tp.program)


def _two_jobs(slots: int) -> Scenario:
    works = tuple(Work(racks, window=6, elements=(6000, 6000)) for racks in ((2, 3), (1, 2)))
    return Scenario(jobs=works, links=FAULTY, servers=True, slots=slots)


@pytest.mark.few(1)
@pytest.mark.parametrize("slots", [1, 3, 50])
def test_the_result_is_the_sum_however_few_slots_the_jobs_share(
    a2tp: Protocol, switch: Engine, slots: int
) -> None:
    assert not run_scenario(_two_jobs(slots), switch, protocol=a2tp).violations


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(4))
def test_soak_finds_nothing_wrong_in_random_networks(a2tp: Protocol, switch: Engine, seed: int) -> None:
    assert not run_scenario(scenario_for(seed, a2tp), switch, protocol=a2tp).violations


def test_soak_finds_a_worker_whose_packets_past_the_slots_are_empty(
    a2tp: Protocol, switch: Engine, tmp_path: Path
) -> None:
    right = 'wire.as_packets(datagrams)["e1"][beyond] |= atp.RESENT'
    wrong = protocol_with(a2tp, right, 'wire.as_packets(datagrams)["values"][beyond] = 0', tmp_path)
    assert run_scenario(_two_jobs(1), switch, protocol=wrong).violations


# -- the worker ------------------------------------------------------------------------------------------------------


class OneWorker:
    """A worker whose packets are answered by hand, a round trip after they were sent."""

    def __init__(self, a2tp: Protocol) -> None:
        lease = Lease(1, 0, 2, WINDOW, values=64, slots=WINDOW)
        self.worker: Any = a2tp.make_worker(lease, Recovery(initial_rto=1.0))
        self.now = 0.0
        self.worker.start(np.ones(64 * 4000, np.float32), self.now)

    def send(self) -> NDArray[np.void]:
        """Return the packets that are sent now."""
        return wire.as_packets(np.concatenate(list(self.worker.datagrams_to_send(self.now))))

    def round(self, e1: int, late: bool = False) -> NDArray[np.void]:
        """Let it send, and answer all packets with these flags: half of them later, if a worker is late."""
        sent = self.send()
        answers = sent.copy()
        answers["kind"], answers["e1"] = wire.kind(wire.RESULT, 64), e1
        self.now += ROUND_TRIP
        half = len(answers) // 2 if late else len(answers)
        self.worker.receive(wire.as_datagrams(answers[:half]), self.now)
        if late:
            self.now += 5 * ROUND_TRIP
            self.worker.receive(wire.as_datagrams(answers[half:]), self.now)
        return sent


def _using_slots(sent: NDArray[np.void]) -> int:
    return int(np.count_nonzero(sent["e1"] & RESENT == 0))


def test_without_collisions_all_packets_use_slots(a2tp: Protocol) -> None:
    one = OneWorker(a2tp)
    for _ in range(5):
        sent = one.round(0)
        assert len(sent) == _using_slots(sent) == WINDOW


def test_collisions_send_packets_past_the_slots_and_leave_the_link_window(a2tp: Protocol) -> None:
    one = OneWorker(a2tp)
    rounds = [one.round(COLLIDED) for _ in range(8)]
    assert {len(sent) for sent in rounds} == {WINDOW}
    using = [_using_slots(sent) for sent in rounds]
    assert using[:2] == [WINDOW, WINDOW - 1]  # the share is 1/8: 16 (1 - 0.025 / 1.9)
    assert using == sorted(using, reverse=True)
    assert using[-1] < WINDOW / 2
    assert np.all(np.diff(rounds[-1]["e1"].astype(int)) >= 0)  # the first ones use slots


def test_without_further_collisions_the_window_for_slots_grows_again(a2tp: Protocol) -> None:
    one = OneWorker(a2tp)
    one.round(COLLIDED)
    for _ in range(4):
        one.round(0)
    assert _using_slots(one.round(0)) == WINDOW


def test_congestion_marks_make_both_windows_smaller(a2tp: Protocol) -> None:
    one = OneWorker(a2tp)
    for _ in range(8):
        one.round(CONGESTED)
    sent = one.round(0)
    assert len(sent) == _using_slots(sent) < WINDOW / 2


def test_a_job_with_a_late_worker_gives_up_slots_sooner(a2tp: Protocol) -> None:
    punctual, late = OneWorker(a2tp), OneWorker(a2tp)
    for one, is_late in ((punctual, False), (late, True)):
        for _ in range(40):
            one.round(0, late=is_late)
        for _ in range(4):
            one.round(COLLIDED, late=is_late)
    assert _using_slots(late.send()) < _using_slots(punctual.send())
