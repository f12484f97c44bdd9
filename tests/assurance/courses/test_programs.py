"""The programs of a repository are found, compiled, and counted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fanin.assurance.courses.programs import compile_all, main
from fanin.experiments.scenario.tools import P4C

PROGRAM = Path(__file__).parents[3] / "labs/01-forwarding/solution/forwarding.p4"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a repository with a program, a wrong one, one for another architecture, and a part of a program."""
    folder = tmp_path / "course"
    folder.mkdir()
    program = PROGRAM.read_text()
    (folder / "good.p4").write_text(program + "// Tofino(Pipe()) main;\n")
    (folder / "bad.p4").write_text(f"#ifndef GOOD\nconst bit<8> X = oops;\n#endif\n{program}")
    (folder / "other.p4").write_text("Pipeline(p()) pipe;\nSwitch<a, b>(pipe) main;\n")
    (folder / "part.p4").write_text("header h { bit<8> f; }\n")
    (folder / "loop.p4").symlink_to("loop.p4")
    return folder


def test_programs_are_told_from_parts_and_from_other_architectures(checkout: Path) -> None:
    found = compile_all(checkout, [], {})
    assert [each.name for each in found.compiled] == ["good.p4"]
    assert [each.name for each in found.refused] == ["bad.p4"]
    assert {each.name: name for each, name in found.others.items()} == {"other.p4": "Switch"}


def test_macros_decide_what_is_compiled(checkout: Path) -> None:
    assert not compile_all(checkout, [], {"GOOD": "1"}).refused


def test_the_table_is_followed_by_the_reasons_for_refusals(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(checkout)]) == 0
    said = capsys.readouterr().out
    assert "| course | 2 | 1 | 1 | 1 |" in said
    assert f"\n1 × there is no name …\n  {checkout / 'bad.p4'} (bad.p4:2:18): there is no name 'oops'" in said


# A compiler that refuses every program that is not called bad.p4.
CONTRARY = """
import sys
if not sys.argv[-1].endswith("bad.p4"):
    print("a warning", sys.argv[-1] + "(1): error: not bad", "1 error generated", sep="\\n", file=sys.stderr)
    sys.exit(1)
"""


def test_what_only_one_of_the_compilers_refuses_is_listed(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "contrary.py"
    script.write_text(CONTRARY)
    monkeypatch.setenv("FANIN_P4C", f"{sys.executable} {script}")
    assert main([str(checkout), "--p4c"]) == 0
    said = capsys.readouterr().out
    assert "| course | 2 | 1 | 1 | 1 | 1 | 1 | 1 |" in said
    differences = said.partition("Refused by one of the compilers only:\n")[2].splitlines()
    assert differences == [
        f"  only by us: {checkout / 'bad.p4'}:2:18: error: there is no name 'oops'",
        f"  only by p4c: {checkout / 'good.p4'}(1): error: not bad",
    ]


def test_programs_for_psa_are_compiled_by_the_p4c_for_psa(tmp_path: Path) -> None:
    checkout, commands = tmp_path / "checkout", tmp_path / "commands"
    for folder in (checkout, commands):
        folder.mkdir()
    (checkout / "v1.p4").write_text(PROGRAM.read_text())
    (checkout / "psa.p4").write_text("PSA_Switch(ip, pre, ep, bqe) main;\n")
    for name in ("p4c-bm2-ss", "p4c-bm2-psa"):
        (commands / name).write_text(f"#!/bin/sh\necho error: {name} $1 >&2\nexit 1\n")
        (commands / name).chmod(0o755)
    found = compile_all(checkout, [], {})
    p4c = [str(commands / "p4c-bm2-ss"), "-Iinclude"]
    found.ask_p4c(p4c, [], {})
    by_name = {file.name: error for file, error in found.by_p4c.items()}
    assert by_name == {"v1.p4": "error: p4c-bm2-ss -Iinclude", "psa.p4": "error: p4c-bm2-psa -Iinclude"}
    (commands / "p4c-bm2-psa").unlink()
    found.ask_p4c(p4c, [], {})
    assert {file.name for file in found.by_p4c} == {"v1.p4"}


def test_without_p4c_nothing_is_compiled(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FANIN_P4C", "/no/p4c")
    with pytest.raises(SystemExit):
        main([str(checkout), "--p4c"])
    written = capsys.readouterr()
    assert "p4c is not installed: there is no command /no/p4c" in written.err
    assert not written.out


@pytest.mark.p4c
def test_p4c_agrees_about_a_program_and_a_mistake(checkout: Path) -> None:
    found = compile_all(checkout, [], {})
    found.ask_p4c(P4C.find(), [], {})
    assert [each.name for each in found.refused_by_p4c] == ["bad.p4"]
    assert not found.wrongly_refused
    assert not found.wrongly_compiled
