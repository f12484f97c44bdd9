"""Priorities, pauses, watchdogs and outages of links in soak; and their rules broken, in the loop's C."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from fanin.assurance.soak.generate import draw_scenario
from fanin.assurance.soak.order import SendingOrder
from fanin.assurance.soak.run import run_scenario
from fanin.assurance.soak.scenario import Outage, Scenario, Work
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import compiled, network
from fanin.simulator.links import Links
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


class Mutant(NamedTuple):
    """Texts of simulator/loop/queues.c that are replaced, and the seed that shows it soonest."""

    replaced: dict[str, str]
    seed: int


# A pause loses the first packet that has to wait for it.
LOSES = """
static void lose_first(struct loop *l, const struct event *event)
{
    struct link *k = l->links + event->link;
    uint32_t priority = event->row & ~(PAUSE_FRAME | WAIT);
    struct queue *q = l->queues + (size_t)event->link * l->priorities + priority;
    if (!q->paused || q->first == NOBODY)
        return;
    uint32_t row = take_first(l, q);
    q->backlog -= time_on_wire(l, k, row);
    k->queued_bytes -= size_on_wire(l, k, row);
    change(l, row, (uint32_t)k->overhead, priority, event->time, -1);
    free_row(l, row);
}

/* Does what links do until the end of a window. */"""

MUTANTS = {
    # Of several queues the lowest one goes first.
    "first last": Mutant(
        {"for (uint32_t p = l->priorities; p-- > 0;) {": "for (uint32_t p = 0; p < l->priorities; p++) {"},
        116,
    ),
    # The packet that came last goes first.
    "last in, first out": Mutant(
        {
            "    if (q->first == NOBODY)\n        q->first = row;\n    else\n        waits[q->last].next = row;\n"
            "    q->last = row;\n": "    waits[row].next = q->first;\n    if (q->first == NOBODY)\n"
            "        q->last = row;\n    q->first = row;\n"
        },
        153,
    ),
    "losing pause": Mutant(
        {
            "/* Does what links do until the end of a window. */": LOSES,
            "                 event->row & WAIT);": "                 event->row & WAIT), lose_first(l, event);",
        },
        4,
    ),
    # What a watchdog drops still counts as held, so that those who sent it are never let go.
    "forgetful watchdog": Mutant(
        {
            "        change(l, row, (uint32_t)k->overhead, priority, now, -1);\n"
            "        drop_by_watchdog(l, link, now, row);": "        (void)priority;\n"
            "        drop_by_watchdog(l, link, now, row);"
        },
        148,
    ),
    "endless storm": Mutant(
        {"return q->paused ? NEVER : q->since + k->restoration;": "return (void)k, (void)q, NEVER;"}, 148
    ),
    # A watchdog that is to forward, or only to say so, drops.
    "always dropping": Mutant(
        {
            "if (k->action != DROP)": "if (false)",
            "q->storming && k->action == DROP": "q->storming",
            "(q->paused && k->action == ALERT)": "false",
        },
        25,
    ),
    # Where there is no watchdog, a pause is taken for a storm all the same.
    "uninvited watchdog": Mutant(
        {
            "return k->detection < NEVER - since ? since + k->detection : NEVER;": (
                "return since + (k->detection < 100000000 ? k->detection : 100000000);"
            )
        },
        77,
    ),
}


def _caught(switch: Engine, soonest: int) -> bool:
    return any(_goes_wrong(draw_scenario(seed), switch) for seed in (soonest, *range(WITHIN)))


@pytest.mark.few(2)
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_of_what_links_do_is_caught(
    switch: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mutant: Mutant
) -> None:
    folder = tmp_path / "loop"
    shutil.copytree(compiled.FOLDER, folder)
    text = (folder / "queues.c").read_text()
    for old, new in mutant.replaced.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "queues.c").write_text(text)
    library = compiled.library(folder)
    monkeypatch.setattr(network, "library", lambda: library)
    assert _caught(switch, mutant.seed)


def test_an_outage_that_does_not_end_is_caught(switch: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = Links.cut
    monkeypatch.setattr(Links, "cut", lambda links, which, begin, _: cut(links, which, begin, NEVER))
    assert _caught(switch, 38)


def _goes_wrong(scenario: Scenario, switch: Engine) -> bool:
    concerned = scenario.prioritized or scenario.links.pause or scenario.outages
    return bool(concerned) and bool(run_scenario(scenario, switch).violations)
