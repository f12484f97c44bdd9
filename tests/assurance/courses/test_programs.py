"""The programs of a repository are found, compiled, and counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from fanin.assurance.courses.programs import compile_all, main

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
