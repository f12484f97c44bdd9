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
from fanin.p4compiler.inline import program as inline_program
from fanin.p4compiler.parse import preprocess
from fanin.p4switch.engine.engine import Engine
from tests.p4compiler.conftest import HEADERS, source
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
# Newer constructs, on lines of their own where the line matters.
NEWER = source(
    declarations=HEADERS
    + """
        const list<bit<8>> few = {1, 2, 3};
        type bit<9> port_t;
        @pragma name value
        struct pair { bit<8> a; bit<16> b; }
        # a comment
        """,
    locals="""@pragma stage 3
        action a(bit<16> v) { pair p = { 1, ... }; meta.x |+|= p.b; meta.y <<= 1; }
        table t { key = { hdr.h.c[8 +: 4]: exact; } actions = { a; } }""",
    apply="""for (bit<8> i in few) { if (i == 2) { continue; } meta.y += i; }
        for (bit<8> j = 0; j < 3; j += 1) { hdr.h.c[j * 8 +: 8] ^= j; break; }
        meta.x = hdr.minSizeInBytes() + h_t.maxSizeInBits(); t.apply();""",
)
PROGRAMS = {"usual": PROGRAM, "newer": NEWER, "psa": (Path(__file__).parent / "psa" / "psa.p4").read_text()}
TOKENS = {name: re.findall(r"[ \t]+|\n|\w+|[^\w\s]", text) for name, text in PROGRAMS.items()}
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


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=sized(33, 100), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_program_with_slips_is_compiled_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    tokens = list(TOKENS[name])
    written = [i for i, token in enumerate(tokens) if token.strip()]
    slip = st.tuples(st.sampled_from(written), st.sampled_from(SPARE + TOKENS[name]))
    for place, token in data.draw(st.lists(slip, min_size=1, max_size=3)):
        tokens[place] = token
    path = tmp_path_factory.mktemp("slips") / "slip.p4"
    path.write_text("".join(tokens))
    found = []
    try:
        compile_file(path).json_text()
    except CompileError as failure:
        found = str(failure).split("\n")[:1]
    assert all(re.match(r"\S+:\d+:\d+: error: ", line) for line in found)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_without_slips_compiles(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    path = tmp_path_factory.mktemp("slips") / "right.p4"
    path.write_text(PROGRAMS[name])
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


@pytest.mark.few(16)
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
    # each level goes on after its inner ones, and half of them are entered
    "levels": (
        "".join(f"if (hdr.h.b > {250 + n}) {{ meta.x = meta.x + 1; " for n in range(100))
        + "meta.x = meta.x + 1; }" * 100,
        100,
    ),
    "operators": (f"meta.x = {'~' * 600}hdr.h.b;", 300),
    "parentheses": (f"meta.x = {'(1 + ' * 500}hdr.h.b{')' * 500};", 800),
    "conditions": (f"meta.x = {'hdr.h.a == 1 ? 16w7 : ' * 300}hdr.h.b;", 300),
}


@pytest.mark.few(2)
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


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (f"const bit<8> X = {'9' * 5000};", "this number has more than 3500 digits"),
        (f"const bit<8> X = 0x{'9' * 5000};", "this number has more than 3500 digits"),
        (f"const bit<8> X = {'9' * 5000}w1;", "this number has more than 3500 digits"),
        (
            "const int A0 = 3;\n" + "".join(f"const int A{n + 1} = A{n} * A{n};\n" for n in range(60)),
            "the result has more than 14000 bits",
        ),
        ("#if (1 << 1000000000000) > 0\n#endif", "a shift by 1000000000000 in a preprocessor condition"),
        ("#if (1 << -1) > 0\n#endif", "a shift by -1 in a preprocessor condition"),
        (f"#if {' * '.join(['0x' + 'f' * 2000] * 9)}\n#endif", "the result has more than 14000 bits"),
        (f"#define A 0x{'f' * 3000}\nconst bit<8> X = A;", None),  # a warning, with the number
    ],
)
def test_numbers_without_end_are_refused_at_once(tmp_path: Path, more: str, said: str | None) -> None:
    program = tmp_path / "large.p4"
    program.write_text(f"#include <core.p4>\n#include <v1model.p4>\n{more}\n")
    with pytest.raises(CompileError) as caught:
        compile_file(program)
    assert said is None or said in str(caught.value)


def test_a_register_that_p4info_has_no_room_for_is_refused(build: Callable[..., Compiled]) -> None:
    with pytest.raises(CompileError, match=r"a size of 4294967295: it must be less than 2\^31"):
        build(locals="register<bit<8>>(4294967295) r;", apply="r.write(0, 1);")


def test_a_negative_size_is_named_as_it_is_written(build: Callable[..., Compiled]) -> None:
    with pytest.raises(CompileError, match=r"the size -4 is negative.*4294967292 as bit<32>"):
        build(locals="register<bit<8>>(-4) r;", apply="r.write(0, 1);")


def _twice(first: str, other: str) -> str:
    """A declaration, and 40 that each have the one before twice, which is %."""
    return first + "".join(
        other.replace("%", str(number - 1)).replace("@", str(number)) for number in range(1, 41)
    )


@pytest.mark.parametrize(
    ("declarations", "apply", "said"),
    [
        (
            _twice("struct s0 { bit<8> a; bit<8> b; }", "struct s@ { s% a; s% b; }\n"),
            "",
            "s14 has 32,768 values; at most 16,384 are possible",
        ),
        (
            _twice("typedef tuple<bit<8>, bit<8>> t0;", "typedef tuple<t%, t%> t@;\n"),
            "",
            "this tuple has 32,768 values",
        ),
        (
            "struct S<A, B> { bit<8> x; } typedef S<bit<8>, bit<8>> t0;"
            + _twice("", "typedef S<t%, t%> t@;\n"),
            "",
            "the type arguments of S are too long",
        ),
        (
            "struct S<T> { T a; T b; } typedef S<bit<8>> t0;" + _twice("", "typedef S<t%> t@;\n"),
            "",
            "S_S",
        ),
        ("struct big { h_t[10000] a; }", "", "this stack has 40,000 values"),
        (
            _twice("control c0(inout bit<8> x) { apply { x = x + 1; } }",
                   "control c@(inout bit<8> x) { c%() a; c%() b; apply { a.apply(x); b.apply(x); } }\n"),
            "c40.apply(meta.y);",
            "the program has more than 200 statements where it is applied and called",
        ),
        (
            _twice("bit<8> f0(in bit<8> x) { return x + 1; }",
                   "bit<8> f@(in bit<8> x) { return f%(x) + f%(x); }\n"),
            "meta.y = f40(meta.y);",
            "the program has more than 200 statements",
        ),
        (
            _twice("\n#define M0 1\n", "#define M@ M% + M%\n") + "const bit<8> x = M40;",
            "",
            "macros expand to more than",
        ),
    ],
    ids=["structs", "tuples", "names", "generics", "stacks", "controls", "functions", "macros"],
)  # fmt: skip
def test_a_few_lines_that_stand_for_too_much_are_refused(
    complain: Callable[..., str], monkeypatch: pytest.MonkeyPatch, declarations: str, apply: str, said: str
) -> None:
    monkeypatch.setattr(inline_program, "MAX_STATEMENTS", 200)
    monkeypatch.setattr(preprocess, "MAX_EXPANDED", 10_000)
    assert said in complain(declarations=HEADERS + declarations, apply=apply or "meta.x = 1;")


def test_files_that_include_others_twice_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preprocess, "MAX_INCLUDES", 100)
    (tmp_path / "f0.p4").touch()
    for number in range(1, 41):
        (tmp_path / f"f{number}.p4").write_text(f'#include "f{number - 1}.p4"\n' * 2)
    with pytest.raises(CompileError, match=r"\.p4:\d:10: error: more than 100 files are included"):
        compile_file(tmp_path / "f40.p4")
