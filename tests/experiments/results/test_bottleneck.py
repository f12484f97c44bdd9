"""A live run states whether links or processors set its time, in its row, its table and its figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fanin.experiments.report.html_report import page
from fanin.experiments.results.bottleneck import limited_by
from fanin.experiments.results.drawing.plot import draw
from fanin.experiments.results.drawing.series import series
from fanin.experiments.results.measured import Row, row
from fanin.experiments.scenario.tables.figure import Kind, Plot
from fanin.run_points import _table
from tests.experiments.results.runs import run


@pytest.mark.parametrize(
    ("link", "processors", "limit"),
    [
        (0.98, 0.15, "links"),
        (0.98, 1.0, "links"),  # of other work, too: the link was full nevertheless
        (0.8, 0.79, "links"),
        (0.31, 0.97, "processors"),
        (None, 0.93, "processors"),
        (0.12, 0.2, "neither"),  # timers after losses, say
        (None, 0.2, "neither"),
        (0.12, None, None),
        (None, None, None),
        (0.95, None, "links"),
    ],
)
def test_a_full_link_sets_the_time_and_otherwise_full_processors(
    link: float | None, processors: float | None, limit: str | None
) -> None:
    assert limited_by(link, processors) == limit


def measured(link: float | None, processors: float | None, algorithm: str = "ring") -> Row:
    one = run(size="4 MB", algorithm=algorithm)
    found = replace(one.measured, link_utilization=link, processor_utilization=processors)
    return row(one.settings, found)


def test_a_row_says_so_with_both_shares() -> None:
    one = measured(0.31, 0.97)
    assert (one["limited_by"], one["link_utilization"], one["processor_utilization"]) == (
        "processors",
        0.31,
        0.97,
    )


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ["lines", "box", "cdf"])
@pytest.mark.parametrize("x", ["algorithm", "workers"])
def test_its_figure_says_so_and_that_of_others_does_not(tmp_path: Path, kind: Kind, x: str) -> None:
    plot = Plot(x="seconds", kind=kind) if kind == "cdf" else Plot(x=x, y="median_seconds", kind=kind)
    links, processors = (
        [measured(0.97, 1.0, "in-network"), measured(*shares)] for shares in ((0.9, 1.0), (0.3, 1.0))
    )
    texts = []
    for rows in (links, processors):
        draw(series(rows, plot), plot, tmp_path / "figure.svg")
        texts.append((tmp_path / "figure.svg").read_text().replace("\n", " "))
    assert "processors" not in texts[0]
    assert "limited by processors" in texts[1]
    assert "processors" in texts[1]


@pytest.mark.slow
def test_its_page_says_so() -> None:
    assert "<td>processors</td>" in page({}, [(measured(0.3, 1.0), None)], "results")
    assert "<td>links</td>" in page({}, [(measured(0.9, 1.0), None)], "results")


def test_its_table_says_so() -> None:
    table = _table(["algorithm"], [measured(0.3, 1.0), measured(None, None, "in-network")])
    cells = {str(column.header): list(column.cells) for column in table.columns}
    assert cells["limited by"] == ["processors", ""]
    assert cells["link"] == ["30%", ""]
    assert cells["cores"] == ["100%", ""]
