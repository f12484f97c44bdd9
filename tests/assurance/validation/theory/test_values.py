"""Every value is what theory derives, and the document shows each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from fanin.assurance.validation.theory import dcqcn as dcqcn_models
from fanin.assurance.validation.theory.dcqcn import dcqcn
from fanin.assurance.validation.theory.dctcp import dctcp
from fanin.assurance.validation.theory.derived import Derived
from fanin.assurance.validation.theory.paths import expected_maximum, paths
from fanin.assurance.validation.theory.pauses import pauses
from fanin.p4switch.engine.engine import Engine
from tests.sizes import sized

DOCUMENT = Path(__file__).parents[4] / "docs" / "explanation" / "validation-theory.md"
THEORIES = (dcqcn, dctcp, pauses, paths)


@pytest.mark.few(1)
@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("theory", THEORIES, ids=lambda theory: theory.__name__)
def test_values_agree_with_theory_and_the_document_shows_them(
    switch: Engine, theory: Callable[[Engine], Iterator[Derived]]
) -> None:
    shown = DOCUMENT.read_text().splitlines()
    for found in islice(theory(switch), sized(1, None)):
        assert found.agrees, found.what
        assert f"| {' | '.join(found.cells)} |" in shown


@pytest.mark.parametrize(
    ("virtual", "agrees"), [(0.94, False), (0.96, True), (1.0, True), (1.01, True), (1.02, False)]
)
def test_an_error_has_a_limit_in_each_direction(virtual: float, agrees: bool) -> None:
    found = Derived(what="", theory=1.0, virtual=virtual, form=".1f", lowest=-0.05, highest=0.015)
    assert found.agrees == agrees


def test_senders_whose_packets_are_never_marked_keep_the_rate_of_their_links() -> None:
    parameters = dcqcn_models.STEEP.dcqcn(dcqcn_models.RATE)
    assert parameters is not None
    unmarked = dcqcn_models.one_by_one(1, parameters, threshold=1.0)
    assert (unmarked.share, unmarked.queue) == (1.0, 0.0)
    marked = dcqcn_models.one_by_one(2, parameters, threshold=1.0)
    assert marked.share < 0.9
    forgetful = replace(parameters, initial_alpha=0.0, gain=1e-9)
    assert dcqcn_models.one_by_one(2, forgetful, threshold=1.0).share == 1.0


def test_the_fullest_of_two_bins_has_one_and_a_half_of_two_balls() -> None:
    assert expected_maximum(2, 2) == pytest.approx(1.5)
    assert expected_maximum(1, 5) == pytest.approx(1.0)
    assert expected_maximum(5, 1) == pytest.approx(5.0)
