"""Congestion marks in soak: switches set them, windows follow, sums stay right; and a rule of the window broken."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from fanin.assurance.soak.generate import draw_scenario
from fanin.assurance.soak.run import run_scenario
from fanin.assurance.soak.scenario import Scenario, Work
from fanin.p4switch.engine.engine import Engine
from fanin.topologies.link import LinkProperties
from fanin.workers.congestion import Gate
from fanin.workers.engines.reference import NumpyEngine
from fanin.workers.protocol import Worker

pytestmark = pytest.mark.slow

WITHIN = 200  # seeds, in which a mutant must be caught
# Three workers send on one link up, which is no faster than theirs, and beside them two more do.
CROWDED = Scenario(
    0,
    (Work((3, 1), window=64, elements=(8000,)), Work((2, 2), window=64, elements=(8000,), algorithm="ring")),
    rate=10**9,
    links=LinkProperties(delay=2e-6, ecn_bytes=0),
)


def test_marked_results_come_and_windows_become_smaller(switch: Engine) -> None:
    outcome = run_scenario(CROWDED, switch)
    assert not outcome.violations
    assert outcome.faults["ECN mark"] > outcome.faults["marked result"] > 0
    assert outcome.faults["window narrowed"] > 0
    roomy = replace(CROWDED, links=LinkProperties(delay=2e-6))
    assert not {"ECN mark", "marked result", "window narrowed"} & set(+run_scenario(roomy, switch).faults)


def test_scenarios_have_thresholds_with_and_without_limits_of_queues() -> None:
    links = [draw_scenario(seed).links for seed in range(200)]
    marking = [properties for properties in links if properties.ecn_bytes is not None]
    assert 60 < len(marking) < 140
    assert {properties.queue_bytes is None for properties in marking} == {True, False}
    assert {properties.pause is None for properties in marking} == {True, False}


class PatientGate(Gate):
    """The lowest chunk missing waits for room, too."""

    def admit(
        self, ready: NDArray[np.int64] | None, accepted: NDArray[np.bool_], lead: int
    ) -> NDArray[np.int64] | None:
        return super().admit(ready, np.zeros_like(accepted), lead)


@pytest.mark.few(0)
def test_a_window_that_holds_back_the_lowest_chunk_missing_is_caught(
    switch: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fanin.workers.engines.engine.Gate", PatientGate)
    make = partial(Worker, engine=NumpyEngine, non_finite="propagate", on_saturation="count")
    scenarios = (draw_scenario(seed) for seed in range(WITHIN))
    marking = (scenario for scenario in scenarios if scenario.links.ecn_bytes is not None)
    assert any(run_scenario(scenario, switch, make).violations for scenario in marking)
