"""Lint finds exactly what the pipeline of a switch chip cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

from fanin.p4compiler import CompileError, lint_file

PROGRAM = """#include <core.p4>
#include <v1model.p4>
header h_t { bit<32> a; bit<32> b; }
struct headers { h_t h; }
struct metadata { }
parser P(packet_in p, out headers hdr, inout metadata m, inout standard_metadata_t s) {
  state start { p.extract(hdr.h); transition accept; }
}
control V(inout headers hdr, inout metadata m) { apply { } }
control I(inout headers hdr, inout metadata m, inout standard_metadata_t s) {
  register<bit<32>>(16) r;
  register<bit<32>>(16) q;
  bit<32> x;
  action drop() { mark_to_drop(s); }
  action write_r() { r.write(hdr.h.a, 1); }
  table t { key = { hdr.h.a: exact; } actions = { write_r; drop; } default_action = drop(); }
  apply {
    s.egress_spec = 2;
    x = 0;
BODY
    hdr.h.b = x;
  }
}
control E(inout headers hdr, inout metadata m, inout standard_metadata_t s) { apply { } }
control D(packet_out p, in headers hdr) { apply { p.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
"""
FIRST = PROGRAM.splitlines().index("BODY") + 1


def found(folder: Path, *body: str) -> list[tuple[str, int]]:
    """Codes, and the lines of the body, from 1."""
    file = folder / "program.p4"
    file.write_text(PROGRAM.replace("BODY", "\n".join(body)))
    misfits, _ = lint_file(file)
    return [(each.code, each.diagnostic.span.line - FIRST + 1) for each in misfits]


@pytest.mark.parametrize(
    ("body", "code", "line"),
    [
        (["x = hdr.h.a * hdr.h.b;"], "P101", 1),
        (["x = hdr.h.a * 10;"], "P101", 1),
        (["if (hdr.h.a * 3 > 7) { x = 1; }"], "P101", 1),
        (["x = hdr.h.a / 10;"], "P102", 1),
        (["x = hdr.h.a % 8;"], "P102", 1),
        (["for (bit<8> i = 0; i < 4; i = i + 1) {", "x = x + 1;", "}"], "P103", 1),
        (["r.read(x, 1);", "r.read(x, 2);"], "P104", 2),
        (["r.write(1, x);", "r.write(1, x);"], "P104", 2),
        (["r.write(1, x);", "r.read(x, 1);"], "P104", 2),
        (["r.read(x, 1);", "r.write(2, x);"], "P104", 2),
        (["r.read(x, 1);", "r.write(1, x);", "if (x > 3) {", "r.write(1, 0);", "}"], "P104", 4),
        (["if (hdr.h.a > 3) { r.write(1, 0); }", "r.write(1, x);"], "P104", 2),
    ],
)
def test_what_does_not_fit_is_found_at_its_line(
    tmp_path: Path, body: list[str], code: str, line: int
) -> None:
    assert found(tmp_path, *body) == [(code, line)]


def test_an_access_in_a_table_counts(tmp_path: Path) -> None:
    [(code, _)] = found(tmp_path, "r.write(1, x);", "t.apply();")
    assert code == "P104"


@pytest.mark.parametrize(
    "body",
    [
        ["x = hdr.h.a + hdr.h.b;"],
        ["x = 3 * 7 / 2;"],  # known to the compiler
        ["x = hdr.h.a << 3 | hdr.h.b >> 2;"],
        ["r.read(x, hdr.h.a);", "r.write(hdr.h.a, x + 1);"],
        ["r.read(x, 1);", "q.read(x, 1);"],
        ["if (hdr.h.a > 3) { r.write(1, 0); } else { r.write(2, 0); }"],
        ["if (hdr.h.a > 3) { r.write(1, 0); exit; }", "r.write(2, 0);"],
        ["t.apply();"],
    ],
)
def test_what_fits_is_not_reported(tmp_path: Path, body: list[str]) -> None:
    assert found(tmp_path, *body) == []


def test_a_program_without_one_of_its_lines_is_no_traceback(tmp_path: Path) -> None:
    lines = PROGRAM.replace("BODY", "r.read(x, 1); r.write(1, x * 3);").splitlines()
    file = tmp_path / "program.p4"
    refused = 0
    for number in range(len(lines)):
        file.write_text("\n".join(lines[:number] + lines[number + 1 :]))
        try:
            lint_file(file)
        except CompileError:
            refused += 1
    assert 10 < refused < len(lines)
