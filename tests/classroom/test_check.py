"""Checks of a student's folder: what a failure tells, and what student's code may do to the test."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from fanin.classroom import student
from fanin.classroom.check import check
from fanin.classroom.manifest import Lab
from fanin.classroom.story import ExpectationError, Outcome, outcome_from, told
from tests.classroom.small_lab import changed, small_lab

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return small_lab(tmp_path_factory.mktemp("labs") / "small")


def outcome(lab: Lab, folder: Path, test: str = "reaches") -> Outcome:
    (found,) = check(lab, folder, hidden=True, only=test)
    return found


def failure(lab: Lab, folder: Path, test: str = "reaches") -> str:
    found = outcome(lab, folder, test)
    assert not found.passed
    return told(found)


def test_the_solution_passes_and_hidden_tests_run_only_when_asked_for(lab: Lab) -> None:
    assert [(each.test, each.passed) for each in check(lab, lab.solution)] == [
        ("reaches", True),
        ("unknown", True),
    ]
    assert [each.test for each in check(lab, lab.solution, hidden=True)][-1] == "at_random"


def test_what_is_compiled_afterwards_is_compiled_as_for_other_users(lab: Lab) -> None:
    before = dict(os.environ)
    assert outcome(lab, lab.solution).passed
    assert dict(os.environ) == before


def test_a_failure_has_the_steps_the_packet_and_the_line_of_the_program(lab: Lab, tmp_path: Path) -> None:
    folder = changed(
        lab, tmp_path / "mine", "program.p4", "default_action = drop();", "default_action = forward(2);"
    )
    text = failure(lab, folder, "unknown")
    assert text.splitlines()[:4] == [
        "  1. entries() of your controller.py is called with three hosts",
        "  2. the switch gets what controller.py: entries() returned: 3 entries",
        "  3. host 1 sends a frame to a host that does not exist: "
        "02:00:00:00:00:01 > 02:00:00:00:00:77 (0x88b5) / Raw arrives at port 1",
        "     expected that the switch drops it; the switch sent 19 bytes to port 2",
    ]
    lines = (folder / "program.p4").read_text().splitlines()
    line = next(number for number, line in enumerate(lines, 1) if "table ethernet_host" in line)
    assert f"table MyIngress.ethernet_host: miss  [program.p4:{line}]" in text
    assert "action MyIngress.forward(port=2)" in text


def test_a_wrong_field_is_named_with_both_values(lab: Lab, tmp_path: Path) -> None:
    folder = changed(
        lab,
        tmp_path / "mine",
        "program.p4",
        "standard.egress_spec = port;",
        "standard.egress_spec = port; hdr.ethernet.source = 0x020000000099; hdr.ethernet.type = 0x0800;",
    )
    rows = outcome(lab, folder).problem.rows  # type: ignore[union-attr]
    assert [(row.name, row.expected, row.actual) for row in rows] == [
        ("ethernet.source", "02:00:00:00:00:01", "02:00:00:00:00:99"),
        ("ethernet.type", "0x88b5", "0x0800"),
    ]
    assert "  standard.egress_spec = 2  [program.p4:" in told(outcome(lab, folder))  # assignments, too


def test_errors_of_the_compiler_have_their_line(lab: Lab, tmp_path: Path) -> None:
    folder = changed(
        lab, tmp_path / "mine", "program.p4", "standard.egress_spec = port;", "standard.egress = port;"
    )
    line = (folder / "program.p4").read_text().splitlines().index("        standard.egress = port;") + 1
    text = failure(lab, folder)
    assert "program.p4 does not compile" in text
    assert f"program.p4:{line}:" in text


@pytest.mark.parametrize(
    ("by", "told_of"),
    [
        ("raise ValueError('my mistake')", "ValueError: my mistake\n     controller.py:8: raise ValueError"),
        ("import sys; sys.exit('enough')", "SystemExit: enough"),
        ("import os; os._exit(3)", "controller.py: entries(): its process ended"),
        ("return {1, 2}", "a set cannot be handed over"),
        ("return {'entries': [{'table': 'no'}]}", "controller.py: entries(): entries.0.match"),
        ("return {'entries': 5}", "controller.py: entries(): entries"),
        ("return {'groups': {1: [2]}}", "the form is {'groups': {1: [[PORT, 0], [PORT, 0]]}}"),
        ("return None", "controller.py: entries() must return a dictionary like {'entries': [{'table': …, "),
        ("return None", "not None: has it a return?"),
        ("return [1]", "not a list"),
        ("return {'entry': []}", "entries(): there is no entry; the names are entries, groups, sessions"),
        (
            "return {'entries': [{'table': 't', 'match': {}, 'action': 'a', 'parameters': {}}]}",
            "there is no entries.0.parameters; the names are table, match, action, params, priority",
        ),
        (
            "return {'entries': [{'table': 'MyIngress.absent', 'match': {}, 'action': 'x'}]}",
            "table MyIngress.absent does not exist",
        ),
        ("print('{\"value\": 1}'); return {'entries': []}", "expected a packet at port 2"),
    ],
)
def test_what_students_python_does_is_reported(lab: Lab, tmp_path: Path, by: str, told_of: str) -> None:
    folder = changed(lab, tmp_path / "mine", "controller.py", "    return {\n", f"    {by}\n    return {{\n")
    assert told_of in failure(lab, folder)


def test_a_call_that_does_not_return_ends(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(student, "CALL_SECONDS", 0.5)
    folder = changed(
        lab, tmp_path / "mine", "controller.py", "    return {\n", "    while True: pass\n    return {\n"
    )
    assert "controller.py: entries() did not return within 0.5 s" in failure(lab, folder)


def test_after_a_call_that_does_not_return_others_are_given_less_time(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(student, "CALL_SECONDS", 0.5)
    monkeypatch.setattr(student, "SECONDS_AFTER_A_HANG", 0.1)
    folder = changed(
        lab, tmp_path / "mine", "controller.py", "    return {\n", "    while True: pass\n    return {\n"
    )
    with student.student_programs(folder) as programs:
        for seconds in ("0.5", "0.1", "0.1"):
            program = programs.start("controller.py")
            with (
                closing(program),
                pytest.raises(ExpectationError, match=f"did not return within {seconds} s"),
            ):
                program.call("entries", [])


CHECKING = """
import sys
from pathlib import Path
from fanin.classroom.student import student_programs
with student_programs(Path(sys.argv[1])) as programs:
    programs.start("controller.py").call("entries")
"""


def test_what_loops_ends_with_a_check_that_is_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "process")
    (tmp_path / "controller.py").write_text(
        f"import os\nopen({str(tmp_path / 'process')!r}, 'w').write(str(os.getpid()))\nwhile True: pass\n"
    )
    with subprocess.Popen([sys.executable, "-c", CHECKING, str(tmp_path)]) as checking:
        looping = os.pidfd_open(int((tmp_path / "process").read_text()))
        checking.kill()
    try:
        ended, _, _ = select.select([looping], [], [], 60)
        assert ended
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(looping, signal.SIGKILL)
        os.close(looping)


def test_a_missing_file_is_named(lab: Lab, tmp_path: Path) -> None:
    folder = changed(lab, tmp_path / "mine", "program.p4", "// A switch", "// My switch")
    (folder / "controller.py").unlink()
    assert "controller.py is missing" in failure(lab, folder)
    (folder / "program.p4").unlink()
    assert "program.p4: cannot be read" in failure(lab, folder)


def test_the_same_seed_draws_the_same(lab: Lab) -> None:
    once, again = (outcome(lab, lab.solution, "at_random").steps for _ in range(2))
    assert once == again
    (other,) = check(lab, lab.solution, hidden=True, only="at_random", seed=1)
    assert other.steps != once


def test_an_outcome_survives_json(lab: Lab, tmp_path: Path) -> None:
    found = outcome(lab, changed(lab, tmp_path / "mine", "program.p4", "= port;", "= port + 1;"))
    assert outcome_from(found.document()) == found
