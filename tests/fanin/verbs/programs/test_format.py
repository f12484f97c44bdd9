"""`fanin format`: files, standard input, --check and --diff."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fanin.cli import app

PLAIN, LAID_OUT = "const bit<8>  A=1;\n", "const bit<8> A = 1;\n"


def run(*words: str | Path, status: int = 0, given: str | bytes | None = None) -> Result:
    done = CliRunner().invoke(app, ["format", *map(str, words)], input=given)
    assert done.exit_code == status, done.output
    return done


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "sub" / "x.p4"
    file.parent.mkdir()
    file.write_text(PLAIN)
    file.chmod(0o640)
    return file


def test_files_and_folders_are_rewritten_once(program: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text(PLAIN)
    assert run(tmp_path).stdout == f"formatted {program}\n"
    assert program.read_text() == LAID_OUT
    assert program.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "notes.txt").read_text() == PLAIN
    assert sorted(program.parent.iterdir()) == [program]
    assert run(program).output == ""


def test_check_and_diff_write_nothing(program: Path) -> None:
    assert f"fanin format {program}" in run("--check", program, status=1).stdout
    shown = run("--diff", program, status=1).stdout
    assert f"-{PLAIN}+{LAID_OUT}" in shown
    assert program.read_text() == PLAIN
    run(program)
    assert run("--check", "--diff", program).output == ""


def test_standard_input_goes_to_standard_output() -> None:
    assert run("-", given=PLAIN).stdout == LAID_OUT
    assert run("-", "--check", given=PLAIN, status=1).stdout.startswith("<stdin>: not in the style")


def test_what_cannot_be_formatted_stays_as_it_is(tmp_path: Path) -> None:
    good, bad, other = tmp_path / "a.p4", tmp_path / "b.p4", tmp_path / "c.p4"
    good.write_text(PLAIN)
    bad.write_text("control {")
    other.write_bytes(b"// caf\xe9\n")
    said = run(bad, other, tmp_path / "none.p4", good, status=2).output
    assert f"{bad}:1:9: error: this '{{' is never closed" in said
    assert f"{other}: byte 6 is not UTF-8" in said
    assert f"{tmp_path / 'none.p4'}: cannot be read: No such file" in said
    assert (good.read_text(), bad.read_text(), other.read_bytes()) == (LAID_OUT, "control {", b"// caf\xe9\n")
