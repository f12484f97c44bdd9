"""Planted causes are found by what links and workers did, and nothing is found where nothing is wrong."""

from __future__ import annotations

from collections import Counter

import pytest

from fanin.experiments.diagnosis.diagnose import diagnose
from fanin.experiments.results.measured import failed_row, row
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.deadlock import DeadlockError
from tests.experiments.diagnosis.planted import plant
from tests.sizes import sized

# Thresholds and tests were made with others, below 2200.
FIRST, COUNT = 3000, sized(11, 220)  # each cause once, or twenty times


@pytest.mark.long
@pytest.mark.slow
def test_the_planted_cause_is_named(switch: Engine) -> None:
    found: Counter[tuple[str, str]] = Counter()
    wrong = []
    for seed in range(FIRST, FIRST + COUNT):
        planted = plant(seed)
        try:
            measured = run_virtual(planted.settings, switch, planted.prepare)
        except DeadlockError as error:
            cause = diagnose(failed_row(planted.settings, f"DeadlockError: {error}"), None).cause
        else:
            cause = diagnose(row(planted.settings, measured), measured.usage).cause
        found[planted.cause, cause] += 1
        if cause != planted.cause:
            wrong.append(f"seed {seed}: {planted.cause}, but {cause}")
    print(
        *wrong,
        *(f"{planted} → {named}: {count}" for (planted, named), count in sorted(found.items())),
        sep="\n",
    )
    assert len(wrong) <= 0.1 * COUNT, wrong
    assert not [text for text in wrong if ": nothing wrong, but" in text]
