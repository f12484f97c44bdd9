"""Notebooks run from their first cell to their last, and what each is about is to be seen there."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from fanin.experiments.notebook import PointError, run
from fanin.experiments.scenario.file import ScenarioError

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials" / "notebooks"


def defined_by(name: str) -> Any:
    """Return what the cells of a notebook define, as they are when it is opened."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    _, definitions = module.app.run()
    return definitions


@pytest.mark.slow
def test_window_says_how_many_slots_are_enough() -> None:
    found = defined_by("window")
    times = {row["window"]: row["median_seconds"] for row in found["found"].rows}
    assert times[16] > 1.7 * times[32]
    assert times[32] > 1.7 * times[64]
    assert found["enough"] == pytest.approx(
        500, rel=0.05
    )  # docs/tutorials/lessons/window.md: 45 us / 0.0899 us


@pytest.mark.few(0)
@pytest.mark.slow
def test_loss_costs_go_back_n_most() -> None:
    times = defined_by("loss")["times"]
    assert times["ring, go-back-N"] > max(times["in-network"], times["ring, selective repeat"]) > 1


@pytest.mark.few(0)
@pytest.mark.slow
def test_ecmp_takes_longer_than_spraying_where_flows_meet() -> None:
    found = defined_by("ecmp")
    assert any(choice.most > choice.even for choice in found["choices"])
    assert found["seconds"]["ecmp"] > 1.2 * found["seconds"]["spray"]


def test_every_notebook_has_a_test_and_a_line_in_the_documents() -> None:
    document = (FOLDER.parent / "lessons.md").read_text()
    for notebook in FOLDER.glob("*.py"):
        assert f"marimo edit docs/tutorials/notebooks/{notebook.name}" in document
        assert any(name.startswith(f"test_{notebook.stem}_") for name in globals())


def test_live_points_and_failed_ones_are_refused_by_name() -> None:
    with pytest.raises(ScenarioError, match=r"small-live: world: is live"):
        run("scenario:small-live")
    with pytest.raises(PointError, match=r"lesson:window: .*nothing new for 30 s"):
        run("lesson:window", "size=4 kB", "window=16", "delay=1 us", "loss=1")
