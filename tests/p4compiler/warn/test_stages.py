"""Lint counts steps that depend on each other, and nothing else: how many stages a body needs."""

from __future__ import annotations

from pathlib import Path

import pytest

import fanin
from fanin.p4compiler import lint_file
from fanin.p4compiler.warn.stages import STAGES

ROOT = Path(fanin.__file__).parent
OURS = [
    ROOT / "p4src" / "fanin.p4",
    *sorted((ROOT / "labs").glob("*/solution/*.p4")),
    *sorted((ROOT / "examples").glob("*/*.p4")),
]
PROGRAM = """#include <core.p4>
#include <v1model.p4>
header h_t { bit<32> a; bit<32> b; bit<32> c; bit<32> d; }
struct headers { h_t h; h_t g; }
struct metadata { }
parser P(packet_in p, out headers hdr, inout metadata m, inout standard_metadata_t s) {
  state start { p.extract(hdr.h); p.extract(hdr.g); transition accept; }
}
control V(inout headers hdr, inout metadata m) { apply { } }
control Plus(inout bit<32> value, in bit<32> more) { apply { value = value - more; } }
control I(inout headers hdr, inout metadata m, inout standard_metadata_t s) {
  register<bit<32>>(16) r;
  register<bit<32>>(16) q;
  Plus() plus;
  bit<32> x;
  bit<32> y;
  action put(bit<32> value) { hdr.h.b = value; }
  action more(bit<32> value) { hdr.h.c = value; }
  action drop() { mark_to_drop(s); }
  table t { key = { hdr.h.a: exact; } actions = { put; drop; } default_action = drop(); }
  table u { key = { hdr.h.b: exact; } actions = { more; drop; } default_action = drop(); }
  apply {
    s.egress_spec = 2;
    x = hdr.h.a;
    y = hdr.h.b;
BODY
    hdr.h.d = x;
  }
}
control E(inout headers hdr, inout metadata m, inout standard_metadata_t s) { apply { } }
control D(packet_out p, in headers hdr) { apply { p.emit(hdr.h); p.emit(hdr.g); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
"""


def stages(folder: Path, *body: str) -> int:
    """The fewest stages in which lint finds room for a body."""
    file = folder / "program.p4"
    file.write_text(PROGRAM.replace("BODY", "\n".join(body)))
    fits = [n for n in range(1, 9) if not any(m.code == "P105" for m in lint_file(file, stages=n)[0])]
    assert fits == [*range(fits[0], 9)]
    return fits[0]


@pytest.mark.parametrize(
    ("body", "needed"),
    [
        (["x = x - y;"], 1),
        (["x = x - y;", "x = x >> 3;", "x = x ^ (x << 2);"], 3),
        (["x = x - y;", "y = y >> 3;", "hdr.h.c = 7;"], 1),  # independent
        (["x = x - y;", "y = x;", "y = y >> 1;"], 2),  # a copy is free
        (["x = x - y;", "x = hdr.h.a;", "x = x - 1;"], 1),  # what is overwritten does not count
        (["x = x + y;", "x = x + hdr.h.c;", "x = x + hdr.h.d;"], 1),  # a sum is a tree
        (["x = x - y;", "if (x > 3) { y = 1; }", "hdr.h.c = y >> 1;"], 3),
        (["if (x > 3) { y = y >> 1; } else { y = y >> 2; }"], 1),  # either one or the other
        (["if (x > 3) { y = y - 1; } else { x = x - y; }", "hdr.h.c = y - 2;"], 2),
        (["t.apply();"], 1),
        (["t.apply();", "u.apply();"], 2),
        (["u.apply();", "t.apply();"], 1),  # u does not need what t sets
        (["t.apply();", "u.apply();", "x = hdr.h.c >> 1;"], 3),
        (["r.read(x, 1);", "x = x + 1;", "if (x > 7) { x = 0; }", "r.write(1, x);"], 1),
        (["r.read(x, 1);", "x = x - 1;", "r.write(1, x);", "q.read(y, x);", "y = y - 1;", "q.write(x, y);"], 2),
        (["r.read(x, 1);", "r.write(1, x);", "x = x - y;"], 2),
        (["plus.apply(x, y);", "x = x >> 1;"], 2),  # parameters are copies
        (["hash(x, HashAlgorithm.crc32, 32w0, { x }, 32w16);", "x = x >> 1;"], 2),
        (["hdr.h.a = x - y;", "hdr.g = hdr.h;", "hdr.h.c = hdr.g.a >> 1;"], 2),  # a whole header
        (["hdr.h.a[7:0] = x[7:0] - y[7:0];", "hdr.h.c = hdr.h.a >> 1;"], 2),
        (["exit;", "x = x - y;", "x = x >> 3;"], 1),
    ],
)  # fmt: skip
def test_the_stages_of_a_body(tmp_path: Path, body: list[str], needed: int) -> None:
    assert stages(tmp_path, *body) == needed


def test_a_chain_is_reported_once_where_it_becomes_too_long(tmp_path: Path) -> None:
    file = tmp_path / "program.p4"
    file.write_text(PROGRAM.replace("BODY", "\n".join(["x = x >> 1;"] * (STAGES + 3))))
    [found] = [each for each in lint_file(file)[0] if each.code == "P105"]
    assert found.diagnostic.span.line == PROGRAM.splitlines().index("BODY") + 1 + STAGES
    assert f"'x' needs stage {STAGES + 1}" in found.diagnostic.message
    assert f"has {STAGES} stages" in found.diagnostic.message


def test_a_loop_is_not_counted(tmp_path: Path) -> None:
    assert stages(tmp_path, "for (bit<8> i = 0; i < 4; i = i + 1) {", "x = x >> 1;", "}") == 1


@pytest.mark.parametrize("program", OURS, ids=lambda file: f"{file.parent.parent.name}-{file.stem}")
def test_our_programs_have_no_chain_that_is_too_long(program: Path) -> None:
    assert [each for each in lint_file(program)[0] if each.code == "P105"] == []
