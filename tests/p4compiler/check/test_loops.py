"""Loops and assignments with an operator: tests/p4switch/stf/loops.stf runs those that p4c has for BMv2, too."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fanin.p4compiler import Compiled
from fanin.p4switch.engine.engine import Engine
from tests.p4compiler.conftest import HEADERS
from tests.sizes import sized

Build = Callable[..., Compiled]
Complain = Callable[..., str]
LOOP = "for (bit<8> i in 0 .. 3) {{ {} }}"
STACK = HEADERS.replace("h_t h;", "h_t h; h_t[2] s;")


# Ranges, which p4c refuses for BMv2


@pytest.mark.parametrize(
    ("loop", "total"),
    [
        ("for (bit<8> i in 1 .. 4) { hdr.h.a += i; }", 10),
        ("for (bit<8> i in 253 .. 255) { hdr.h.a += 1; }", 3),  # the counter does not wrap around
        ("for (bit<8> i in 4 .. 1) { hdr.h.a += 1; }", 0),
        ("for (bit<8> i in meta.y .. 2) { for (bit<8> j in i .. 2) { hdr.h.a += 1; } }", 6),
        ("for (int<8> i in -2 .. 1) { hdr.h.a += 1; }", 4),
        ("for (bit<8> i in 0 .. hdr.h.a + 2) { hdr.h.a += 1; }", 3),  # its end is computed once
        # Each round sets the variable, whatever the body has made of it.
        ("for (bit<8> i in 1 .. 5) { i = i + 1; hdr.h.a += i; }", 20),
        ("for (bit<8> i in 1 .. 3) { i = 0; hdr.h.a += 1; }", 3),
        ("for (bit<8> i in 1 .. 4) { i = 255; hdr.h.a += 1; }", 4),
        ("for (bit<8> i in 1 .. 3) { bump(i); hdr.h.a += i; }", 9),
        ("for (bit<8> i in 1 .. 3) { i = 9; continue; }", 0),
        ("for (bit<8> i in 1 .. 3) { hdr.h.a += i; if (i == 2) { i = 0; break; } }", 3),
        ("meta.y = 3; for (bit<8> i in 1 .. meta.y) { meta.y = 1; hdr.h.a += i; }", 6),
        ("for (bit<8> i in 1 .. 2) { for (bit<8> i in 1 .. 3) { i = 7; hdr.h.a += 1; } i = 5; }", 6),
        ("for (bit<8> i in 0 .. 9) { if (i == 2) { continue; } if (i == 5) { break; } hdr.h.a += i; }", 8),
    ],
)
def test_loops_over_a_range(build: Build, loop: str, total: int) -> None:
    declarations = HEADERS + "\nvoid bump(inout bit<8> n) { n = n + 1; }"
    apply = f"{loop} standard_metadata.egress_spec = 1;"
    engine = Engine.load(build(declarations=declarations, apply=apply).device_config())
    assert engine.process(0, bytes(8)) == [(1, bytes([total, *bytes(7)]))]


@pytest.mark.parametrize(
    ("loop", "total"),
    [
        ("for (bit<8> i in (list<bit<8>>){1, 5, 9}) { hdr.h.a += i; }", 15),
        ("for (bit<8> i in odd) { if (i == 3) { continue; } if (i == 7) { break; } hdr.h.a += i; }", 6),
        ("for (bit<8> i in (list<bit<8>>){hdr.h.a + 1, hdr.h.a + 2}) { hdr.h.a += i; }", 3),  # computed once
        ("for (bit<8> i in (list<bit<8>>){1, 2}) { i = 7; hdr.h.a += i; }", 14),
        ("for (bit<8> i in (list<bit<8>>){}) { hdr.h.a = 1; }", 0),
        ("for (bit<8> i in odd) { for (bit<8> j in odd) { hdr.h.a += 1; } }", 16),
    ],
)
def test_loops_over_a_list(build: Build, loop: str, total: int) -> None:
    declarations = HEADERS + "\nconst list<bit<8>> odd = {1, 3, 5, 7};"
    apply = f"{loop} standard_metadata.egress_spec = 1;"
    engine = Engine.load(build(declarations=declarations, apply=apply).device_config())
    assert engine.process(0, bytes(8)) == [(1, bytes([total, *bytes(7)]))]


@pytest.mark.parametrize(
    ("loop", "message"),
    [
        ("for (h_t i in (list<h_t>){}) { }", "a loop over a list of h_t is not supported"),
        ("list<bit<8>> l;", "a variable cannot be of type list<bit<8>>"),
        ("for (bit<8> i in (list<bit<8>>){true}) { }", "a value of type bool stands where bit<8> is needed"),
    ],
)
def test_lists_that_are_refused(complain: Complain, loop: str, message: str) -> None:
    assert message in complain(apply=loop)


@pytest.mark.parametrize(
    ("loop", "total"),
    [
        ("for (e_t e in hdr.s) { if (e.isValid()) { hdr.c.n += e.v; } }", 3),
        ("for (e_t e in hdr.s) { hdr.c.n += 1; e.setInvalid(); }", 3),  # its copy, not the stack's element
        ("for (e_t e in hdr.s) { hdr.s[1].v = 9; if (e.isValid()) { hdr.c.n += e.v; } }", 3),
        ("for (e_t e in hdr.s) { if (!e.isValid()) { break; } hdr.c.n += 16; }", 32),
    ],
)
def test_loops_over_a_header_stack(build: Build, loop: str, total: int) -> None:
    declarations = "header c_t { bit<8> n; } header e_t { bit<8> v; } struct headers { c_t c; e_t[3] s; }"
    extract = "packet.extract(hdr.s.next);"
    parser = f"state start {{ packet.extract(hdr.c); {extract} {extract} transition accept; }}"
    apply = f"{loop} hdr.s.pop_front(3); standard_metadata.egress_spec = 1;"
    compiled = build(declarations=declarations, parser=parser, apply=apply)
    engine = Engine.load(compiled.device_config())
    assert engine.process(0, bytes([0, 1, 2])) == [(1, bytes([total]))]


# Mistakes


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"apply": LOOP.format("t.apply();")}, "a table cannot be applied in a loop"),
        ({"apply": LOOP.format("if (t.apply().hit) {}")}, "a table cannot be applied in a loop"),
        ({"apply": LOOP.format("c.apply();")}, "a control cannot be applied in a loop"),
        ({"apply": LOOP.format("return;")}, "a return in a loop of an apply block is not supported"),
        ({"apply": "break;"}, "break outside of a loop"),
        ({"apply": LOOP.format("") + "continue;"}, "continue outside of a loop"),
        ({"apply": "for (; meta.y; ) {}"}, "a condition is a bool, not bit<8>"),
        ({"apply": "for (bool i in 0 .. 1) {}"}, "a range is of bit<> or int<>, not of bool"),
        ({"apply": "for (h_t i in hdr.h) {}"}, "a loop over h_t is not supported"),
        ({"apply": "for (h_t i in meta.x) {}"}, "a loop over bit<16> is not supported"),
        ({"apply": "for (bit<8> i in hdr.s) {}"}, "a value of type h_t stands where bit<8> is needed"),
        ({"apply": LOOP.format("") + "meta.y = i;"}, "there is no name 'i'"),
        ({"apply": "meta.y += meta.x;"}, "'+' cannot be applied to bit<8> and bit<16>"),
        ({"apply": "meta.flag += true;"}, "'+' cannot be applied to bool and bool"),
        ({"apply": "1 += 2;"}, "this cannot be written"),
        ({"update": LOOP.format("meta.y += i;")}, "only update_checksum() is supported here"),
        (
            {"parser": f"state start {{ {LOOP.format('meta.y = i;')} transition accept; }}"},
            "a loop in a parser is not supported",
        ),
    ],
)
def test_what_a_loop_cannot_do(complain: Complain, parts: dict[str, str], message: str) -> None:
    locals_ = "C() c; table t { actions = { NoAction; } }"
    declarations = STACK + "\ncontrol C() { apply {} }"
    found = complain(**({"declarations": declarations, "locals": locals_} | parts))
    assert found.split("\n")[0].partition(": error: ")[2] == message


def test_an_end_of_a_range_that_does_not_fit_is_a_warning(build: Build) -> None:
    [warning] = build(apply="for (bit<8> i in 0 .. 300) { meta.y = i; }").warnings
    assert warning.message == "300 does not fit in bit<8>; it becomes 44"


@pytest.mark.parametrize(
    ("apply", "options"),
    [
        ("bit<8> s; for (bit<8> i in 0 .. 3) { s = i; } meta.y = s;", ["uninitialized-use"]),
        ("bit<8> s; for (bit<8> i in 0 .. 3) { meta.y = s; s = i; }", ["uninitialized-use"]),
        ("bit<8> s = 0; for (bit<8> i in 0 .. 3) { s += i; } meta.y = s;", []),
        ("bit<8> s; for (; true; ) { s = 1; if (meta.flag) { break; } } meta.y = s;", []),
        ("bit<8> s; for (; true; ) { if (meta.flag) { break; } s = 1; } meta.y = s;", ["uninitialized-use"]),
        ("bit<8> s; for (; true; meta.y = s) { if (meta.flag) { continue; } s = 1; }", ["uninitialized-use"]),
        ("bit<8> s; for (; true; meta.y = s) { if (meta.flag) { break; } s = 1; }", []),
        ("hdr.h.setInvalid(); for (; meta.flag; ) { meta.y = hdr.h.a; }", ["invalid-header"]),
        ("hdr.h.setInvalid(); for (; meta.flag; ) { meta.y = hdr.h.a; hdr.h.setValid(); }", []),
    ],
)
def test_warnings_follow_loops(build: Build, apply: str, options: list[str]) -> None:
    assert [w.option for w in build(apply=apply).warnings] == options


OPERATORS = {"+": operator.add, "-": operator.sub, "&": operator.and_, "|": operator.or_, "^": operator.xor}
SATURATING = {"|+|": lambda a, b: min(a + b, 0xFFFF), "|-|": lambda a, b: max(a - b, 0)}
NUMBERS = st.integers(0, 0xFFFF)
LOOPS = st.tuples(
    st.lists(NUMBERS, min_size=1, max_size=5),
    st.sampled_from([*OPERATORS, *SATURATING]),
    st.sampled_from(["break", "continue"]),
    st.integers(0, 4),
)


@pytest.mark.slow
@settings(max_examples=sized(8, 60), suppress_health_check=list(HealthCheck))
@given(first=NUMBERS, loops=st.lists(LOOPS, min_size=1, max_size=6))
def test_loops_over_lists_do_what_python_does(
    build: Build, first: int, loops: list[tuple[list[int], str, str, int]]
) -> None:
    """The oracle runs the same loops, each with a compound assignment and a jump at one of the elements."""
    expected, statements = first, []
    for elements, op, jump, at in loops:
        stop = elements[at % len(elements)]
        values = ", ".join(map(str, elements))
        body = f"if (i == {stop}) {{ {jump}; }} hdr.h.b {op}= i;"
        statements.append(f"for (bit<16> i in (list<bit<16>>){{{values}}}) {{ {body} }}")
        for element in elements:
            if element == stop:
                if jump == "break":
                    break
                continue
            expected = (OPERATORS | SATURATING)[op](expected, element) & 0xFFFF
    apply = f"{' '.join(statements)} standard_metadata.egress_spec = 1;"
    engine = Engine.load(build(apply=apply).device_config())
    packet = bytes([0, *first.to_bytes(2, "big"), *bytes(5)])
    assert engine.process(0, packet) == [(1, bytes([0, *expected.to_bytes(2, "big"), *bytes(5)]))]
