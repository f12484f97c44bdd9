"""Flows take as long as in htsim, and the document shows what was found."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.models.simulators import CASES, Case, permutation, run
from p4switch.engine.engine import Engine
from tests.sizes import sized

DOCUMENT = Path(__file__).parents[3] / "docs" / "validation.md"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES[: sized(2, len(CASES))], ids=lambda case: case.name)
def test_the_last_flow_arrives_when_htsim_says_and_the_document_shows_it(switch: Engine, case: Case) -> None:
    found = run(case, switch)
    assert found.agrees
    assert f"| {' | '.join(found.cells)} |" in DOCUMENT.read_text().splitlines()


def test_a_permutation_sends_from_each_host_to_another_and_to_each_from_one() -> None:
    senders, receivers = zip(*permutation(16), strict=True)
    assert senders == tuple(range(16))
    assert sorted(receivers) == list(senders)
    assert all(sender != receiver for sender, receiver in permutation(16))
