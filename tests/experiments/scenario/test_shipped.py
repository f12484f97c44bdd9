"""Scenarios that are shipped: all are valid, editors find their schema, and small ones run."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import pytest

from fanin.experiments.models.prediction import predicted_call_seconds
from fanin.experiments.results.drawing.rehearsal import rehearsed_row
from fanin.experiments.results.drawing.series import mixed, select
from fanin.experiments.results.files import Journal
from fanin.experiments.scenario.file import load_scenario
from fanin.experiments.scenario.settings import setting_columns
from fanin.experiments.sweep import run_points
from tests.experiments.watch import Watch

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[3] / "scenarios"
SCENARIOS = sorted([*FOLDER.glob("*.toml"), *FOLDER.glob("lessons/*.toml"), *FOLDER.glob("papers/*.toml")])


def test_there_are_some() -> None:
    assert {"small-live", "small-virtual", "scaling", "loss", "oversubscription", "ecmp"} <= {
        s.stem for s in SCENARIOS
    }


@pytest.mark.few(12)
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_each_is_valid_and_draws_settings_that_it_varies(path: Path) -> None:
    scenario = load_scenario(path, predict=predicted_call_seconds)
    assert scenario.frame.description
    plot = scenario.frame.plot
    assert plot is not None
    assert {plot.x, *plot.by} <= {*scenario.varied, *setting_columns(scenario.points[0])}
    assert not mixed(select([rehearsed_row(point) for point in scenario.points], plot.where), plot)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_each_names_its_schema_for_editors(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    assert first.startswith("#:schema ")
    assert (path.parent / first.removeprefix("#:schema ")).resolve() == FOLDER / "scenario.schema.json"


def test_the_small_one_runs(tmp_path: Path) -> None:
    rows = run_points(
        load_scenario(FOLDER / "small-virtual.toml").points, Journal(tmp_path), tmp_path, Watch()
    )
    assert all(row["error"] is None and row["violations"] == 0 for row in rows)


def test_the_example_in_the_docs_is_valid(tmp_path: Path) -> None:
    lines = (FOLDER.parent / "docs" / "how-to" / "scenario.md").read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("    name ="))
    example = tmp_path / "example.toml"
    block = takewhile(lambda line: line.startswith("    ") or not line, lines[begin:])
    example.write_text("\n".join(line.strip() for line in block))
    assert len(load_scenario(example).points) == 12
