"""Nothing from outside acts on the terminal that verbs write to."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from rich.table import Table

from fanin.cli_errors import complain
from fanin.console import wide
from fanin.output import say

ROOT = Path(__file__).parents[2]
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31mname"


def test_messages_are_cleaned(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE)
    complain("why", HOSTILE)
    told = capsys.readouterr()
    for text in (told.out, told.err):
        assert "name" in text
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)


def test_tables_are_cleaned(monkeypatch: pytest.MonkeyPatch) -> None:
    written = StringIO()
    monkeypatch.setattr(
        wide, "_file", written
    )  # not `file`: that would be restored to what it is for this test
    table = Table(HOSTILE)
    table.add_row(HOSTILE)
    wide.print(table, HOSTILE, markup=False)
    assert written.getvalue().count("owned") == 3
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", written.getvalue())


def test_verbs_write_in_no_other_way() -> None:
    """A new one would show what comes from outside as it is."""
    ways = re.compile(r"typer\.s?echo\(|(?<!_)Console\(|std(out|err)\.write\(", re.MULTILINE)
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "fanin").rglob("*.py")
        if ways.search(path.read_text()) and "templates" not in path.parts
    }
    assert found == {"fanin/output.py"}
