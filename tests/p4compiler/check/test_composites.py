"""Header stacks written out as lists, and tuples inside structs: what they compute, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fanin.p4compiler import Compiled
from fanin.p4switch.engine.engine import Engine
from tests.p4compiler.conftest import HEADERS

Build = Callable[..., Compiled]
Complain = Callable[..., str]

STACK = "header c_t { bit<8> n; } header e_t { bit<8> v; } struct headers { c_t c; e_t[3] s; }"
PARSE_STACK = """state start { packet.extract(hdr.c); packet.extract(hdr.s.next); packet.extract(hdr.s.next);
    packet.extract(hdr.s.next); transition accept; }"""
PAIR = HEADERS + " struct pair_t { tuple<bit<8>, bit<16>> t; bit<8> z; }"


@pytest.mark.parametrize(
    ("apply", "sent"),
    [
        ("hdr.s = (e_t[3]) { (e_t) { 4 }, (e_t) { 5 }, (e_t) { hdr.s[0].v } };", [0, 4, 5, 1]),
        ("e_t[3] k = { { 4 }, { 5 }, { v = 6 } }; hdr.s = k;", [0, 4, 5, 6]),
        ("hdr.s = { { 7 }, ... };", [0, 7]),
        ("hdr.s = { { 7 }, {#}, { ... } };", [0, 7, 0]),
        ("hdr.s = { hdr.s[2], hdr.s[0], hdr.s[1] };", [0, 3, 1, 2]),  # all are read before one is written
        ("hdr.s = { { hdr.s[1].v }, { hdr.s[0].v }, {#} };", [0, 2, 1]),
        ("hdr.c.n = hdr.s == (e_t[3]) { { 1 }, { 2 }, { 3 } } ? 8w1 : 2;", [1, 1, 2, 3]),
        ("hdr.c.n = hdr.s == (e_t[3]) { { 1 }, { 2 }, {#} } ? 8w1 : 2;", [2, 1, 2, 3]),
        ("const e_t[2] k = { { 8 }, { 9 } }; hdr.c.n = k[1].v;", [9, 1, 2, 3]),
        ("hdr.c.n = first({ { 6 }, { 5 }, { 4 } });", [6, 1, 2, 3]),
    ],
)
def test_a_stack_written_out(build: Build, apply: str, sent: list[int]) -> None:
    declarations = STACK + " bit<8> first(in e_t[3] s) { return s[0].v; }"
    apply += " standard_metadata.egress_spec = 1;"
    compiled = build(declarations=declarations, parser=PARSE_STACK, apply=apply)
    engine = Engine.load(compiled.device_config())
    assert engine.process(0, bytes([0, 1, 2, 3])) == [(1, bytes(sent))]


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        ("hdr.s = { { 1 }, { 2 } };", "e_t[3] takes 3 values, not 2"),
        ("hdr.s = { { 1 }, { 2 }, { 3 }, { 4 }, ... };", "e_t[3] takes 3 values, not 4"),
        ("hdr.s = { 1, ... };", "a value of type int stands where e_t is needed"),
        ("hdr.s = { a = { 1 }, ... };", "e_t[3] cannot be initialized like this"),
    ],
)
def test_what_is_wrong_with_a_stack_written_out(complain: Complain, apply: str, message: str) -> None:
    found = complain(declarations=STACK, parser=PARSE_STACK, apply=apply)
    assert found.split("\n")[0].partition(": error: ")[2] == message


@pytest.mark.parametrize(
    ("apply", "sent"),
    [
        ("pair_t p = { { 1, 2 }, 3 }; hdr.h.a = p.t[0]; hdr.h.b = p.t[1];", [1, 0, 2]),
        ("pair_t p = { t = { 1, 2 }, z = 3 }; p.t[1] = 7; hdr.h = { p.t[0] + 1, p.t[1], 0, 0 };", [2, 0, 7]),
        ("meta.p.t = { 5, 6 }; meta.q = meta.p; hdr.h.a = meta.q.t[0];", [5]),
        ("meta.p.t[1][7:0] = 9; hdr.h.b = meta.p.t[1];", [0, 0, 9]),
        ("meta.p.t[0] = 1; meta.flag = meta.p == (pair_t){ { 1, 0 }, 0 }; hdr.h.a = meta.flag ? 8w4 : 5;", [4]),
        ("tuple<bit<8>, bit<8>> v = { 8, 9 }; v = { v[1], v[0] }; hdr.h.a = v[0];", [9]),
        ("tuple<tuple<bit<8>>, pair_t> v = { { 3 }, meta.p }; hdr.h.a = v[0][0] + v[1].z;", [3]),
        ("tuple<h_t, bit<8>> v; v[0] = hdr.h; v[0].a = 6; hdr.h = v[0];", [6]),
        ("bump(meta.p.t[0]); bump(meta.p.t[0]); hdr.h.a = meta.p.t[0];", [2]),
        ("meta.p.t[0] = 4; t.apply(); hdr.h.a = meta.p.z;", [11]),
    ],
)  # fmt: skip
def test_a_tuple_in_a_struct(build: Build, apply: str, sent: list[int]) -> None:
    compiled = build(
        declarations=PAIR + " void bump(inout bit<8> n) { n = n + 1; }",
        metadata="pair_t p; pair_t q; bool flag;",
        locals="""action set(bit<8> z) { meta.p.z = z; }
            table t { key = { meta.p.t[0]: exact; } actions = { set; } default_action = set(10);
                const entries = { 4: set(11); } }""",
        apply=f"{apply} standard_metadata.egress_spec = 1;",
    )
    engine = Engine.load(compiled.device_config())
    assert engine.process(0, bytes(8)) == [(1, bytes([*sent, *[0] * (8 - len(sent))]))]


def test_the_control_plane_s_name_of_a_tuple_s_element(build: Build) -> None:
    locals_ = "table t { key = { meta.p.t[0]: exact; } actions = { NoAction; } }"
    compiled = build(declarations=PAIR, metadata="pair_t p;", locals=locals_, apply="t.apply();")
    assert compiled.p4info.tables[0].match_fields[0].name == "meta.p.t[0]"


def test_a_field_list_has_the_elements_of_a_tuple(build: Build) -> None:
    apply = "clone_preserving_field_list(CloneType.I2E, 5, 1);"
    compiled = build(declarations=PAIR, metadata="@field_list(1) pair_t p;", apply=apply)
    [made] = compiled.json["field_lists"]
    assert len(made["elements"]) == 3


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"apply": "meta.x = meta.p.t[2];"}, "a tuple of 2 elements has no element 2"),
        ({"apply": "meta.x = meta.p.t[meta.y];"}, "a tuple's index must be a number known when compiling"),
        ({"apply": "meta.p.t = { 1 };"}, "tuple<bit<8>, bit<16>> takes 2 values, not 1"),
        (
            {"declarations": f"{PAIR} struct w_t {{ tuple<string> s; }}"},
            "a struct cannot have a field of type tuple<string>",
        ),
        (
            {"declarations": f"{PAIR} header w_t {{ tuple<bit<8>> s; }}"},
            "a header cannot have a field of type tuple<bit<8>>",
        ),
    ],
)
def test_what_is_wrong_with_tuples(complain: Complain, parts: dict[str, str], message: str) -> None:
    found = complain(**({"declarations": PAIR, "metadata": "bit<16> x; bit<8> y; pair_t p;"} | parts))
    assert found.split("\n")[0].partition(": error: ")[2] == message


def test_a_wrong_type_of_the_metadata_is_one_error(complain: Complain) -> None:
    assert complain(metadata="string s;").count(": error: ") == 1


def test_an_element_that_is_read_before_it_has_a_value_is_a_warning(build: Build) -> None:
    compiled = build(declarations=PAIR, apply="pair_t p; p.t[0] = 1; meta.x = p.t[1];")
    [warning] = compiled.warnings
    assert warning.message == "'p.t.1' may be read before it has a value"


@pytest.mark.parametrize("other", ["hdr.u.x.setInvalid();", "hdr.u.x = {#};", "hdr.u.x = gone;"])
def test_a_member_of_a_union_that_becomes_invalid_leaves_the_other_one(build: Build, other: str) -> None:
    """As with p4c on BMv2 (docs/reference/compiler.md); the specification makes the whole union invalid."""
    compiled = build(
        declarations="""header x_t { bit<8> a; } header y_t { bit<16> b; } header_union u_t { x_t x; y_t y; }
            struct headers { x_t h; u_t u; }""",
        locals="x_t gone;",
        apply=f"hdr.u.y.setValid(); hdr.u.y.b = 7; {other} standard_metadata.egress_spec = 1;",
    )
    assert Engine.load(compiled.device_config()).process(0, b"\1") == [(1, b"\1\0\7")]


GENERIC = """header pair_t<T> { T first; T second; }
    header one_t { bit<8> x; }
    header_union either_t<A, B> { A a; B b; }
    struct boxed_t<T, U> { T value; U other; bit<8> n; }
    typedef pair_t<bit<8>> bytes_t;
    const boxed_t<bit<8>, bit<8>> START = { value = 1, other = 2, n = 3 };
    struct headers_t<T> { pair_t<T> h; bytes_t[2] more; either_t<one_t, pair_t<bit<16>>> u; }
    typedef headers_t<bit<16>> headers;"""


def test_generic_headers_structs_and_unions(build: Build) -> None:
    compiled = build(
        declarations=GENERIC,
        metadata="boxed_t<bit<8>, boxed_t<bool, bit<16>>> z;",
        parser="state start { packet.extract(hdr.h); packet.extract(hdr.more.next); transition accept; }",
        apply="""boxed_t<bool, bit<16>> inner = { true, hdr.h.first, 4 };
            meta.z = (boxed_t<bit<8>, boxed_t<bool, bit<16>>>){ hdr.more[0].first, inner, START.n };
            hdr.h.second = meta.z.other.other + (bit<16>)meta.z.n;
            hdr.more[0] = (pair_t<bit<8>>){ first = 9, second = meta.z.value };
            hdr.u.a.setValid(); hdr.u.b.setValid(); hdr.u.b.second = 7;
            standard_metadata.egress_spec = 1;""",
    )
    sent = bytes([1, 2, 1, 5, 9, 5, 0, 0, 0, 7])
    assert Engine.load(compiled.device_config()).process(0, bytes([1, 2, 0, 0, 5, 6])) == [(1, sent)]
    types = {each["name"] for each in compiled.json["header_types"]}
    assert {"pair_t_bit16", "pair_t_bit8", "one_t"} < types  # p4c's names


@pytest.mark.parametrize(
    ("declarations", "metadata", "message"),
    [
        ("", "pair_t z;", "'pair_t' takes 1 type argument, not 0"),
        ("", "pair_t<bit<8>, bool> z;", "'pair_t' takes 1 type argument, not 2"),
        ("", "pair_t<one_t> z;", "a header cannot have a field of type one_t"),
        ("struct s_t<T> { T t; X x; }", "bool z;", "there is no type 'X'"),
        ("struct s_t<T, T> { T t; }", "bool z;", "type parameter 'T' is declared twice"),
        ("struct s_t<T> { s_t<T> t; }", "bool z;", "'s_t' is used in its own declaration"),
        ("struct s_t<T> { T t; bool t; }", "bool z;", "field 't' is declared twice"),
        (
            "const pair_t<bit<8>> P = (pair_t<bit<4>>){ 1, 2 };",
            "bool z;",
            "a value of type pair_t<bit<4>> stands where pair_t<bit<8>> is needed",
        ),
    ],
)
def test_what_is_wrong_with_a_generic_type(
    complain: Complain, declarations: str, metadata: str, message: str
) -> None:
    parser = "state start { transition accept; }"
    found = complain(declarations=f"{GENERIC}\n{declarations}", parser=parser, metadata=metadata)
    assert found.split("\n")[0].partition(": error: ")[2] == message
