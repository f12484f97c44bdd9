"""Every lab is proved: its solution passes, its skeleton and all mutants fail, its hints point somewhere."""

from __future__ import annotations

import json
import random
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from fanin.classroom.check import check
from fanin.classroom.manifest import LABS, Lab, LabError, find_lab, labs, load_lab
from fanin.classroom.story import Story
from fanin.classroom.switch_under_test import SwitchUnderTest, load_program
from fanin.classroom.verify import verify
from tests.classroom.small_lab import small_lab

ALL = [*labs()]
DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "tutorials" / "labs.md").read_text()


def _scope(lab: Lab) -> dict[str, Any]:
    """The functions and classes of a lab's tests.py."""
    scope: dict[str, Any] = {"__name__": "fanin_lab_tests"}
    exec(compile(lab.tests, "tests.py", "exec"), scope)
    return scope


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("lab", ALL, ids=lambda lab: lab.name)
def test_a_lab_is_proved(lab: Lab) -> None:
    assert {what: problem for what, problem in verify(lab) if problem} == {}


def test_every_lab_is_listed_with_its_duration() -> None:
    assert re.findall(r"^\| \[(.+?)\]\(.*\| (\d+) \|$", PAGE, re.M) == [
        (lab.name, str(lab.manifest.minutes)) for lab in ALL
    ]


@pytest.mark.parametrize("lab", ALL, ids=lambda lab: lab.name)
def test_a_readme_has_what_a_student_needs(lab: Lab) -> None:
    text = (lab.folder / "README.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.M)
    assert headings[:4] == ["What you learn", "Background", "The task", "How to check"]
    start, commands, tests = text.partition("## How to check\n\n")[2].split("\n\n")[:3]
    needed = ("`fanin lab start", *(f"`{file}`" for file in lab.manifest.files), "You pass when")
    assert [each for each in needed if each not in " ".join(start.split())] == []
    assert re.findall(r"fanin lab (\w+)", commands) == ["check", "watch", "hint", "solution"]
    assert "without root" in tests
    assert "hint" in tests
    assert (
        re.findall(r"\]\((?!#)[^)]*\)", text) == []
    )  # a student's copy has none of the files that it would lead to
    assert len(lab.manifest.hints) >= 3
    assert len(lab.manifest.mutants) >= 5
    todos = "".join((lab.skeleton / file).read_text() for file in lab.manifest.files)
    assert "TODO" in todos
    assert "TODO" not in "".join((lab.solution / file).read_text() for file in lab.manifest.files)


@pytest.mark.slow
def test_the_recorded_runs_of_lab_12_are_what_its_tests_measure() -> None:
    lab = find_lab("12-slow")
    scope = _scope(lab)
    for number in range(1, 7):
        recorded = (lab.skeleton / "runs" / f"{number}.json").read_text()
        assert json.loads(recorded) == scope["recorded"](number), number


@pytest.mark.slow
def test_the_model_of_lab_10_sends_what_the_switch_of_lab_7_does() -> None:
    scope = _scope(find_lab("10-reordering"))
    draw = random.Random(7)
    engine = load_program(find_lab("7").solution / "aggregate.p4").engine
    late = 0
    for _ in range(30):
        switch, model = SwitchUnderTest(engine.new_instance(), Story()), scope["Untagged"]()
        switch.install({"groups": {1: [[1, 0], [2, 0]]}})
        for _ in range(40):
            rank, chunk = draw.randrange(2), draw.choice([0, 1, 4, 5, 8])
            packet = scope["_packet"](rank, chunk, scope["_value"](rank, chunk))
            sent = switch.send(rank + 1, packet, "a worker sends")
            values = {int.from_bytes(data[22:26]) for _, data in sent}
            total = model.update(rank, chunk, scope["_value"](rank, chunk))
            assert values == (set() if total is None else {total})
            late += total not in (None, scope["_total"](chunk))
    assert late > 0


def test_the_python_of_lab_12_shows_the_share_of_each_link(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = find_lab("12")
    text = (lab.folder / "README.md").read_text()
    code = text[text.index("    import json") : text.index("\n\nChoose your thresholds")]
    monkeypatch.chdir(lab.skeleton)
    exec(compile(textwrap.dedent(code), "README.md", "exec"), {})
    shares = [float(line.split()[2]) for line in capsys.readouterr().out.splitlines()]
    assert len(shares) > 8
    assert all(0 < share < 1.1 for share in shares)


@pytest.mark.slow
def test_the_example_of_a_teachers_own_test_runs() -> None:
    example = re.findall(r"^```python\n(.*?)^```", (DOCS / "how-to" / "class.md").read_text(), re.M | re.S)
    lab = find_lab("forwarding")
    longer = Lab(lab.folder, lab.manifest, f"{lab.tests}\n{''.join(example)}")
    for folder, passed in ((lab.solution, True), (lab.skeleton, False)):
        [outcome] = check(longer, folder, only="secret_route")
        assert (outcome.passed, outcome.points) == (passed, 3)


def test_labs_are_found_by_name_number_word_and_folder() -> None:
    for name in ("01-forwarding", "1", "01", "forwarding", str(LABS / "01-forwarding")):
        assert find_lab(name).name == "01-forwarding"
    with pytest.raises(LabError, match="no-such: no such lab; there are 01-forwarding, "):
        find_lab("no-such")
    with pytest.raises(LabError, match=r"forwardin: no such lab; did you mean 'forwarding'"):
        find_lab("forwardin")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("minutes = 1", "title: Field required"),
        ("title = 3\nminutes = 1\nfiles = ['a']", "title: Input should be a valid string"),
        ("title = 'x'\nminutes = 1\nfiles = ['a']\nkey = 1", "key: Extra inputs are not permitted"),
        ("title =", "Invalid value"),
    ],
)
def test_a_wrong_manifest_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    lab = small_lab(tmp_path / "lab")
    (lab.folder / "lab.toml").write_text(text)
    with pytest.raises(LabError, match=problem):
        load_lab(lab.folder)


def test_tests_that_are_no_python_are_refused_with_their_line(tmp_path: Path) -> None:
    lab = small_lab(tmp_path / "lab")
    number = len(lab.tests.splitlines()) + 1
    (lab.folder / "tests.py").write_text(lab.tests + "oops(\n")
    with pytest.raises(LabError, match=rf"tests\.py:{number}: '\(' was never closed"):
        load_lab(lab.folder)


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "by", "what", "problem"),
    [
        (
            "program.p4: TODO 1",
            "program.p4: TODO 9",
            "the hints for reaches point somewhere",
            "does not have this text",
        ),
        (
            "README.md#background",
            "README.md#nowhere",
            "the hints for unknown point somewhere",
            "no such heading",
        ),
        (
            'fails = "unknown"',
            'fails = "reaches"',
            "mutant fails: floods what is unknown",
            "passes the test reaches",
        ),
        (
            'replace = "for host in hosts"',
            'replace = "host"',
            "mutant fails: forgets a host",
            "times, not once",
        ),
        ('test = "unknown"', 'test = "absent"', "test unknown has hints", "add a table"),
    ],
)
def test_what_is_wrong_with_a_lab_is_found(
    tmp_path: Path, text: str, by: str, what: str, problem: str
) -> None:
    folder = small_lab(tmp_path / "lab").folder
    manifest = (folder / "lab.toml").read_text()
    assert manifest.count(text) == 1
    (folder / "lab.toml").write_text(manifest.replace(text, by))
    assert problem in dict(verify(load_lab(folder)))[what]


@pytest.mark.slow
def test_a_solution_that_fails_and_a_skeleton_that_passes_are_found(tmp_path: Path) -> None:
    lab = small_lab(tmp_path / "lab")
    solution, skeleton = lab.solution.rename(lab.folder / "other"), lab.skeleton
    skeleton.rename(lab.solution)
    solution.rename(lab.skeleton)
    found = dict(verify(lab))
    names, _, story = found["the solution passes"].partition("\n")
    assert names == "fails reaches, at_random"
    assert "  1. " in story
    assert found["the skeleton fails"] == "passes every test"


@pytest.mark.slow
def test_what_costs_nothing_in_lab_12_costs_nothing_whatever_is_drawn() -> None:
    """In the run of this seed, the last packet of a step was lost, and all workers waited for a timeout."""
    lab = find_lab("slow")
    program: dict[str, Any] = {}
    exec(compile(lab.tests, "tests.py", "exec"), program)
    run = program["run_of"]("rare loss", random.Random(610128086))
    assert max(each["computing_seconds"] for each in run["workers"]) > 0.6 * run["seconds"]
