"""Planted causes of idle workers are named, two at once as well, and nothing where workers compute."""

from __future__ import annotations

from collections import Counter

import pytest

from fanin.experiments.diagnosis.diagnose import diagnose
from fanin.experiments.results.measured import row
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from tests.experiments.diagnosis.planted_steps import plant_step

# Thresholds and tests were made with others, below 2000.
FIRST, COUNT = 5000, 400


@pytest.mark.few(0)
@pytest.mark.slow
def test_the_planted_causes_are_named(switch: Engine) -> None:
    found: Counter[tuple[str, str]] = Counter()
    wrong = []
    for seed in range(FIRST, FIRST + COUNT):
        planted = plant_step(seed)
        measured = run_virtual(planted.settings, switch)
        findings = diagnose(row(planted.settings, measured), measured.usage).findings
        named = [finding.cause for finding in findings]
        if not named:
            assert measured.gpu_idle_share is None or measured.gpu_idle_share <= 0.2, seed
        expected = " + ".join(planted.causes) or "nothing wrong"
        said = " + ".join(named) or "nothing wrong"
        found[expected, said] += 1
        right = named == [] if not planted.causes else {*named[:1]} <= {*planted.causes}
        if not (right and set(planted.causes) <= set(named)):
            wrong.append(f"seed {seed}: {expected}, but {said}")
    print(*wrong, *(f"{a} → {b}: {count}" for (a, b), count in sorted(found.items())), sep="\n")
    assert len(wrong) <= 0.05 * COUNT, wrong


@pytest.mark.parametrize("seed", [12012, 12114])
def test_latency_is_named_although_links_send_for_up_to_a_quarter_of_the_time(
    switch: Engine, seed: int
) -> None:
    """A vector is a single packet, and three quarters of its time or more are latencies."""
    planted = plant_step(seed)
    assert planted.causes == ("latency",)
    measured = run_virtual(planted.settings, switch)
    found = diagnose(row(planted.settings, measured), measured.usage)
    assert found.cause == "latency"
    assert found.findings[0].share >= 0.7
