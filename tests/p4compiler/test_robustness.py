"""Whatever the text is, it is compiled or refused with a place: never another exception."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fanin.p4compiler import Compiled, CompileError, compile_file
from fanin.p4switch.engine.engine import Engine
from tests.p4compiler.conftest import source
from tests.sizes import sized

pytestmark = pytest.mark.slow

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


@settings(max_examples=sized(33, 100), suppress_health_check=list(HealthCheck))
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


NESTED: dict[str, Callable[[int], dict[str, str]]] = {
    "parentheses": lambda n: {"apply": f"meta.x = {'(' * n}meta.x{')' * n};"},
    "operators": lambda n: {"apply": f"meta.x = {'~' * n}meta.x;"},
    "a sum": lambda n: {"apply": f"meta.x = meta.x{' + meta.x' * n};"},
    "casts": lambda n: {"apply": f"meta.x = {'(bit<16>)' * n}meta.x;"},
    "conditions": lambda n: {"apply": f"meta.x = {'meta.flag ? 16w1 : ' * n}meta.x;"},
    "branches": lambda n: {"apply": "if (meta.flag) {}" + " else if (meta.x == 1) { meta.x = 2; }" * n},
    "blocks": lambda n: {"apply": "{" * n + "meta.x = 1;" + "}" * n},
    "a directive": lambda n: {"apply": f"\n#if {'(' * n}1{')' * n}\n#endif\n"},
    "types": lambda n: {"locals": f"{'tuple<' * n}bit<8>{'>' * n} t;"},
}


@pytest.mark.parametrize("parts", NESTED.values(), ids=NESTED)
@pytest.mark.parametrize("depth", [50, 150, 240, 400, 5000])
def test_what_is_nested_is_compiled_or_refused(
    build: Callable[..., Compiled], parts: Callable[[int], dict[str, str]], depth: int
) -> None:
    """Up to 400 levels whatever it is; of more, an error may tell where."""
    said = ""
    try:
        build(**parts(depth)).json_text()
    except CompileError as refused:
        said = str(refused)
    assert re.match(
        r"test.p4:\d+:\d+: error: this is nested too deeply" if said and depth > 400 else "$", said
    )


def test_long_stacks_are_compared(build: Callable[..., Compiled]) -> None:
    declared = "header h_t { bit<8> a; bit<16> b; } struct headers { h_t h; h_t[250] s; h_t[250] t; }"
    assert build(declarations=declared, apply="if (hdr.s == hdr.t) { meta.x = 1; }").json_text()


@pytest.mark.parametrize("text", ["", ";", "// nothing\n#define X\n"])
def test_an_empty_program_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "empty.p4"
    path.write_text(text)
    with pytest.raises(CompileError, match=r"empty\.p4:1:1: error: the program is empty"):
        compile_file(path)


LONG = {
    "branches": (
        "if (hdr.h.a == 255) {}"
        + "".join(f" else if (hdr.h.b == {n}) {{ meta.x = {n}; }}" for n in range(500)),
        300,
    ),
    "a sum": (f"meta.x = 0{' + 1' * 0} + hdr.h.b{' + hdr.h.b' * 999};", 300 * 1000 % 65536),
    "operators": (f"meta.x = {'~' * 600}hdr.h.b;", 300),
    "parentheses": (f"meta.x = {'(1 + ' * 500}hdr.h.b{')' * 500};", 800),
    "conditions": (f"meta.x = {'hdr.h.a == 1 ? 16w7 : ' * 300}hdr.h.b;", 300),
}


@pytest.mark.parametrize(("statement", "result"), LONG.values(), ids=LONG)
def test_what_p4c_accepts_nested_compiles_and_runs(
    build: Callable[..., Compiled], statement: str, result: int
) -> None:
    config = build(apply=f"{statement} hdr.h.b = meta.x; standard_metadata.egress_spec = 1;").device_config()
    packet = bytes([0, *(300).to_bytes(2, "big"), *bytes(5)])
    assert Engine.load(config).process(0, packet) == [(1, bytes([0, *result.to_bytes(2, "big"), *bytes(5)]))]


def test_the_recursion_limit_is_as_before_after_a_deep_program(build: Callable[..., Compiled]) -> None:
    before = sys.getrecursionlimit()
    build(apply=f"meta.x = meta.x{' + meta.x' * 999};")
    assert sys.getrecursionlimit() == before
