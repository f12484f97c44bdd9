"""The files that a run leaves."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from experiments.results.figures import plot_comparison, plot_training
from experiments.results.report import table
from experiments.results.summary import Run, Seconds, write_curves, write_summary
from experiments.training.sgd import Curve

CURVE = Curve([0.1, 0.2, 0.3], [2.3, 1.2, 0.7], [0.1, 0.6, 0.9])
RUN = Run(
    name="training",
    algorithm="in-network",
    workers=8,
    loss=0.0,
    elements=19211,
    all_reduces=3,
    seconds=Seconds(0.012, 0.015),
    goodput_bits_per_second=51e6,
    wire_bytes_per_worker=165e3,
    retransmissions=0,
    max_abs_error=1e-8,
    error_bound=2e-8,
    violations=0,
    accuracy=0.9,
    reference_accuracy=0.91,
    engine="embedded",
    link_bits_per_second=100_000_000,
    curve=CURVE,
)
RING = replace(RUN, algorithm="ring", seconds=Seconds(0.02, 0.03), wire_bytes_per_worker=290e3)
LOSSY = replace(RUN, loss=0.01, retransmissions=93)
BARE = replace(RUN, name="4 MB", accuracy=None, reference_accuracy=None, curve=None)


def test_the_summary_holds_each_run_and_the_machine(tmp_path: Path) -> None:
    write_summary([RUN, BARE], tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    first, second = summary["runs"]
    assert first["algorithm"] == "in-network"
    assert first["seconds"] == {"median": 0.012, "p95": 0.015}
    assert (first["accuracy"], second["accuracy"]) == (0.9, None)
    assert "curve" not in first
    assert summary["machine"]["cores"] >= 1


def test_the_csv_has_a_row_for_each_run(tmp_path: Path) -> None:
    write_summary([RUN, RING, LOSSY], tmp_path)
    with (tmp_path / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["algorithm"] for row in rows] == ["in-network", "ring", "in-network"]
    assert [float(row["seconds_median"]) for row in rows] == [0.012, 0.02, 0.012]


def test_curves_are_written_step_by_step(tmp_path: Path) -> None:
    write_curves([RUN, BARE], tmp_path)
    with (tmp_path / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], row["step"], float(row["accuracy"])) for row in rows] == [
        ("training, in-network", str(step), accuracy) for step, accuracy in enumerate(CURVE.accuracy, start=1)
    ]


def test_the_table_has_a_row_for_each_run_and_marks_what_is_out_of_bounds() -> None:
    console = Console(width=160, force_terminal=False, record=True)
    console.print(table([RUN, RING, replace(LOSSY, violations=3)]))
    text = console.export_text(clear=False)
    assert text.count("training") == 3
    assert "1.0%" in text
    assert "3 outside" in text


@pytest.mark.parametrize("rate", [100_000_000, None])
def test_figures_are_pictures_of_some_size(tmp_path: Path, rate: int | None) -> None:
    from matplotlib.image import imread

    runs = [replace(run, link_bits_per_second=rate) for run in (RUN, RING, LOSSY)]
    plot_comparison(runs[:2], tmp_path / "comparison.png")
    plot_training(runs, CURVE, tmp_path / "training.png")
    for name in ("comparison.png", "training.png"):
        picture = imread(tmp_path / name)
        assert picture.shape[1] > 1000
        assert np.ptp(picture) > 0.9
