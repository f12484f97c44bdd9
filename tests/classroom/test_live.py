"""The tests of labs in live networks of Mininet: the same verdicts as in virtual time, on our switch and on BMv2."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fanin.classroom.manifest import Lab, find_lab, labs
from fanin.classroom.story import Outcome, outcome_from, told
from tests.classroom.small_lab import changed, small_lab
from tests.fanin.command import run as fanin
from tests.sizes import sized

ALL = [*labs()]
PAGE = (Path(__file__).parents[2] / "docs" / "tutorials" / "labs.md").read_text()


def checked(kind: str, *folders: tuple[Lab, Path, str | None]) -> list[Outcome]:
    """The outcomes of checks, all in the same sandbox."""
    asked = [(str(lab.folder), str(folder), only) for lab, folder, only in folders]
    command = [sys.executable, "-m", "tests.classroom.live_checks", kind, json.dumps(asked)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [outcome_from(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.live
def test_tests_of_labs_have_the_same_verdicts_live(tmp_path: Path) -> None:
    small = small_lab(tmp_path / "lab")
    wrong = changed(
        small, tmp_path / "wrong", "program.p4", "default_action = drop();", "default_action = forward(2);"
    )
    none = changed(small, tmp_path / "none", "program.p4", "standard.egress_spec = port;", "")
    outcomes = checked(
        "embedded",
        (small, small.solution, None),
        (small, wrong, "unknown"),
        (small, none, "reaches"),
    )
    assert [(each.test, each.passed) for each in outcomes] == [
        ("reaches", True),
        ("unknown", True),
        ("at_random", True),
        ("unknown", False),
        ("reaches", False),
    ]
    text = told(outcomes[3])
    assert "expected that the switch drops it; the switch sent 19 bytes to port 2" in text
    assert "action MyIngress.forward(port=2)" in text  # the path of the packet
    assert "expected a packet at port 2" in told(outcomes[4])


@pytest.mark.live
def test_a_student_checks_live(tmp_path: Path) -> None:
    lab = small_lab(tmp_path / "lab")
    fanin("lab", "start", str(lab.folder), "mine", cwd=tmp_path)
    for file in lab.manifest.files:
        (tmp_path / "mine" / file).write_text((lab.solution / file).read_text())
    done = fanin("lab", "check", "mine", "--live", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 tests pass" in done.stdout


@pytest.mark.live
def test_a_missing_switch_or_mininet_is_no_failure_of_the_student(tmp_path: Path) -> None:
    lab = small_lab(tmp_path / "lab")
    fanin("lab", "start", str(lab.folder), "mine", cwd=tmp_path)
    done = fanin(
        "lab", "check", "mine", "--switch", "bmv2", cwd=tmp_path, environment={"FANIN_BMV2": "/nowhere"}
    )
    assert done.returncode == 1
    assert "BMv2 is not installed: there is no command /nowhere" in done.stderr
    assert "✗" not in done.stdout


@pytest.mark.live
@pytest.mark.long
@pytest.mark.parametrize("lab", sized([find_lab("06-loss")], ALL), ids=lambda lab: lab.name)
def test_every_solution_passes_live(lab: Lab) -> None:
    outcomes = checked("embedded", (lab, lab.solution, None))
    assert {each.test: told(each) for each in outcomes if each.problem} == {}
    assert {each.test: each.not_run for each in outcomes if each.not_run} == {}


@pytest.mark.live
@pytest.mark.bmv2
@pytest.mark.parametrize("lab", ALL, ids=lambda lab: lab.name)
def test_every_solution_passes_on_bmv2_as_far_as_the_page_says(lab: Lab) -> None:
    outcomes = checked("bmv2", (lab, lab.solution, None))
    assert {each.test: told(each) for each in outcomes if each.problem} == {}
    passed, count = sum(each.passed for each in outcomes), len(outcomes)
    row = re.search(rf"^\| {lab.name} \| (.*?) \| (.*?) \| (.*?) \|$", PAGE, re.M)
    assert row is not None
    assert row[2] in ("no network needed", f"{passed} of {count}")
