"""Figures from rows: what is drawn at which place, and what is said where that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from experiments.results.measured import Row
from experiments.results.plot import PlotError, draw, mixed, select, series
from experiments.scenario.file import Plot


def row(algorithm: str, workers: int, seconds: float | None, **rest: Any) -> Row:
    error = "StallError: nothing new" if seconds is None else None
    return {"algorithm": algorithm, "workers": workers, "median_seconds": seconds, "error": error, **rest}


ROWS = [
    row("ring", 8, 0.004, seed=1),
    row("ring", 8, 0.006, seed=2),
    row("ring", 8, 0.005, seed=3),
    row("ring", 2, 0.002, seed=1),
    row("in-network", 2, 0.001, seed=1),
]
BY_ALGORITHM = Plot(x="workers", y="median_seconds", by=("algorithm",))


def test_a_line_for_each_group_has_medians_and_the_spread_at_each_x() -> None:
    ring, in_network = series(ROWS, BY_ALGORITHM)
    assert (ring.label, list(ring.x)) == ("ring", [2, 8])
    assert (ring.median, ring.low, ring.high) == ([0.002, 0.005], [0.002, 0.004], [0.002, 0.006])
    assert in_network.median == [0.001]


def test_numbers_in_a_legend_say_what_they_are() -> None:
    by_seed = series(ROWS, Plot(x="workers", y="median_seconds", by=("algorithm", "seed")))
    assert by_seed[0].label == "ring, seed 1"


def test_only_the_rows_asked_for_and_those_with_a_result_are_drawn() -> None:
    rows = [*ROWS, row("ring", 4, None)]
    assert len(select(rows, {"algorithm": ["ring"], "workers": ["8", "4"]})) == 3
    assert len(select(rows, {})) == len(ROWS)


def test_rows_that_differ_in_more_than_the_seed_are_told() -> None:
    assert mixed(ROWS, BY_ALGORITHM) == []
    assert mixed(ROWS, Plot(x="workers", y="median_seconds")) == ["algorithm"]


def test_rows_that_differ_in_what_the_scenario_left_out_are_repetitions() -> None:
    given, left_out = '{"recovery": {"min_rto": %s}}', '{"recovery": {"min_rto": null}}'
    by_seed = {
        seed: row("ring", 2, 0.1, seed=seed, min_rto=seed * 1e-4, settings=left_out) for seed in (1, 2)
    }
    assert mixed(list(by_seed.values()), BY_ALGORITHM) == []
    said = [one | {"settings": given % one["min_rto"]} for one in by_seed.values()]
    assert mixed(said, BY_ALGORITHM) == ["min_rto"]


@pytest.mark.parametrize(
    ("plot", "where", "words"),
    [
        (Plot(x="worker", y="median_seconds"), {}, "worker: no such column; did you mean 'workers'?"),
        (Plot(x="workers", y="goodput"), {}, "there are algorithm, workers, median_seconds"),
        (Plot(x="workers", y="algorithm"), {}, "algorithm: is 'ring', not a number"),
        (BY_ALGORITHM, {"workers": ["3"]}, "workers=3: no row has it; there are 2, 8"),
        (BY_ALGORITHM, {"loss": ["3"]}, "loss: no such column"),
    ],
)
def test_what_cannot_be_drawn_is_said(plot: Plot, where: dict[str, list[str]], words: str) -> None:
    with pytest.raises(PlotError) as error:
        series(select(ROWS, where), plot)
    assert words in str(error.value)


def test_where_all_failed_the_first_error_is_told() -> None:
    with pytest.raises(PlotError, match="all 1 rows failed; the first: StallError"):
        select([row("ring", 2, None)], {})


@pytest.mark.parametrize("x", ["workers", "algorithm"])
@pytest.mark.parametrize("log", [(), ("x", "y")])
def test_a_figure_has_something_on_it(tmp_path: Path, x: str, log: tuple[Any, ...]) -> None:
    plot = Plot(x=x, y="median_seconds", by=("seed",), log=log, title="Try")
    draw(series(ROWS, plot), plot, tmp_path / "figure.png")
    with Image.open(tmp_path / "figure.png") as image:
        assert len(image.getcolors(1 << 20) or []) > 50


@pytest.mark.parametrize("ending", ["svg", "pdf"])
def test_figures_come_in_vector_formats_as_well(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"figure.{ending}"
    draw(series(ROWS, BY_ALGORITHM), BY_ALGORITHM, path)
    assert path.read_bytes()[:5] in (b"<?xml", b"%PDF-")


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlotError, match=r"figure\.doc: "):
        draw(series(ROWS, BY_ALGORITHM), BY_ALGORITHM, tmp_path / "figure.doc")
