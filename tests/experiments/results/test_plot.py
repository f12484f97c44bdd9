"""Figures from rows: what is drawn at which place, and what is said where that cannot be."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image
from pydantic import ValidationError

from fanin.experiments.results.axes import scale
from fanin.experiments.results.drawing.plot import draw
from fanin.experiments.results.drawing.series import (
    PlotError,
    mixed,
    queue_series,
    require_lines,
    select,
    series,
    spread,
)
from fanin.experiments.results.files import QUEUE_COLUMNS
from fanin.experiments.results.measured import Row
from fanin.experiments.scenario.styles import Style
from fanin.experiments.scenario.tables.figure import Plot
from tests.experiments.results.runs import made

pytestmark = pytest.mark.slow


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


def test_only_the_rows_asked_for_are_drawn_and_those_that_failed_marked() -> None:
    rows = [*ROWS, row("ring", 4, None)]
    chosen = select(rows, {"algorithm": ["ring"], "workers": ["8", "4"]})
    assert len(chosen) == 4
    (ring,) = series(chosen, BY_ALGORITHM)
    assert (list(ring.x), ring.samples, ring.failed) == ([8], [[0.004, 0.006, 0.005]], [4])
    assert len(select(rows, {})) == len(rows)


def test_rows_are_asked_for_with_units_as_they_are_printed() -> None:
    rows = [row("ring", 8, 0.004, loss=loss, delay=5e-6) for loss in (0.0, 0.001, 0.01)]
    assert [chosen["loss"] for chosen in select(rows, {"loss": ["1%", "0.001"], "delay": ["5 us"]})] == [
        0.001,
        0.01,
    ]
    with pytest.raises(PlotError, match=r"loss=2%: no row has it; there are 0%, 0.1%, 1%"):
        select(rows, {"loss": ["2%"]})


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
        (Plot(x="workers", y="latency"), {}, "latency: no such column; did you mean 'median_seconds'?"),
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


def test_a_single_point_has_a_logarithmic_axis_as_well(tmp_path: Path) -> None:
    plot = Plot(x="displacement", y="median_seconds", log=("x",))
    draw(series([row("ring", 2, 0.002, displacement=1e-4)], plot), plot, tmp_path / "figure.png")


@pytest.mark.parametrize("ending", ["svg", "pdf"])
def test_figures_come_in_vector_formats_as_well(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"figure.{ending}"
    draw(series(ROWS, BY_ALGORITHM), BY_ALGORITHM, path)
    assert path.read_bytes()[:5] in (b"<?xml", b"%PDF-")


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlotError, match=r"figure\.doc: "):
        draw(series(ROWS, BY_ALGORITHM), BY_ALGORITHM, tmp_path / "figure.doc")


# -- spread ------------------------------------------------------------------------------------------------------


REPEATED = [
    {
        **row("ring", workers, 0.003),
        "seconds": [0.001 * i for i in range(1, 7)],
        "elements": 1000,
        "closed_form_seconds": 0.0005,
    }
    for workers in (2, 8)
]


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [("minmax", 0.001, 0.006), ("iqr", 0.00225, 0.00475), ("ci95", 0.001, 0.006), ("none", 0.0035, 0.0035)],
)
def test_repetitions_in_a_row_have_a_spread(kind: Any, low: float, high: float) -> None:
    plot = Plot(x="workers", y="median_seconds", spread=kind)
    (line,) = series(REPEATED, plot)
    assert line.median == pytest.approx([0.0035] * 2)
    assert (line.low, line.high) == (pytest.approx([low] * 2), pytest.approx([high] * 2))


@pytest.mark.parametrize(("count", "left_out"), [(6, 0), (8, 0), (9, 1), (20, 5), (100, 39)])
def test_a_confidence_interval_of_the_median_leaves_out_as_many_as_binomial_tables_say(
    count: int, left_out: int
) -> None:
    values = [float(i) for i in range(count)]
    assert spread(values, "ci95", "here") == (left_out, count - 1 - left_out)


def test_a_confidence_interval_of_too_few_values_is_refused() -> None:
    with pytest.raises(PlotError, match="needs 6 values at each place, and ring at workers=8 has 3"):
        series(ROWS[:3], Plot(x="workers", y="median_seconds", by=("algorithm",), spread="ci95"))


def test_goodput_is_that_of_each_repetition_and_of_the_closed_form() -> None:
    plot = Plot(x="workers", y="goodput_bits_per_second", closed_form=True)
    rows = [one | {"goodput_bits_per_second": 1.0} for one in REPEATED]
    (line,) = series(rows, plot)
    assert max(line.samples[0]) == pytest.approx(32 * 1000 / 0.001)
    assert line.closed_form == pytest.approx([32 * 1000 / 0.0005] * 2)


# -- queues over time ---------------------------------------------------------------------------------------------


def queue(link: str, depths: list[int]) -> Row:
    near, _, far = link.partition(" → ")
    sampled = dict(zip(QUEUE_COLUMNS, (near, far, link, [1e-6, 2e-6, 3e-6], depths), strict=True))
    return row("ring", 2, 0.002) | sampled


QUEUES = Plot(x="sampled_seconds", y="sampled_bytes", by=("link",))


def test_a_queue_is_empty_at_first_and_holds_each_sample_until_the_next() -> None:
    deep, shallow = queue_series(
        [queue("h1 → leaf1", [100, 50, 0]), queue("leaf1 → h2", [0, 700, 0])], QUEUES
    )
    assert (deep.label, shallow.label) == ("leaf1 → h2", "h1 → leaf1")
    assert deep.x == [0, 1e-6, 2e-6, 3e-6]
    assert deep.median == [0, 0, 700, 0]
    assert deep.steps
    with pytest.raises(PlotError, match="order: there is no line 'h1'; there are"):
        require_lines(QUEUES.model_copy(update={"order": ("h1",)}), [deep, shallow])


def test_a_queue_is_drawn_in_steps_without_markers(tmp_path: Path) -> None:
    path = tmp_path / "figure.svg"
    draw(queue_series([queue("leaf1 → h2", [700, 300, 0])], QUEUES), QUEUES, path)
    text = path.read_text()
    assert ">leaf1 → h2</text>" in text
    assert ">time since the run began (µs)</text>" in text
    assert ">bytes in the queue (B)</text>" in text
    (line,) = re.findall(r'<path d="([^"]*)" clip-path[^>]*stroke: #0072b2', text)
    # Each step is a line across and one up or down: from 0, over 700 and 300, to 0.
    points = [tuple(map(float, point)) for point in re.findall(r"[ML] ([\d.]+) ([\d.]+)", line)]
    assert len(points) == 7
    assert all(before[0] == after[0] or before[1] == after[1] for before, after in pairwise(points))


# -- what is drawn -----------------------------------------------------------------------------------------------


def test_lines_come_in_the_order_asked_for_by_the_names_asked_for(tmp_path: Path) -> None:
    plot = BY_ALGORITHM.model_copy(update={"order": ("in-network",), "labels": {"ring": "the ring"}})
    assert [line.label for line in series(ROWS, plot)] == ["in-network", "ring"]
    text = drawn(tmp_path / "figure.svg", ROWS, plot)
    assert ">in-network</text>" in text
    assert ">the ring</text>" in text
    assert ">ring</text>" not in text


def drawn(path: Path, rows: list[Row], plot: Plot) -> str:
    draw(series(rows, plot), plot, path)
    return path.read_text()


def test_the_legend_says_what_a_shade_and_a_dotted_line_are(tmp_path: Path) -> None:
    plot = Plot(x="workers", y="median_seconds", by=("algorithm",), spread="iqr", closed_form=True)
    text = drawn(tmp_path / "figure.svg", REPEATED, plot)
    assert "shaded: middle half of 6" in text
    assert "dotted: analytical model" in text


@pytest.mark.parametrize("log", [(), ("x",)])
def test_one_byte_among_megabytes_is_0_on_a_linear_axis_only(tmp_path: Path, log: tuple[Any, ...]) -> None:
    rows = [row("ring", 8, 0.004, size=size) for size in (1, 500_000, 2_000_000)]
    text = drawn(tmp_path / "figure.svg", rows, Plot(x="size", y="median_seconds", log=log))
    assert ">vector (MB)</text>" in text
    assert ">0.5</text>" in text
    assert (">1e-06</text>" in text) == bool(log)


@pytest.mark.parametrize("x", ["workers", "algorithm"])
def test_a_failed_point_is_marked(tmp_path: Path, x: str) -> None:
    plot = Plot(x=x, y="median_seconds", by=("algorithm",))
    assert "a run failed" not in drawn(tmp_path / "good.svg", ROWS, plot)
    assert "cross: a run failed" in drawn(tmp_path / "failed.svg", [*ROWS, row("ring", 4, None)], plot)


@pytest.mark.parametrize("kind", ["box", "cdf"])
def test_boxes_and_distributions_say_of_how_many_values(tmp_path: Path, kind: Any) -> None:
    axes = {"x": "median_seconds"} if kind == "cdf" else {"x": "workers", "y": "median_seconds"}
    plot = Plot.model_validate({"kind": kind, "by": ("algorithm",), "closed_form": True, **axes})
    text = drawn(tmp_path / "figure.svg", REPEATED, plot)
    assert ("12 values each" if kind == "cdf" else "box: middle half of 6, and median") in text


def test_a_distribution_has_every_repetition() -> None:
    (line,) = series(REPEATED, Plot(kind="cdf", x="seconds"))
    assert sorted(line.samples[0]) == sorted(2 * REPEATED[0]["seconds"])


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_the_same_results_give_the_same_bytes(tmp_path: Path, ending: str) -> None:
    plot = Plot(x="workers", y="median_seconds", by=("algorithm",), title="Try")
    files = [tmp_path / f"{name}.{ending}" for name in "ab"]
    for path in files:
        draw(series(ROWS, plot), plot, path)
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.slow
def test_fonts_are_embedded_as_truetype_and_text_stays_text(tmp_path: Path) -> None:
    draw(series(ROWS, BY_ALGORITHM), BY_ALGORITHM, tmp_path / "figure.pdf")
    pdf = (tmp_path / "figure.pdf").read_bytes()
    assert b"/Type3" not in pdf
    assert b"/FontFile2" in pdf
    assert "time of an all-reduce, median (ms)</text>" in drawn(tmp_path / "figure.svg", ROWS, BY_ALGORITHM)


@pytest.mark.parametrize(
    ("given", "inches"),
    [
        ({}, (6.4, 4.0)),
        ({"style": "column"}, (3.4, 2.5)),
        ({"style": "column", "kind": "box", "x": "algorithm"}, (3.4, 2.5)),  # whose legend says much
        ({"size": "5x3"}, (5, 3)),
    ],
)
def test_a_figure_is_as_large_as_its_style_or_its_size(
    tmp_path: Path, given: dict[str, Any], inches: tuple[float, float]
) -> None:
    plot = Plot.model_validate({"x": "workers", "y": "median_seconds", **given})
    head = drawn(tmp_path / "figure.svg", ROWS, plot)[:2000]
    found = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', head)
    assert found is not None
    # Up to the margins that are cut off.
    assert [float(points) / 72 for points in found.groups()] == pytest.approx(inches, abs=0.3)


def test_a_figure_of_a_style_grows_with_a_long_legend_and_one_of_a_size_does_not(tmp_path: Path) -> None:
    rows = [
        made(
            [1.0 + number / 100], algorithm="ring", transport="selective-repeat", links={"loss": number / 100}
        )
        for number in range(8)
    ]

    def height(**given: Any) -> float:
        plot = Plot.model_validate(
            {"x": "workers", "y": "median_seconds", "by": ["transport", "loss"], **given}
        )
        draw(series(rows, plot), plot, tmp_path / "figure.svg")
        found = re.search(r'height="([\d.]+)pt"', (tmp_path / "figure.svg").read_text()[:2000])
        assert found is not None
        return float(found[1]) / 72

    assert 3.2 < height(style="column") < 4
    assert height(style="column", size="3.4x2.5") == pytest.approx(2.5, abs=0.3)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"size": "5"}, "in inches, such as '3.4x2.4'"),
        ({"size": "0x4"}, "must be above 0"),
        ({"kind": "cdf"}, "y: a cdf shows the distribution of x"),
        ({"kind": "box", "log": ["x"]}, "log: x cannot be logarithmic in a figure of kind box"),
        ({"kind": "box", "spread": "iqr"}, "spread: a figure of kind box shows all values"),
    ],
)
def test_a_figure_that_cannot_be_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as error:
        Plot.model_validate({"x": "workers", "y": "median_seconds", **given})
    assert words in str(error.value)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("style", "inches"), [("page", (6.4, 4.0)), ("column", (3.4, 2.5)), ("slide", (10.0, 5.6))]
)
def test_a_figure_has_the_size_of_its_style(
    tmp_path: Path, style: Style, inches: tuple[float, float]
) -> None:
    long = Plot(x="workers", y="median_seconds", by=("algorithm", "seed"), style=style, title="Title " * 12)
    draw(series(ROWS, long), long, tmp_path / "figure.pdf")
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", (tmp_path / "figure.pdf").read_bytes())
    assert box is not None
    assert tuple(float(side) / 72 for side in box.groups()) == pytest.approx(inches)


@pytest.mark.few(3)
@pytest.mark.parametrize("style", ["page", "column", "slide"])
@pytest.mark.parametrize(
    ("x", "y"),
    [
        ("workers", "wait_seconds"),
        ("workers", "fault_recovery_seconds"),
        ("fault_recovery_seconds", "exposed_seconds"),
    ],
)
def test_long_labels_and_titles_are_folded_and_not_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, style: Style, x: str, y: str
) -> None:
    found: set[str] = set()

    def measure(figure: Figure, _path: Path) -> None:
        nonlocal found
        figure.draw_without_rendering()
        (axes,) = figure.axes
        width, height = figure.bbox.width, figure.bbox.height
        bold = [
            text for text in axes.findobj(Text) if isinstance(text, Text) and text.get_fontweight() == "bold"
        ]
        for text in (axes.xaxis.label, axes.yaxis.label, *bold):
            box = text.get_window_extent()
            inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
            assert inside, f"{text.get_text()!r} at {box} of {width:g} x {height:g}"
            assert not any(box.overlaps(legend.get_window_extent()) for legend in figure.legends)
            found |= {text.get_text().replace("\n", " ")} - {""}

    monkeypatch.setattr("fanin.experiments.results.drawing.plot.save", measure)
    title = "What each of many workers waits for, with in-network aggregation"
    plot = Plot(x=x, y=y, by=("algorithm", "seed"), style=style, title=title)
    rows = [
        row(algorithm, workers, 0.002, seed=seed, wait_seconds=0.2, exposed_seconds=0.1)
        | {"fault_recovery_seconds": 0.05 * workers}
        for algorithm in ("in-network", "ring", "halving-doubling")
        for workers in (2, 8)
        for seed in (1, 2)
    ]
    draw(series(rows, plot), plot, tmp_path / "figure.png")
    assert found == {title, scale(x, [0.4])[1], scale(y, [0.4])[1]}


def test_a_title_much_longer_than_the_figure_leaves_room_for_the_axes(tmp_path: Path) -> None:
    plot = Plot(x="workers", y="median_seconds", title=", ".join(["parallelism_bucket=1 MB,100 kB"] * 7))
    draw(series(ROWS, plot), plot, tmp_path / "long.png")


def test_of_many_columns_an_error_suggests_a_few_and_names_the_command_that_lists_all() -> None:
    wide = [one | {f"traffic_p{i}_seconds": 1.0 for i in range(200)} for one in ROWS]
    with pytest.raises(PlotError) as error:
        series(wide, Plot(x="workers", y="traffic_p77_second"))
    text = str(error.value)
    assert "did you mean 'traffic_p77_seconds'" in text
    assert "For all 205 columns, type fanin plot RESULTS --columns, " in text
    assert len(text) < 300
