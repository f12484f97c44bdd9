"""`fanin lint`: findings, their pages and exit statuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

from typer.testing import CliRunner, Result

from fanin.classroom.manifest import LABS
from fanin.cli import app

ROOT = Path(__file__).parents[4]


def lint(*words: str | Path, status: int) -> Result:
    done = CliRunner().invoke(app, ["lint", *map(str, words)])
    assert done.exit_code == status, done.output
    return done


def test_findings_end_with_status_1_and_lead_to_their_page() -> None:
    said = lint(ROOT / "p4src" / "fanin.p4", status=1).stdout
    assert re.search(r"loss\.p4:\d+:\d+: warning: .* multiplies", said)
    assert "P101: see docs/reference/lint.md#p101" in said
    records = [
        json.loads(line) for line in lint(ROOT / "p4src" / "fanin.p4", "--json", status=1).stdout.splitlines()
    ]
    assert {record["code"] for record in records} >= {"P101", "P104"}
    for record in records:
        page, _, heading = record["page"].partition("#")
        text = (ROOT / page).read_text()
        assert f"\n## {heading.upper()}\n" in text if heading else text
        assert (record["line"], record["column"]) > (0, 0)


def test_a_program_that_fits_has_no_findings() -> None:
    solutions = sorted(LABS.glob("0[45]*/solution/*.p4"))
    assert solutions
    assert lint(*solutions, status=0).output == ""


def test_a_program_that_does_not_compile_is_no_traceback(tmp_path: Path) -> None:
    file = tmp_path / "bad.p4"
    file.write_text("control {")
    assert "bad.p4:1:" in lint(file, status=1).output
    file.write_bytes(b"\xff\x00\xfe")
    lint(file, status=1)
