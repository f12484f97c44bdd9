"""Whatever the text is, it is compiled or refused with a place: never another exception."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from p4compiler import CompileError, compile_file

from .conftest import source

PROGRAM = source(
    locals="""register<bit<16>>(8) r; counter(4, CounterType.bytes) c;
        action a(bit<16> v) { meta.x = v; r.write(3, v |+| meta.x); }
        table t { key = { hdr.h.a: lpm; hdr.h.b[3:0]: exact; } actions = { a; } const entries = { (1, 2): a(2); } }""",
    apply="if (t.apply().hit && meta.flag) { c.count((bit<32>)hdr.h.a); } else { switch (meta.y) { 1: { exit; } } }",
    parser="""state start { packet.extract(hdr.h); transition select(hdr.h.a) { 1 &&& 3: start; 4 .. 9: more; } }
        state more { verify(hdr.h.c == 0, error.NoMatch); transition accept; }""",
)
TOKENS = re.findall(r"\s+|\w+|[^\w\s]", PROGRAM)
WRITTEN = [i for i, token in enumerate(TOKENS) if token.strip()]
SPARE = [
    "",
    "8w1",
    "int<8>",
    "hdr",
    "{",
    "}",
    "(",
    ")",
    "&&&",
    "..",
    "_",
    "exit",
    "true",
    '"s"',
    ".apply()",
    "[7:0]",
]


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.sampled_from(WRITTEN), st.sampled_from(SPARE + TOKENS)), min_size=1, max_size=3))
def test_a_program_with_slips_is_compiled_or_refused(
    tmp_path_factory: pytest.TempPathFactory, slips: list[tuple[int, str]]
) -> None:
    tokens = list(TOKENS)
    for place, token in slips:
        tokens[place] = token
    path = tmp_path_factory.mktemp("slips") / "slip.p4"
    path.write_text("".join(tokens))
    found = []
    try:
        compile_file(path)
    except CompileError as failure:
        found = str(failure).split("\n")[:1]
    assert all(re.match(r"\S+:\d+:\d+: error: ", line) for line in found)


def test_the_program_without_slips_compiles(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("slips") / "right.p4"
    path.write_text(PROGRAM)
    compile_file(path)
