"""Priorities, pauses, watchdogs and outages of links in soak; and their rules broken, in the loop of numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fanin.assurance.soak.generate import draw_scenario
from fanin.assurance.soak.order import SendingOrder
from fanin.assurance.soak.run import run_scenario
from fanin.assurance.soak.scenario import Outage, Scenario, Work
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import compiled
from fanin.simulator.links import Links
from fanin.simulator.queues import QueuedLinks
from fanin.simulator.units import NEVER
from fanin.topologies.link import LinkProperties, Pause, Watchdog

pytestmark = pytest.mark.slow

WITHIN = 200  # seeds, in which a mutant must be caught
# Two jobs on both leaves, of which one goes before the other on the only link up.
RIVALS = Scenario(
    0,
    (
        Work((3, 3), window=64, elements=(8000,), algorithm="ring", priority=5),
        Work((3, 3), window=64, elements=(8000,), algorithm="ring", priority=1),
    ),
    rate=10**9,
)


# All send to one host of the other leaf, so that the spine pauses leaves.
SERVED = replace(
    RIVALS, jobs=(Work((3, 3), window=64, elements=(8000,), algorithm="parameter-server", shards=1),)
)


def test_a_job_of_a_higher_priority_ends_sooner_than_without_and_the_other_later(switch: Engine) -> None:
    alike = replace(RIVALS, jobs=tuple(replace(work, priority=0) for work in RIVALS.jobs))
    outcomes = [run_scenario(scenario, switch) for scenario in (RIVALS, alike)]
    assert not any(outcome.violations for outcome in outcomes)
    assert outcomes[0].seconds != outcomes[1].seconds
    assert SendingOrder.judged_by(RIVALS)
    assert not SendingOrder.judged_by(alike)


@pytest.mark.parametrize(
    ("action", "drops"),
    [("drop", True), ("forward", False), ("alert", False)],
    ids=("drop", "forward", "alert"),
)
def test_a_watchdog_takes_pauses_for_storms_and_no_sum_suffers(
    switch: Engine, action: str, drops: bool
) -> None:
    watchdog = Watchdog.model_validate({"detection_time": 2e-6, "restoration_time": 2e-6, "action": action})
    pause = Pause(xoff_bytes=1000, xon_bytes=500, watchdog=watchdog)
    impatient = replace(SERVED, links=LinkProperties(delay=2e-6, pause=pause))
    outcome = run_scenario(impatient, switch)
    assert not outcome.violations
    assert outcome.faults["storm"]
    assert bool(outcome.faults["watchdog drop"]) == drops


def test_what_is_lost_while_a_link_is_down_is_sent_again(switch: Engine) -> None:
    outcome = run_scenario(replace(RIVALS, outages=(Outage(0, 1e-5, 1e-3),)), switch)
    assert not outcome.violations
    assert outcome.faults["loss"]


def test_scenarios_have_all_of_it() -> None:
    scenarios = [draw_scenario(seed) for seed in range(WITHIN)]
    assert 20 < sum(scenario.prioritized for scenario in scenarios) < 100
    assert sum(map(SendingOrder.judged_by, scenarios)) > 15
    assert sum(bool(scenario.outages) for scenario in scenarios) > 20
    watchdogs = [scenario.watchdog for scenario in scenarios if scenario.watchdog]
    assert {watchdog.action for watchdog in watchdogs} == {"drop", "forward", "alert"}
    assert any(scenario.links.pause and not scenario.watchdog for scenario in scenarios)
    assert {len(scenario.outages) for scenario in scenarios} == {0, 1, 2}


def test_what_is_printed_of_a_scenario_makes_it() -> None:
    pause = Pause(xoff_bytes=0, xon_bytes=0, watchdog=Watchdog(detection_time=1e-6, restoration_time=1e-6))
    scenario = replace(RIVALS, links=LinkProperties(pause=pause), outages=(Outage(0, 1e-5, 1e-3),))
    assert eval(str(scenario)) == scenario


# -- mutants


def _first_last(_patch: pytest.MonkeyPatch) -> None:
    """Of several queues the lowest one goes first."""
    make = QueuedLinks.__init__

    def made(links: QueuedLinks, *arguments: Any) -> None:
        make(links, *arguments)
        links._queues = [queues[::-1] for queues in links._queues]

    _patch.setattr(QueuedLinks, "__init__", made)


def _last_in_first_out(patch: pytest.MonkeyPatch) -> None:
    """The packet that came last goes first."""
    begin = QueuedLinks._begin

    def begun(links: QueuedLinks, link: int, queue: Any, now: int) -> None:
        if queue.waiting[-1][0] <= now:
            queue.waiting.rotate(1)
        begin(links, link, queue, now)

    patch.setattr(QueuedLinks, "_begin", begun)


def _losing_pause(patch: pytest.MonkeyPatch) -> None:
    """A pause loses the first packet that has to wait for it."""
    turn = QueuedLinks._turn

    def turned(links: QueuedLinks, queue: Any, link: int, time: int, *, wait: bool) -> None:
        turn(links, queue, link, time, wait=wait)
        if queue.paused and queue.waiting:
            _, packet, size, duration = queue.waiting.popleft()
            queue.backlog -= duration
            links._change(queue, time, packet, -size)
            links._given_up_now.append(packet)

    patch.setattr(QueuedLinks, "_turn", turned)


def _forgetful_watchdog(patch: pytest.MonkeyPatch) -> None:
    """What a watchdog drops still counts as held, so that those who sent it are never let go."""
    give_up, change = QueuedLinks._give_up, QueuedLinks._change

    def given_up(links: QueuedLinks, link: int, queue: Any, now: int) -> None:
        with pytest.MonkeyPatch.context() as context:
            context.setattr(QueuedLinks, "_change", lambda *_: None)
            give_up(links, link, queue, now)
        assert QueuedLinks._change is change

    patch.setattr(QueuedLinks, "_give_up", given_up)


def _endless_storm(patch: pytest.MonkeyPatch) -> None:
    """A storm never ends."""
    patch.setattr(QueuedLinks, "_restored_at", lambda *_: NEVER)


def _always_dropping(patch: pytest.MonkeyPatch) -> None:
    """A watchdog that is to forward, or only to say so, drops."""
    patch.setattr("fanin.simulator.queues.ACTIONS", _Drops())


class _Drops(tuple[str, ...]):
    """Whatever action is looked for, it is the first."""

    def index(self, *_: Any) -> int:
        return 0


def _uninvited_watchdog(patch: pytest.MonkeyPatch) -> None:
    """Where there is no watchdog, a pause is taken for a storm all the same."""
    make = QueuedLinks.__init__

    def made(links: QueuedLinks, *arguments: Any) -> None:
        make(links, *arguments)
        links._detection = [min(time, 10**8) for time in links._detection]

    patch.setattr(QueuedLinks, "__init__", made)


def _endless_outage(patch: pytest.MonkeyPatch) -> None:
    """A link that is down never comes up again."""
    cut = Links.cut
    patch.setattr(Links, "cut", lambda links, which, begin, _: cut(links, which, begin, NEVER))


MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], int] = {  # with the seed that shows it soonest
    _first_last: 116,
    _last_in_first_out: 153,
    _losing_pause: 4,
    _forgetful_watchdog: 148,
    _endless_storm: 148,
    _always_dropping: 25,
    _uninvited_watchdog: 77,
    _endless_outage: 38,
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__.strip("_"))
def test_a_mutant_of_what_links_do_is_caught(
    switch: Engine, monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    monkeypatch.setattr(compiled, "library", lambda: None)
    mutant(monkeypatch)
    assert any(_goes_wrong(draw_scenario(seed), switch) for seed in (MUTANTS[mutant], *range(WITHIN)))


def _goes_wrong(scenario: Scenario, switch: Engine) -> bool:
    concerned = scenario.prioritized or scenario.links.pause or scenario.outages
    return bool(concerned) and bool(run_scenario(scenario, switch).violations)
