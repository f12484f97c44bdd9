"""A figure must be where its paper's shape has it, and results say what it is compared with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fanin.assurance.validation.papers.published import Published, write

RATIO = Published(
    what="ratio", source="Nobody, 2026", value="up to 2", least=1.5, most=2.0, form=".1f", why="it is not"
)


@pytest.mark.parametrize(
    ("ours", "agrees"), [(1.49, False), (1.5, True), (2.0, True), (2.01, False), (float("nan"), False)]
)
def test_a_figure_agrees_within_its_bounds(ours: float, agrees: bool) -> None:
    assert RATIO.compared_with(ours).agrees == agrees


def test_figures_are_shown_in_their_form() -> None:
    assert RATIO.compared_with(1.75).cells == ("ratio", "up to 2", "1.8", "1.5 to 2.0")
    share = replace(RATIO, form=".0%", least=0.5, most=1.0)
    assert share.compared_with(0.98).cells == ("ratio", "up to 2", "98%", "50% to 100%")


def test_results_have_the_source_and_the_explanation_of_each_figure(tmp_path: Path) -> None:
    write([RATIO.compared_with(1.75), RATIO.compared_with(3.0)], tmp_path / "there")
    inside, outside = json.loads((tmp_path / "there" / "papers.json").read_text())["figures"]
    assert inside == {
        "what": "ratio",
        "source": "Nobody, 2026",
        "value": "up to 2",
        "least": 1.5,
        "most": 2.0,
        "why": "it is not",
        "ours": 1.75,
        "agrees": True,
    }
    assert not outside["agrees"]
