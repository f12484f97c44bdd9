"""Flows take as long as in htsim, and the document shows what was found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fanin.assurance.validation.lossless_incast import INCASTS, Seen, Victim
from fanin.assurance.validation.simulators import (
    CASES,
    SimulatorCase,
    SimulatorComparison,
    permutation,
    run,
    write,
)
from fanin.p4switch.engine.engine import Engine
from tests.sizes import sized

DOCUMENT = Path(__file__).parents[3] / "docs" / "explanation" / "validation-htsim.md"


@pytest.mark.few(1)
@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES[: sized(2, len(CASES))], ids=lambda case: case.name)
def test_the_last_flow_arrives_when_htsim_says_and_the_document_shows_it(
    switch: Engine, case: SimulatorCase
) -> None:
    found = run(case, switch)
    assert found.agrees
    assert f"| {' | '.join(found.cells)} |" in DOCUMENT.read_text().splitlines()


def test_a_permutation_sends_from_each_host_to_another_and_to_each_from_one() -> None:
    senders, receivers = zip(*permutation(16), strict=True)
    assert senders == tuple(range(16))
    assert sorted(receivers) == list(senders)
    assert all(sender != receiver for sender, receiver in permutation(16))


def test_results_have_flows_and_incasts_with_what_htsim_says_of_them(tmp_path: Path) -> None:
    seen = Seen(sharing=6, below_half=13, under_used=14, shares=(0.1,), lasted=24)
    victims = [Victim(incast, (seen,)) for incast in INCASTS]
    write([SimulatorComparison(CASES[0], 180e-6, 180e-6)], victims, tmp_path)
    found = json.loads((tmp_path / "simulators.json").read_text())
    assert found["cases"][0]["case"] == "one flow"
    first, *_, last = found["incasts"]
    assert first["incast"] == INCASTS[0].name
    assert first["milliseconds"] == first["htsim"] == {"below_half": 13, "under_used": 14}
    assert first["seeds"][0]["sharing"] == 6
    assert last["htsim"] is None
