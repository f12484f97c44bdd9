"""Scenarios that come with fanin are found by name, and those names that are none are answered with all."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from fanin.experiments.scenario.file import ScenarioError
from fanin.experiments.scenario.shipped import scenario_file

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[3] / "scenarios"


def test_each_file_has_a_name() -> None:
    files = {scenario_file(f"lesson:{path.stem}").resolve() for path in FOLDER.glob("lessons/*.toml")}
    files |= {scenario_file(f"paper:{path.stem}").resolve() for path in FOLDER.glob("papers/*.toml")}
    files |= {scenario_file(f"scenario:{path.stem}").resolve() for path in FOLDER.glob("*.toml")}
    assert files == {
        path for path in FOLDER.rglob("*.toml") if path.parent.name not in ("networks", "protocols")
    }


@pytest.mark.parametrize("given", ["try.toml", "lessons/loss.toml", "./lesson:loss", "other:loss"])
def test_what_is_no_name_is_a_file(given: str) -> None:
    assert scenario_file(given) == Path(given)


def test_a_name_without_its_kind_is_answered_with_the_whole_one() -> None:
    with pytest.raises(ScenarioError, match=r"small-live: no such file; .* is scenario:small-live$"):
        scenario_file("small-live")
    with pytest.raises(ScenarioError, match=r"lesson:: the name is missing; these come with fanin:\n"):
        scenario_file("lesson:")


@pytest.mark.parametrize(
    "given", ["lesson:none", "lesson:small-live", "scenario:lessons/loss", "lesson:../small-live"]
)
def test_a_name_that_is_none_is_answered_with_all_there_are(given: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        scenario_file(given)
    first, *lines = str(refused.value).splitlines()
    assert first.startswith(f"{given}: no such scenario; ")
    assert first.endswith(("; these come with fanin:", "? These come with fanin:"))
    names = [line.split()[0] for line in lines]
    assert names == sorted(names)
    assert {tomllib.loads(scenario_file(name).read_text())["description"] for name in names} == {
        line.strip().partition("  ")[2] for line in lines
    }
    assert len(names) == len(
        [*FOLDER.glob("*.toml"), *FOLDER.glob("lessons/*.toml"), *FOLDER.glob("papers/*.toml")]
    )
