"""Jobs that come and go in soak, in places of the controller's budget; and its rules broken."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest

from fanin.assurance.soak.generate import draw_scenario
from fanin.assurance.soak.queue import Queue
from fanin.assurance.soak.run import run_scenario
from fanin.assurance.soak.scenario import Later, Scenario, Work
from fanin.controller.jobs.budget import Budget
from fanin.controller.jobs.ledger import GRANT, Identity, NumberSpace
from fanin.controller.tree import SLOTS
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import History
from fanin.simulator.fabric import Job
from fanin.topologies.link import LinkProperties

pytestmark = pytest.mark.slow

WITHIN = 200  # seeds, in which a mutant must be caught
HALF = Work((1, 1), window=512, elements=(3000,))
LOSSY = LinkProperties(delay=2e-6, loss=0.02, duplication=0.05, reordering=0.1, displacement=2e-4)
# Beside a job that has half of the slots: one has the other half, one must wait for slots, one for hosts.
CROWDED = Scenario(
    1,
    (HALF,),
    later=(Later(HALF, 1e-5, 1), Later(Work((1, 1), window=600), 2e-5, 2), Later(Work((2,)), 3e-5)),
)


def test_a_job_waits_for_slots_and_for_hosts_and_takes_what_was_given_back(
    switch: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[tuple[int, int, int]] = []
    let_begin = Queue.grant

    def grant(queue: Queue) -> None:
        before = list(queue.running)
        let_begin(queue)
        for job, place in queue.running.items():
            if job not in before:
                began.append((place.job.base, place.job.slots, len(queue.running)))

    monkeypatch.setattr(Queue, "grant", grant)
    outcome = run_scenario(CROWDED, switch)
    assert not outcome.violations
    assert outcome.faults["job waited"] == 2
    assert began[:2] == [(0, 512, 1), (512, 512, 2)]
    assert began[2][:2] == (0, 600)


def test_sums_are_right_whatever_late_packets_of_ended_jobs_do(switch: Engine) -> None:
    """They have the same lease ids and slots, and the last chunk numbers that there are."""
    scenario = replace(CROWDED, links=LOSSY, same_leases=True, first_chunk=2**32 - 2000)
    history = History()
    assert not run_scenario(scenario, switch, observer=history).violations
    again = History()
    run_scenario(scenario, switch, observer=again)
    assert again.digest == history.digest


def test_a_worker_that_gave_up_leaves_nothing_to_the_next_job(switch: Engine) -> None:
    odd = Work((2,), window=4, mismatch="elements")
    scenario = Scenario(0, (odd,), later=(Later(Work((2,), elements=(5000,))),), same_leases=True)
    outcome = run_scenario(scenario, switch)
    assert not outcome.violations
    assert outcome.faults["gave up"] == 2


def test_scenarios_have_jobs_that_wait_and_some_that_run_side_by_side() -> None:
    scenarios = [draw_scenario(seed) for seed in range(200)]
    later = [scenario for scenario in scenarios if scenario.later]
    assert 50 < len(later) < 120
    assert any(scenario.same_leases for scenario in later)
    assert any(one.work.window > 511 for scenario in later for one in scenario.later)
    for scenario in later:
        assert len(scenario.hosts) == len(scenario.works)
        assert [len(of_job) for of_job in scenario.hosts] == [work.workers for work in scenario.works]
    assert eval(str(CROWDED)) == CROWDED


# -- mutants: of budget, ledger and controller


def overlapping(*_: Any) -> list[range]:
    """Every job in the first slots, whoever has them."""
    return [range(SLOTS)]


withdraw, take = Job._withdraw, NumberSpace.take


def forgetful(job: Job, between: Callable[[], None]) -> None:
    """Withdraw a job, but leave what the first switch of the tree holds."""
    if job._plan:
        del job._plan[next(iter(job._plan))]
    withdraw(job, between)


def repeated(space: NumberSpace, chunks: int = GRANT, in_force: Collection[int] = ()) -> Identity:
    """Each id with the same chunk numbers every time."""
    before = space.next_chunks
    identity = take(space, chunks, in_force)
    space.next_chunks = before
    return identity


def kept(queue: Queue, job: Job) -> None:
    """The place of a job that has ended is never given back."""
    queue.running.pop(job)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("owner", "name", "broken", "likely"),
    [
        (Budget, "_gaps", overlapping, 30),
        (Job, "_withdraw", forgetful, 2),
        (NumberSpace, "take", repeated, 152),
        (Queue, "leave", kept, 2),
    ],
)
def test_a_mutant_of_who_has_what_is_caught(
    switch: Engine, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, broken: Any, likely: int
) -> None:
    monkeypatch.setattr(owner, name, broken)
    seeds = (likely, *range(WITHIN))
    assert any(_goes_wrong(draw_scenario(seed), switch) for seed in seeds)


def _goes_wrong(scenario: Scenario, switch: Engine) -> bool:
    return bool(scenario.later) and bool(run_scenario(scenario, switch).violations)
