"""Files of one's own on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments.results.files import read_rows
from fanin.cli import app
from tests.experiments.scenario.programs import copy_of_p4src

pytestmark = pytest.mark.slow

SCENARIO = """
name = "try"
size = "4 kB"
[topology.leaf_spine]
spines = 0
leaves = 1
hosts_per_leaf = 2
rate = "10 Gb/s"
"""


def invoke(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*map(str, arguments)])
    return done.exit_code, done.output


def test_a_program_runs_from_whatever_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = copy_of_p4src(tmp_path / "a, b")  # a comma separates values of --set
    file = tmp_path / "scenarios" / "try.toml"
    file.parent.mkdir()
    file.write_text(SCENARIO)
    monkeypatch.chdir(program.parent)
    results = tmp_path / "results"
    status, said = invoke("run", file, "--program", program.name, "--results", results)
    assert status == 0, said
    (row,) = read_rows(results)
    assert (row["program"], row["violations"]) == (str(program), 0)
    monkeypatch.chdir(tmp_path)
    status, said = invoke("rerun", results)
    assert (status, "same" in said) == (0, True), said


@pytest.mark.parametrize("verb", ["run", "sweep", "soak"])
def test_a_program_that_lacks_something_ends_the_command_before_it_begins(tmp_path: Path, verb: str) -> None:
    program = copy_of_p4src(
        tmp_path / "mine",
        ("fanin.p4", "table receivers", "table addresses"),
        ("fanin.p4", "receivers.apply()", "addresses.apply()"),
    )
    file = tmp_path / "try.toml"
    file.write_text(SCENARIO)
    results = tmp_path / "results"
    what = [] if verb == "soak" else [file]
    status, said = invoke(verb, *what, "--program", program, "--results", results)
    assert status == 1
    assert f"fanin {verb}: {program} lacks what the controller writes and reads:\n" in said
    assert "table egress.receivers with the keys" in said
    assert not list(results.glob("results.*"))
