"""The files that a run leaves."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fanin.experiments.results.demo_table import table
from fanin.experiments.results.drawing.figures import plot_comparison, plot_training
from fanin.experiments.results.files import write_results
from fanin.experiments.results.measured import row
from fanin.experiments.results.summary import write_curves, write_summary
from tests.experiments.results.runs import BARE, CURVE, RATE, RING, RUN, run

LOSSY = run(links={"loss": 0.01})


# Who reads summary.json relies on them.
COLUMNS = [
    *("name", "algorithm", "workers", "loss", "elements", "all_reduces", "seconds"),
    *("goodput_bits_per_second", "wire_bytes_per_worker", "retransmissions", "max_abs_error", "error_bound"),
    *("violations", "limited_by", "link_utilization", "processor_utilization"),
    *("accuracy", "reference_accuracy", "engine", "link_bits_per_second"),
    *("window", "segments", "initial_rto", "min_rto", "granularity"),
]


def test_the_summary_holds_each_run_and_the_machine(tmp_path: Path) -> None:
    write_summary([RUN, BARE], tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    first, second = summary["runs"]
    assert first["algorithm"] == "in-network"
    assert first["seconds"] == {"median": 0.012, "p95": pytest.approx(0.0147)}
    assert (first["accuracy"], second["accuracy"]) == (0.9, None)
    assert (first["name"], second["name"]) == ("training", "4 MB")
    assert (first["all_reduces"], first["workers"], first["link_bits_per_second"]) == (3, 8, RATE)
    assert first["goodput_bits_per_second"] == pytest.approx(32 * 19211 / 0.012)
    assert list(first) == COLUMNS
    assert (first["window"], first["min_rto"], first["granularity"]) == (128, 0.01, 0.001)
    assert summary["machine"]["cores"] >= 1


def test_the_csv_has_a_row_for_each_run(tmp_path: Path) -> None:
    write_summary([RUN, RING, LOSSY], tmp_path)
    with (tmp_path / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        *(name for name in COLUMNS if name != "seconds"),
        *("seconds_median", "seconds_p95"),
    ]
    assert [row["algorithm"] for row in rows] == ["in-network", "ring", "in-network"]
    assert [float(row["seconds_median"]) for row in rows] == [0.012, 0.02, 0.012]


def test_a_row_has_no_curve_but_what_it_came_to() -> None:
    columns = row(RUN.settings, RUN.measured)
    assert "curve" not in columns
    assert columns["accuracy"] == 0.9


def test_curves_are_written_step_by_step(tmp_path: Path) -> None:
    write_curves([RUN, BARE], tmp_path)
    with (tmp_path / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], row["step"], float(row["accuracy"])) for row in rows] == [
        ("training, in-network", str(step), accuracy) for step, accuracy in enumerate(CURVE.accuracy, start=1)
    ]


def test_the_table_has_a_row_for_each_run_and_marks_what_is_out_of_bounds() -> None:
    console = Console(width=160, force_terminal=False, record=True)
    console.print(table([RUN, RING, run(links={"loss": 0.01}, violations=3)]))
    text = console.export_text(clear=False)
    assert text.count("training") == 3
    assert "1.0%" in text
    assert "3 outside" in text


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("rate", [100_000_000, None])
def test_figures_are_pictures_of_some_size(tmp_path: Path, rate: int | None) -> None:
    from matplotlib.image import imread

    runs = [run(rate), run(rate, algorithm="ring"), run(rate, links={"loss": 0.01})]
    plot_comparison(runs[:2], tmp_path / "comparison.png")
    plot_training(runs, CURVE, tmp_path / "training.png")
    for name in ("comparison.png", "training.png"):
        picture = imread(tmp_path / name)
        assert picture.shape[1] > 1000
        assert np.ptp(picture) > 0.9


def test_a_text_that_a_spreadsheet_would_run_is_none_in_csv(tmp_path: Path) -> None:
    write_results([{"a": "=1+1", "b": -1, "c": "\x1b[2J", "d": "-x"}], {}, tmp_path)
    assert (tmp_path / "results.csv").read_text().splitlines() == ["a,b,c,d", "'=1+1,-1,\ufffd[2J,'-x"]
