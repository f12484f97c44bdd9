"""`fanin lint`: findings, their pages and exit statuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fanin.classroom.manifest import LABS
from fanin.cli import app
from fanin.p4compiler import WARNINGS, page_of

ROOT = Path(__file__).parents[4]


def lint(*words: str | Path, status: int) -> Result:
    done = CliRunner().invoke(app, ["lint", *map(str, words)])
    assert done.exit_code == status, done.output
    return done


@pytest.mark.slow
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
        assert f"\n## {heading.upper()}\n" in text
        assert (record["line"], record["column"]) > (0, 0)


# A line of router.p4, what stands there instead, and the warning that this brings.
MISTAKES = {
    "invalid-header": ("        meta.flow = 7;", "        hdr.tunnel.dst_id = 3; hdr.tunnel.setValid();"),
    "uninitialized-use": ("        meta.flow = 7;", "        bit<32> none; meta.flow = none;"),
    "unused": ("ipv4_lpm.apply();", ""),
    "unreachable": ("TYPE_IPV4: parse_ipv4;", ""),
    "never-emitted": ("packet.emit(hdr.tunnel);", ""),
}


@pytest.mark.parametrize("code", MISTAKES)
def test_a_mistake_leads_to_the_section_about_it(tmp_path: Path, code: str) -> None:
    text = (ROOT / "tests" / "p4compiler" / "mistakes" / "router.p4").read_text()
    line, instead = MISTAKES[code]
    (tmp_path / "router.p4").write_text(text.replace(line, instead))
    said = lint(tmp_path / "router.p4", status=1).stdout
    assert f"{code}: see docs/reference/messages.md#{code}\n" in said


def test_every_code_has_a_section() -> None:
    for code in (*WARNINGS, "P101", "P102", "P103", "P104", "P105"):
        page, _, heading = page_of(code).partition("#")
        assert re.search(rf"^#+ `?{heading}`?$", (ROOT / page).read_text(), re.MULTILINE | re.IGNORECASE)


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


def test_a_pipeline_with_fewer_stages_has_no_room() -> None:
    [window] = LABS.glob("07*/solution/*.p4")
    lint(window, "--stages", 5, status=0)
    said = lint(window, "--stages", 4, status=1).stdout
    assert "needs stage 5, since so many steps depend on each other, and a pipeline has 4 stages" in said
    assert "P105: see docs/reference/lint.md#p105" in said
