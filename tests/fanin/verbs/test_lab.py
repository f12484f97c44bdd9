"""`fanin lab`, as students and teachers type it."""

from __future__ import annotations

import csv
import errno
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fanin.classroom import confine
from fanin.classroom.manifest import CLONE, LABS
from fanin.cli import app
from fanin.testbed.sandbox import SandboxError

SOLUTION = LABS / "09-quantization" / "solution" / "quantization.py"


def lab(*words: str | Path, status: int = 0) -> Result:
    done = CliRunner().invoke(app, ["lab", *map(str, words)])
    assert done.exit_code == status, done.output
    return done


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_list_has_every_lab() -> None:
    records = [json.loads(line) for line in lab("list", "--json").stdout.splitlines()]
    assert [record["lab"] for record in records] == sorted(
        each.parent.name for each in LABS.glob("*/lab.toml")
    )
    assert "Forwarding and ARP" in lab("list").stdout


@pytest.mark.slow
def test_entries_that_do_not_fit_the_program_are_repaired_before_any_hint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab("start", "forwarding")
    monkeypatch.chdir("01-forwarding")
    controller = Path("controller.py")
    controller.write_text(controller.read_text().replace("MyIngress.ipv4_lpm", "ipv4_lpm"))
    said = lab("check", status=1).stdout
    assert "table ipv4_lpm does not exist; there are MyIngress.ipv4_lpm" in said
    assert "repair this first" in said
    assert "hint" not in said


@pytest.mark.slow
def test_a_check_and_each_hint_begin_with_what_the_program_did(monkeypatch: pytest.MonkeyPatch) -> None:
    lab("start", "forwarding")
    monkeypatch.chdir("01-forwarding")
    cause = "your program: mark_to_drop drops the packet (forwarding.p4:76): "
    checked = lab("check", status=1).stdout
    assert checked.index(cause) < checked.index("hint 1 of 4: Does the trace say `hit` or `miss`?")
    assert lab("hint").stdout.startswith(cause)


@pytest.mark.slow
def test_a_student_starts_a_lab_and_solves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said = lab("start", "quantization").stdout
    assert "cd 09-quantization && fanin lab check" in said
    monkeypatch.chdir("09-quantization")
    assert sorted(each.name for each in Path().iterdir()) == [
        ".fanin-lab.json",
        "README.md",
        "quantization.py",
    ]

    assert "no test has failed" in lab("hint", status=1).output
    skeleton = Path("quantization.py").read_text()
    Path("quantization.py").write_text("oops(")
    said = lab("check", status=1).stdout
    assert "repair this first" in said
    assert "hint" not in said
    assert "first repair what fanin lab check has reported" in lab("hint", status=1).output
    Path("quantization.py").write_text(skeleton)
    said = lab("check", status=1).stdout
    assert "✗ The exponent is the smallest that bounds all values\n  1. exponent([0.75])" in said
    assert "it is -126, expected 0" in said
    for _ in range(2):  # as often as the check fails
        said = lab("check", status=1).stdout
        assert "hint 1 of 3: Which e bounds a single value?" in said
        assert "for a clearer one: fanin lab hint" in said
    assert "3 of 3: Take the maximum" in (lab("hint").stdout + lab("hint").stdout)
    said = lab("check", status=1).stdout
    assert "hint 3 of 3: Take the maximum" in said
    assert "for all hints: fanin lab hint" in said
    last = lab("hint").stdout
    assert "see quantization.py: TODO 1" in last
    assert "this was the last hint" in last
    assert "in another way" not in last

    Path("quantization.py").write_text(skeleton.replace("return SMALLEST", "return 5"))
    said = lab("check", status=1).stdout
    assert "it is 5, expected 0" in said
    assert "this test now fails in another way than when you got the last hint" in said
    assert "hint 3 of 3" not in said
    last = lab("hint").stdout
    assert "3 of 3: Take the maximum" in last
    assert "the test now fails in another way than when you got the last hint" in last

    before = Path("quantization.py").read_text()
    lab("solution")
    assert Path("quantization.py").read_text() == before
    shutil.copyfile("solution/quantization.py", "quantization.py")
    said = lab("check").stdout
    assert "6 of 6 tests pass" in said
    assert "next: 10-reordering" in said
    records = [json.loads(line) for line in lab("check", "--json").stdout.splitlines()]
    assert {record["problem"] for record in records} == {None}
    assert re.search(r"^09-quantization +Quantization +6 of 6 +60$", lab("list").stdout, re.M)


def test_a_lab_is_found_from_the_folders_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "passed here" not in lab("list").stdout
    lab("start", "1")
    lab("start", "1", "again")
    listed = {
        record["lab"]: record["started"]
        for record in map(json.loads, lab("list", "--json").stdout.splitlines())
    }
    assert [each["folder"] for each in listed["01-forwarding"]] == ["01-forwarding", "again"]
    assert listed["02-counters"] == []
    monkeypatch.setenv("COLUMNS", "120")
    assert "started, started in again" in lab("list").stdout
    assert "there are 01-forwarding, again; type: cd 01-forwarding" in lab("check", status=2).output
    lab("solution", "01-forwarding")
    monkeypatch.chdir("01-forwarding/solution")
    assert "no lab was started here; type: cd .." in lab("check", status=2).output
    said = " ".join(lab("start", "2", status=2).output.split())
    assert "the folder of another lab; type: cd ../.. && fanin lab start 2" in said
    assert not Path("02-counters").exists()
    assert "started, started in again" in lab("list").stdout


def test_a_lab_can_be_started_by_number_in_a_folder_with_another_name_but_not_twice() -> None:
    lab("start", "1", "my-router")
    assert Path("my-router", "forwarding.p4").exists()
    assert "my-router exists already" in lab("start", "1", "my-router", status=2).output
    assert "no such lab" in lab("start", "unheard-of", status=2).output
    assert "no lab was started here" in lab("check", status=2).output


def test_a_lab_is_not_started_inside_of_fanin_itself_unless_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(LABS)
    assert "fanin lab start 1 ~/01-forwarding" in lab("start", "1", status=2).output
    assert not Path("01-forwarding", ".fanin-lab.json").exists()
    lab("start", "1", tmp_path / "mine")


@pytest.mark.parametrize("what", ["start", "new", "solution"])
def test_without_room_a_folder_says_why(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lab("start", "1", "mine")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil.copytree, "__defaults__", (False, None, full, False, False))
    arguments = {"start": ["1", "more"], "new": ["more"], "solution": ["mine"]}[what]
    assert "No space left on device" in lab(what, *arguments, status=1 if what == "solution" else 2).output
    assert not Path("more").exists()


def test_a_damaged_state_is_reported() -> None:
    lab("start", "1", "mine")
    Path("mine", ".fanin-lab.json").write_text("{")
    assert "start the lab again" in lab("check", "mine", status=2).output


@pytest.mark.few(0)
@pytest.mark.slow
def test_a_new_lab_is_proved_started_and_marked() -> None:
    lab("new", "my-lab")
    assert "exists already" in lab("new", "my-lab", status=2).output
    said = lab("verify", "my-lab").stdout
    assert "✓ the solution passes" in said
    assert "✗" not in said
    lab("start", "my-lab", "mine")
    assert "1 of 2 tests pass" in lab("check", "mine", status=1).stdout

    try:
        confine.require_sandboxes()
    except SandboxError as error:
        pytest.skip(str(error))
    for name, folder in (("ann", "solution"), ("bob", "skeleton")):
        shutil.copytree(Path("my-lab", folder), Path("submissions", name))
    for name in ("ann.zip", "eve.zip"):  # ann's is unpacked next to it
        Path("submissions", name).write_bytes(b"PK")
    marked = lab("grade", "submissions", "--lab", "my-lab", "--seed", 7, "--gradescope", "results")
    assert "ann: 4 of 4" in marked.stdout
    assert "bob: 1 of 4" in marked.stdout
    assert "not marked, since they are not unpacked: eve.zip" in marked.stderr
    first = Path("grades-my-lab.csv").read_text() + "eve was ill"
    Path("grades-my-lab.csv").write_text(first)
    Path("grades-my-lab-1.csv").write_text("another table")
    marked = lab("grade", "submissions", "--lab", "my-lab", "--seed", 7, "--json")
    assert (
        "grades-my-lab-2.csv: the table of an earlier marking, which was grades-my-lab.csv" in marked.stderr
    )
    assert Path("grades-my-lab-1.csv").read_text() == "another table"
    assert Path("grades-my-lab-2.csv").read_text() == first
    records = marked.stdout.splitlines()
    assert json.loads(records[0]) == {
        "student": "ann", "points": 4, "of": 4, "passed": ["reaches", "unknown", "at_random"], "note": "", "seed": 7,
    }  # fmt: skip
    rows = list(csv.DictReader(Path("grades-my-lab.csv").read_text().splitlines()))
    assert [(row["student"], row["points"]) for row in rows] == [("ann", "4"), ("bob", "1"), ("eve.zip", "")]
    assert json.loads(Path("results", "ann.json").read_text())["score"] == 4


@pytest.mark.parametrize(
    "words", [["quantization"], ["quantization", "docs/mine"], ["quantization", CLONE / "mine"]]
)
def test_files_of_students_are_kept_apart_from_fanins(
    monkeypatch: pytest.MonkeyPatch, words: list[str | Path]
) -> None:
    monkeypatch.chdir(CLONE)
    said = " ".join(lab("start", *words, status=2).output.split())
    assert "would lie in the files of fanin itself; keep yours apart: fanin lab start quantization ~/" in said
    assert not Path(words[-1]).exists()


@pytest.mark.slow
def test_a_lab_with_a_mistake_is_not_proved() -> None:
    lab("new", "my-lab")
    manifest = Path("my-lab", "lab.toml")
    manifest.write_text(manifest.read_text().replace("TODO 1", "TODO 9"))
    shutil.copytree(Path("my-lab", "skeleton"), Path("my-lab", "solution"), dirs_exist_ok=True)
    found = lab("verify", "my-lab", status=1)
    assert "3 problems in my-lab" in found.stderr
    assert "✗ the solution passes: fails reaches" in found.stdout
    assert "  1. " in found.stdout  # the story of the first test that it fails


def test_without_sandboxes_nothing_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise SandboxError("no user namespaces here; run it as root")

    monkeypatch.setattr(confine, "require_sandboxes", refuse)
    Path("submissions", "ann").mkdir(parents=True)
    Path("submissions", "ann", "forwarding.p4").touch()
    said = lab("grade", "submissions", "--lab", "1", status=1).output
    assert "no user namespaces here; run it as root" in said
    assert not list(Path().glob("*.csv"))


def test_marks_of_other_submissions_do_not_stay_between_new_ones() -> None:
    for file in ("submissions/ann/forwarding.p4", "results/ann.json", "results/bob.json"):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).touch()
    said = lab("grade", "submissions", "--lab", "1", "--gradescope", "results", status=2).output
    assert "results has results of other submissions: bob.json; remove them" in " ".join(said.split())


def test_marks_that_cannot_be_written_are_refused_before_anything_is_marked(tmp_path: Path) -> None:
    for option in ("--csv", "--gradescope"):
        said = lab("grade", tmp_path, "--lab", "1", option, "/proc/nowhere/marks", status=2).output
        assert "cannot be written" in " ".join(said.split())
