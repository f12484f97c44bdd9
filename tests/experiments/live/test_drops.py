"""The report about switches when a run does not finish."""

from __future__ import annotations

from fanin.controller.telemetry import Count, Reason, SwitchCounts
from fanin.experiments.live.run import dropped


def counts(**packets: int) -> SwitchCounts:
    drops = {reason: Count(packets.get(reason.name, 0), 0) for reason in Reason}
    return SwitchCounts({}, drops, {})


def test_each_switch_is_named_with_its_reasons() -> None:
    seen = {"leaf1": counts(LOST=3, MISMATCH=20), "leaf2": counts(NONE=7), "spine1": counts(NO_ROUTE=1)}
    assert dropped(seen) == "switches dropped leaf1 3 LOST, leaf1 20 MISMATCH, spine1 1 NO_ROUTE"


def test_nothing_is_said_to_be_nothing() -> None:
    assert dropped({"leaf1": counts(NONE=7)}) == "switches dropped nothing"
