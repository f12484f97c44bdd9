"""Leases that are revoked while their jobs run, in soak: sums stay right by ring; and each rule of it broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fanin.assurance.soak.generate import draw_scenario
from fanin.assurance.soak.hosts import SoakHost
from fanin.assurance.soak.run import run_scenario
from fanin.assurance.soak.scenario import Later, Revocation, Scenario, Work
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import History
from fanin.simulator.fabric import Job
from fanin.simulator.hosts.stations import WorkerStation
from fanin.topologies.link import LinkProperties
from fanin.workers.job.retained_results import ProgressSnapshot, RetainedResult

pytestmark = pytest.mark.slow

WITHIN = 200  # seeds, in which a mutant must be caught
LINKS = LinkProperties(delay=5e-6, jitter=1e-4, loss=0.02)
RUNNING = Scenario(3, (Work((2, 1), elements=(900, 300, 1200, 300, 900, 600)),), links=LINKS)


def test_whenever_a_lease_is_revoked_all_have_the_same_sums(switch: Engine) -> None:
    """Between two all-reduces or in one, of which nobody or some have the sum when they hear of it."""
    ring, sent = 0, 0
    for time in np.linspace(0, 4e-3, 30):
        revocations = (Revocation(0, float(time), heard=1e-4 * (time < 2e-3), at_a_sum=time >= 2e-3),)
        outcome = run_scenario(replace(RUNNING, revocations=revocations), switch)
        assert not outcome.violations, time
        ring += outcome.faults["fell back to the ring"]
        sent += outcome.faults["result sent after the loss"]
    assert ring > 10
    assert sent > 0


def test_slots_of_a_revoked_lease_are_the_next_job_s_while_its_workers_go_on(switch: Engine) -> None:
    large = Work((1, 1), window=600, elements=(20_000, 20_000))
    scenario = Scenario(
        1,
        (large,),
        later=(Later(large, 1e-5, 1),),
        revocations=(Revocation(0, 3e-5, 1e-4),),
        same_leases=True,
    )
    history = History()
    outcome = run_scenario(scenario, switch, observer=history)
    assert not outcome.violations
    assert outcome.faults["fell back to the ring"] == 1
    again = History()
    run_scenario(scenario, switch, observer=again)
    assert again.digest == history.digest


def test_a_job_that_has_ended_or_never_had_a_lease_loses_none(switch: Engine) -> None:
    jobs = (Work((2,), elements=(64,)), Work((0, 2), elements=(3000,), algorithm="ring"))
    scenario = Scenario(0, jobs, revocations=(Revocation(0, 2e-3), Revocation(1, 1e-5)))
    outcome = run_scenario(scenario, switch)
    assert not outcome.violations
    assert not outcome.faults["fell back to the ring"]


def test_seeds_have_revocations_that_meet_jobs_at_work() -> None:
    scenarios = [draw_scenario(seed) for seed in range(200)]
    revoked = [scenario for scenario in scenarios if scenario.revocations]
    assert 40 < len(revoked) < 120
    assert any(scenario.later for scenario in revoked)
    assert any(scenario.regrants for scenario in revoked)
    assert any(work.in_place for scenario in revoked for work in scenario.works)


# -- mutants


def nobody_behind(_: ProgressSnapshot) -> list[int]:
    """Whoever has not finished an all-reduce that others have does it again, alone."""
    return []


def last_rank(progress: ProgressSnapshot) -> int:
    """Whoever has the highest rank is asked for its last result, whichever that is."""
    return len(progress.finished) - 1


def cleared(kept: RetainedResult, size: int) -> NDArray[np.float32]:
    """The last result is thrown away as soon as the next all-reduce begins."""
    kept._memory = np.empty(size, np.float32)
    kept._pending = kept.last = kept._memory
    return kept._pending


def unheeded(_: SoakHost) -> None:
    """A worker goes on in the network after it has heard of the loss."""


withdraw, place = Job._withdraw, WorkerStation.__init__


def partly(job: Job, between: Callable[[], None]) -> None:
    """The first switch of the tree keeps what it was told."""
    if job._plan:
        del job._plan[next(iter(job._plan))]
    withdraw(job, between)


def into_the_array(station: WorkerStation[Any], *args: Any, **options: Any) -> None:
    """Sums in the network are received where the caller's values are."""
    if options.get("kept"):
        options["kept"].buffer = lambda _: station._inputs[len(station.outputs)]
    place(station, *args, **options)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("owner", "name", "broken", "likely"),
    [
        (ProgressSnapshot, "behind", property(nobody_behind), 60),
        (ProgressSnapshot, "giver", property(last_rank), 89),
        (RetainedResult, "buffer", cleared, 60),
        (SoakHost, "stop", unheeded, 102),
        (Job, "_withdraw", partly, 9),
        (WorkerStation, "__init__", into_the_array, 9),
    ],
)
def test_a_mutant_of_how_a_lease_is_lost_is_caught(
    switch: Engine, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, broken: Any, likely: int
) -> None:
    """Within so many seeds; `likely` is tried first."""
    monkeypatch.setattr(owner, name, broken)
    scenarios = (draw_scenario(seed) for seed in (likely, *range(WITHIN)))
    revoked = (scenario for scenario in scenarios if scenario.revocations)
    assert any(run_scenario(scenario, switch).violations for scenario in revoked)
