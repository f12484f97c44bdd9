"""The changes of docs/tutorials/tutorial.md work: its P4 program, its test, its scenario, its worker."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fanin.cli import app

ROOT = Path(__file__).parents[1]
TUTORIAL = ROOT / "docs/tutorials/tutorial"


def fanin(*words: object) -> tuple[int, str]:
    """Exit status and output."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output


@pytest.mark.slow
def test_the_counter_is_missing_before_the_change_and_counts_after_it(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "p4src", tmp_path / "p4src")
    command = ("stf", tmp_path / "p4src/fanin.p4", TUTORIAL / "ttl.stf")
    status, said = fanin(*command)
    assert status == 2
    assert "counter ingress.by_ttl does not exist" in said
    subprocess.run(["git", "apply", TUTORIAL / "by_ttl.patch"], cwd=tmp_path, check=True)
    status, said = fanin(*command)
    assert (status, said) == (0, f"PASS {TUTORIAL / 'ttl.stf'}\n")


@pytest.mark.slow
def test_the_scenario_says_what_the_tutorial_says_of_it(tmp_path: Path) -> None:
    """Virtual time is the same everywhere: the line without loss is the line in the text."""
    only = ("--set", "loss=0", "--set", "seed=10", "--set", "algorithm=in-network")
    status, said = fanin("run", TUTORIAL / "loss.toml", *only, "--results", tmp_path)
    assert status == 0, said
    measured = said.split("─\n")[1].splitlines()[0]
    shown = "0%    in-network                    10       "
    [written] = [
        line
        for line in (ROOT / "docs/tutorials/tutorial.md").read_text().splitlines()
        if line.strip().startswith(shown)
    ]
    assert measured.split() == written.split()[-len(measured.split()) :]
    assert (tmp_path / "tutorial.png").exists()


@pytest.mark.parametrize("name", ["sum.py", "ttl.stf"])
def test_the_text_shows_the_files_as_they_are(name: str) -> None:
    indented = "".join(f"    {line}".rstrip() + "\n" for line in (TUTORIAL / name).read_text().splitlines())
    assert indented in (ROOT / "docs/tutorials/tutorial.md").read_text()
