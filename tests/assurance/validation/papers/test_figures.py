"""Every figure has the shape of its paper's, and the document shows each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path

import pytest

from fanin.assurance.validation.papers.aggregation import Trained, aggregation
from fanin.assurance.validation.papers.loss_recovery import loss_recovery, seconds
from fanin.assurance.validation.papers.published import PaperComparison, Published
from fanin.assurance.validation.papers.without_pauses import without_pauses
from fanin.p4switch.engine.engine import Engine
from tests.sizes import sized

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[4] / "docs" / "explanation" / "validation-papers.md"

FIGURES = sized(3, None)  # of a paper; the next ones of the first are rings of more workers
PAPERS = (aggregation, loss_recovery, without_pauses)  # the last takes as long as the others together


def test_go_back_n_is_the_slower_the_more_is_lost_and_the_more_is_outstanding(switch: Engine) -> None:
    size = 2_000_000
    times = [seconds("go-back-n", loss, switch, size=size) for loss in (0.0, 0.01, 0.05)]
    assert times == sorted(times)
    assert seconds("go-back-n", 0.01, switch, window=256, size=size) > 1.3 * times[1]
    assert seconds("selective-repeat", 0.05, switch, size=size) < times[2]


@pytest.mark.few(0)
@pytest.mark.long
@pytest.mark.parametrize("paper", PAPERS[: sized(1, 3)], ids=lambda paper: paper.__name__)
def test_figures_agree_with_a_paper_and_the_document_shows_them(
    switch: Engine, paper: Callable[[Engine], Iterator[PaperComparison]]
) -> None:
    shown = DOCUMENT.read_text().splitlines()
    for found in islice(paper(switch), FIGURES):
        assert found.agrees, found.published.what
        assert f"| {' | '.join(found.cells)} |" in shown


def published_in(names: Mapping[str, object]) -> Iterator[Published]:
    """Find the published figures among a module's names, in its tables and in its trained networks."""
    for held in names.values():
        match held:
            case Published():
                yield held
            case dict():
                yield from (one for one in held.values() if isinstance(one, Published))
            case Trained():
                yield held.ratio


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.__name__)
def test_the_document_says_why_each_figure_differs(
    paper: Callable[[Engine], Iterator[PaperComparison]],
) -> None:
    shown = " ".join(DOCUMENT.read_text().split())
    found = list(published_in(vars(sys.modules[paper.__module__])))
    assert found
    for published in found:
        assert published.why in shown, published.what


def test_flows_of_a_loaded_fabric_are_compared_in_three_ways(switch: Engine) -> None:
    found = list(without_pauses(switch, seeds=(0,), duration=5e-5))
    assert len({one.published.what for one in found}) == 3
    assert all(one.ours < 1 for one in found)
