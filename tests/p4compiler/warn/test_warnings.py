"""Warnings about whole programs, under p4c's names for them; and sound programs that get none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fanin.p4compiler import Compiled, compile_file
from tests.p4compiler.conftest import HEADERS

Build = Callable[..., Compiled]
HERE = Path(__file__).parent
FUNCTION = "bit<8> f(in bit<8> x, out bit<8> y) {{ {} }}"
TWO_HEADERS = HEADERS.replace("h_t h;", "h_t h; h_t g;")
INNER = "control Inner(inout h_t inner) { apply { inner.a = inner.a + 1; } }"


def warned(compiled: Compiled) -> list[tuple[str | None, str]]:
    """The warnings as (p4c's name, the source that they are about)."""
    return [(w.option, w.span.fragment()) for w in compiled.warnings]


# Parser states


def test_a_state_without_a_transition(build: Build) -> None:
    compiled = build(parser="state start { packet.extract(hdr.h); }")
    [warning] = compiled.warnings
    assert warned(compiled) == [("parser-transition", "start")]
    assert (
        warning.message
        == "state 'start' has no transition: it goes to reject, which behaves like accept here"
    )


def test_a_state_that_nothing_leads_to(build: Build) -> None:
    lonely = "state start { transition accept; } state a { transition b; } state b { transition a; }"
    assert warned(build(parser=lonely)) == [("unreachable", "a"), ("unreachable", "b")]


# Tables and actions


def test_tables_and_actions_that_nothing_applies(build: Build) -> None:
    compiled = build(locals="action a() {} action b() {} table t { actions = { a; } }")
    assert warned(compiled) == [("unused", "b"), ("unused", "t")]


@pytest.mark.parametrize(
    "apply",
    [
        "t.apply();",
        "if (t.apply().hit) {}",
        "meta.flag = meta.flag && t.apply().miss;",
        "switch (t.apply().action_run) { default: {} }",
        "if (meta.flag) { t.apply(); } else { exit; }",
    ],
)
def test_every_way_to_apply_a_table_counts(build: Build, apply: str) -> None:
    locals_ = "action c() {} action a() { c(); } table t { actions = { a; NoAction; } }"
    assert warned(build(locals=locals_, apply=apply)) == []


def test_a_table_applied_for_the_key_of_another(build: Build) -> None:
    tables = 'table a { actions = { NoAction; } } table b { key = { a.apply().hit: exact @name("hit"); }'
    assert warned(build(locals=tables + " actions = { NoAction; } }", apply="b.apply();")) == []


def test_a_table_applied_in_an_argument(build: Build) -> None:
    tables = """table a { actions = { NoAction; } } action set(in bit<8> n) { meta.y = n; }
        table b { actions = { set(a.apply().hit ? 8w1 : 2); } default_action = set; }"""
    assert warned(build(locals=tables, apply="b.apply();")) == []


def test_what_is_unused_on_purpose(build: Build) -> None:
    locals_ = '@noWarn("unused") action a() {} @noWarn("unused") table t { actions = { NoAction; } }'
    assert warned(build(locals=locals_)) == []


# Values


@pytest.mark.parametrize(
    ("apply", "where"),
    [
        ("bit<8> v; meta.y = v;", "v"),
        ("bit<8> v; if (meta.flag) { v = 1; } meta.y = v;", "v"),
        ("bit<8> v; if (v == 1) { meta.y = 2; }", "v"),
        ("bit<8> v; meta.y = meta.flag ? v : 1;", "v"),
        ("bit<8> v; switch (meta.y) { 1: { v = 1; } } meta.y = v;", "v"),
        ("bit<8> v; hash(meta.x, HashAlgorithm.crc16, 16w0, { v }, 16w7);", "v"),
        ("metadata v; v.x = 1; v.flag = true; meta.y = v.y;", "v.y"),
        ("metadata v; v.x = 1; meta = v;", "v"),
        ("bit<8> v; meta.y = v + 1; v = 2;", "v"),
    ],
)
def test_a_variable_read_before_it_has_a_value(build: Build, apply: str, where: str) -> None:
    assert warned(build(apply=apply)) == [("uninitialized-use", where)]


def test_a_struct_of_which_a_part_is_missing(build: Build) -> None:
    [warning] = build(apply="metadata v; v.x = 1; meta = v;").warnings
    assert warning.message == "'v' may be read before all of it has a value: flag, y"


def test_a_variable_that_only_some_actions_set(build: Build) -> None:
    locals_ = "bit<8> v; action a() { v = 1; } table t { actions = { a; NoAction; } }"
    assert warned(build(locals=locals_, apply="t.apply(); meta.y = v;")) == [("uninitialized-use", "v")]


@pytest.mark.parametrize(
    "apply",
    [
        "if (t.apply().hit) { meta.y = v; }",
        "if (!t.apply().miss && meta.flag) { meta.y = v; }",
        "switch (t.apply().action_run) { a: { meta.y = v; } }",
        "switch (t.apply().action_run) { NoAction: { exit; } default: { meta.y = v; } } meta.x = (bit<16>)v;",
        "if (t.apply().miss) { v = 2; } meta.y = v;",
    ],
)
def test_what_a_hit_says_of_the_action_that_ran(build: Build, apply: str) -> None:
    locals_ = "bit<8> v; action a() { v = 1; } table t { actions = { a; @defaultonly NoAction; } }"
    assert warned(build(locals=locals_, apply=apply)) == []


@pytest.mark.parametrize(
    "apply",
    [
        "bit<8> v; if (meta.flag) { v = 1; } else { v = 2; } meta.y = v;",
        "bit<8> v; if (meta.flag) { v = 1; } else { exit; } meta.y = v;",
        "bit<8> v; if (meta.flag) { return; } else { v = 2; } meta.y = v;",
        "bit<16> v; hash(v, HashAlgorithm.crc16, 16w0, { meta.x }, 16w7); meta.x = v;",
        "bit<8> v; if (false) { meta.y = v; }",
        "bit<8> v; v[3:0] = 1; v[7:4] = 2; meta.y = v;",
        "metadata v = { 1, 2, true }; meta = v;",
        "h_t v; v.setValid(); v.a = 1; hdr.h = v;",
        "bit<8> v; switch (meta.y) { 1: { v = 1; } default: { v = 2; } } meta.y = v;",
    ],
)
def test_a_variable_that_has_a_value_on_every_way(build: Build, apply: str) -> None:
    assert warned(build(apply=apply)) == []


def test_a_variable_that_a_state_of_a_loop_sets(build: Build) -> None:
    parser = """bit<8> v;
    state start { packet.extract(hdr.h); v = 1; transition loop; }
    state loop { v = v + 1; transition select(v) { 9: accept; _: loop; } }"""
    assert warned(build(parser=parser)) == []
    assert warned(build(parser=parser.replace("v = 1;", ""))) == [("uninitialized-use", "v")]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return x;", [("uninitialized-out-param", "out bit<8> y")]),
        ("if (x == 1) { return 2; } y = 3; return x;", [("uninitialized-out-param", "out bit<8> y")]),
        ("y = y + 1; return x;", [("uninitialized-use", "y")]),
        ("if (x == 1) { y = 2; return 2; } y = 3; return x;", []),
    ],
)
def test_out_parameters(build: Build, body: str, expected: list[tuple[str, str]]) -> None:
    declarations = HEADERS + "\n" + FUNCTION.format(body)
    assert warned(build(declarations=declarations, apply="meta.y = f(1, meta.y);")) == expected


# Headers


@pytest.mark.parametrize(
    ("apply", "where"),
    [
        ("meta.y = hdr.g.a;", "hdr.g.a"),
        ("hdr.g.a = meta.y;", "hdr.g.a"),
        ("hdr.h.setInvalid(); meta.y = hdr.h.a;", "hdr.h.a"),
        ("if (!hdr.h.isValid()) { meta.y = hdr.h.a; }", "hdr.h.a"),
        ("if (hdr.h.isValid() || hdr.h.a == 1) { meta.y = 1; }", "hdr.h.a"),
        ("h_t v; meta.y = v.a;", "v.a"),
        ("hdr.h = hdr.g; meta.y = hdr.h.a;", "hdr.h.a"),
        ("hdr.g.setValid(); hdr.g = { 1, 2, 3, 4 }; hdr.g.setInvalid(); hdr.g.a[3:0] = 1;", "hdr.g.a"),
    ],
)
def test_a_field_of_a_header_that_is_certainly_invalid(build: Build, apply: str, where: str) -> None:
    found = warned(build(declarations=TWO_HEADERS, apply=apply))
    assert found == [("invalid-header", where)]


@pytest.mark.parametrize(
    "apply",
    [
        "meta.y = hdr.h.a;",
        "hdr.g.setValid(); hdr.g.a = 1;",
        "hdr.g = hdr.h; meta.y = hdr.g.a;",
        "hdr.g = { 1, 2, 3, 4 }; meta.y = hdr.g.a;",
        "if (hdr.h.isValid()) { meta.y = hdr.h.a; }",
        "if (hdr.h.isValid() && hdr.h.a == 1) { meta.y = 1; }",
        "if (hdr.g.isValid()) { meta.y = hdr.g.a; }",
        "meta.y = hdr.g.isValid() ? hdr.g.a : 0;",
        "if (meta.flag) { hdr.g.setValid(); } meta.y = hdr.g.a;",
        "if (meta.flag) { hdr.h.setInvalid(); } meta.y = hdr.h.a;",
        "if (hdr.h.isValid()) { hdr.h.setInvalid(); exit; } else { return; }",
    ],
)
def test_a_field_of_a_header_that_may_be_valid(build: Build, apply: str) -> None:
    assert warned(build(declarations=TWO_HEADERS, apply=apply)) == []


def test_a_header_that_another_table_makes_valid(build: Build) -> None:
    locals_ = """action a() { hdr.g.setValid(); } table t { actions = { a; NoAction; } }
    action b() { meta.y = hdr.g.a; } table u { actions = { b; NoAction; } }"""
    parts = {"declarations": TWO_HEADERS, "locals": locals_}
    assert warned(build(apply="t.apply(); u.apply();", **parts)) == []
    assert warned(build(apply="u.apply(); t.apply();", **parts)) == [("invalid-header", "hdr.g.a")]


def test_an_action_is_sound_if_one_of_its_tables_finds_the_header_valid(build: Build) -> None:
    locals_ = """action b() { meta.y = hdr.g.a; }
    table t { actions = { b; NoAction; } } table u { actions = { b; NoAction; } }"""
    apply = "t.apply(); hdr.g.setValid(); u.apply();"
    assert warned(build(declarations=TWO_HEADERS, locals=locals_, apply=apply)) == []


def test_a_header_in_a_control_inside_another_is_named_as_it_is_there(build: Build) -> None:
    declarations = f"{TWO_HEADERS}\n{INNER}"
    found = build(declarations=declarations, locals="Inner() c;", apply="c.apply(hdr.g);").warnings
    assert [w.message for w in found] == [
        "header 'inner' is invalid on every path to here: what is written to it is undefined",
        "header 'inner' is invalid on every path to here: its fields have no defined value",
    ]


def test_a_header_that_a_loop_of_states_extracts(build: Build) -> None:
    declarations = HEADERS.replace("h_t h;", "h_t h; h_t[3] stack;")
    parser = """state start { packet.extract(hdr.h); transition loop; }
    state loop { packet.extract(hdr.stack.next); transition select(hdr.stack.last.a) { 1: loop; _: accept; } }"""
    compiled = build(declarations=declarations, parser=parser, apply="meta.y = hdr.stack[2].a;")
    assert warned(compiled) == []


def test_a_checksum_over_a_header_that_is_never_there_under_its_condition(build: Build) -> None:
    checksum = "update_checksum({}, {{ hdr.g.a, hdr.g.b }}, hdr.h.b, HashAlgorithm.csum16);"
    sound = checksum.format("hdr.g.isValid()")
    assert warned(build(declarations=TWO_HEADERS, update=sound)) == []
    [warning] = build(declarations=TWO_HEADERS, update=checksum.format("true")).warnings
    assert (warning.option, warning.span.fragment()) == ("invalid-header", "hdr.g.a")
    assert "here, and to 1 more place: its fields" in warning.message  # one cause is reported once


def test_clones_come_to_egress_as_they_were(build: Build, tmp_path: Path) -> None:
    program = tmp_path / "test.p4"
    build(declarations=TWO_HEADERS, apply="hdr.h.setInvalid();")
    text = program.read_text().replace("control E(", "control E_unused(", 1)
    parameters = "inout headers hdr, inout metadata meta, inout standard_metadata_t s"
    egress = f"control E({parameters}) {{ apply {{ meta.y = hdr.h.a; }} }}\n"
    program.write_text(text.replace("control U(", egress + "control U(", 1))
    assert warned(compile_file(program)) == [("invalid-header", "hdr.h.a")]
    cloned = program.read_text().replace(
        "hdr.h.setInvalid();", "clone(CloneType.I2E, 1); hdr.h.setInvalid();"
    )
    program.write_text(cloned)
    assert warned(compile_file(program)) == []


KEYED = """action a() { } table t { key = { %s } actions = { a; NoAction; } }"""


@pytest.mark.parametrize(
    "apply",
    [
        "if (meta.flag) { hdr.g.setValid(); } t.apply();",
        "hdr.g = hdr.h; if (meta.flag) { hdr.g.setInvalid(); } t.apply();",
        "if (meta.flag) { hdr.g.setValid(); } if (t.apply().hit) { meta.y = 1; }",
    ],
)
def test_a_key_of_a_header_that_may_be_invalid_and_that_nothing_tests(build: Build, apply: str) -> None:
    compiled = build(declarations=TWO_HEADERS, locals=KEYED % "hdr.g.a[3:0]: exact;", apply=apply)
    assert warned(compiled) == [("invalid-header", "hdr.g.a[3:0]")]
    (warning,) = compiled.warnings
    assert warning.hint == "apply t only if hdr.g.isValid(), or add hdr.g.isValid() to its key"


@pytest.mark.parametrize(
    ("key", "apply"),
    [
        ("hdr.h.a: exact;", "t.apply();"),
        ("hdr.g.a: exact;", "hdr.g.setValid(); t.apply();"),
        ("hdr.g.a: exact;", "hdr.g = hdr.h; t.apply();"),
        ("hdr.g.a: exact;", "if (meta.flag) { hdr.g.setValid(); } if (hdr.g.isValid()) { t.apply(); }"),
        ("hdr.g.isValid(): exact; hdr.g.a: ternary;", "if (meta.flag) { hdr.g.setValid(); } t.apply();"),
        ("hdr.g.a: ternary;", "if (meta.flag) { hdr.g.setValid(); } t.apply();"),
        # the program tests it somewhere: what it knows then may hold here, too
        ("hdr.g.a: exact;", "if (meta.flag) { hdr.g.setValid(); } meta.flag = hdr.g.isValid(); t.apply();"),
    ],
)
def test_a_key_of_a_header_that_is_valid_or_tested(build: Build, key: str, apply: str) -> None:
    assert warned(build(declarations=TWO_HEADERS, locals=KEYED % key, apply=apply)) == []


@pytest.mark.parametrize(
    ("without", "expected"),
    [("", []), ("3: u;", [("invalid-header", "hdr.g.a")])],
    ids=["only after it", "or without it"],
)
def test_a_key_of_a_header_that_comes_with_another_in_the_packet(
    build: Build, without: str, expected: list[tuple[str, str]]
) -> None:
    declared = TWO_HEADERS.replace("h_t g;", "h_t g; h_t u;")
    parser = """state start { packet.extract(hdr.h); transition select(hdr.h.a) { 1: g; %s default: accept; } }
    state g { packet.extract(hdr.g); transition select(hdr.g.a) { 2: u; default: accept; } }
    state u { packet.extract(hdr.u); transition accept; }"""
    compiled = build(
        declarations=declared,
        parser=parser % without,
        locals=KEYED % "hdr.g.a: exact;",
        apply="if (hdr.u.isValid()) { t.apply(); }",
    )
    assert warned(compiled) == expected


OPTIONAL_PARSER = """state start { packet.extract(hdr.h); transition select(hdr.h.a) { 1: g; default: accept; } }
    state g { packet.extract(hdr.g); transition accept; }"""
ACTION = "action a() { meta.y = hdr.g.a; } table t { key = { %s } actions = { a; NoAction; } }"


@pytest.mark.parametrize(
    ("apply", "key"),
    [
        ("meta.y = hdr.g.a;", ""),
        ("if (hdr.g.a == 1) { meta.y = 1; }", ""),
        ("meta.y = hdr.g.a; if (hdr.g.isValid()) { meta.y = 1; }", ""),
        ("if (hdr.h.isValid()) { meta.y = hdr.g.a; }", ""),
        ("a();", ""),
        ("t.apply();", ""),
        ("t.apply(); meta.y = hdr.g.a;", "hdr.h.a: exact;"),
        ("if (meta.flag) { meta.y = 1; } meta.y = hdr.g.a;", ""),
    ],
)
def test_a_read_of_a_header_that_the_parser_may_not_have_extracted(
    build: Build, apply: str, key: str
) -> None:
    parts = {"declarations": TWO_HEADERS, "parser": OPTIONAL_PARSER, "locals": ACTION % key}
    found = [w for w in build(apply=apply, **parts).warnings if w.option == "invalid-header"]
    assert [w.span.fragment() for w in found] == ["hdr.g.a"]
    assert found[0].hint in (
        "read it only if hdr.g.isValid()",
        "extract hdr.g, or call hdr.g.setValid(), before this",
    )


@pytest.mark.parametrize(
    ("apply", "key"),
    [
        ("if (hdr.g.isValid()) { meta.y = hdr.g.a; }", ""),
        ("if (!hdr.g.isValid()) { exit; } meta.y = hdr.g.a;", ""),
        ("if (hdr.g.isValid()) { meta.y = 1; } meta.y = hdr.g.a;", ""),
        ("if (hdr.h.isValid()) { meta.y = hdr.g.a; } else if (hdr.g.isValid()) { meta.y = 1; }", ""),
        ("meta.y = hdr.g.isValid() ? hdr.g.a : 0;", ""),
        # what the program knows from something else may imply that the header is valid
        ("if (hdr.h.a == 1) { meta.y = hdr.g.a; }", ""),
        ("if (hdr.h.a == 1 && hdr.g.a == 1) { meta.y = 1; }", ""),
        ("if (hdr.h.a != 1) { return; } meta.y = hdr.g.a;", ""),
        ("if (hdr.h.a != 1) { mark_to_drop(standard_metadata); } meta.y = hdr.g.a;", ""),
        ("meta.y = hdr.h.a == 1 ? hdr.g.a : 0;", ""),
        ("if (t.apply().hit) { meta.y = hdr.g.a; }", "hdr.h.a: exact;"),
        ("t.apply();", "hdr.h.a: exact;"),
        ("if (meta.flag) { hdr.g.setValid(); } meta.y = hdr.g.a;", ""),
    ],
)
def test_a_read_of_a_header_that_the_program_may_know_to_be_valid(build: Build, apply: str, key: str) -> None:
    parts = {"declarations": TWO_HEADERS, "parser": OPTIONAL_PARSER, "locals": ACTION % key}
    assert [w for w in build(apply=apply, **parts).warnings if w.option == "invalid-header"] == []


def test_a_long_condition_is_followed_once(build: Build) -> None:
    """Twice for each && would be 2^60 times."""
    condition = " && ".join(["hdr.h.a == 1"] * 60)
    chosen = "meta.y == 1 ? 8w1 : " * 60
    apply = f"if ({condition}) {{ meta.y = 1; }} meta.y = {chosen}8w0;"
    assert warned(build(declarations=TWO_HEADERS, parser=OPTIONAL_PARSER, apply=apply)) == []


# Programs


@pytest.mark.slow
def test_programs_of_the_switchs_tests_get_no_false_warnings() -> None:
    folders = (HERE.parent.parent / "p4switch" / name for name in ("programs", "stf"))
    found = {
        (path.name, warning.option)
        for folder in folders
        for path in sorted(folder.glob("*.p4"))
        for warning in compile_file(path).warnings
    }
    assert found == {
        ("invalid.p4", "invalid-header"),  # which is what these two are about
        ("invalid_cloned.p4", "invalid-header"),
        ("parsing.p4", "unsupported"),  # an explicit reject
        ("parsing.p4", "select-default"),  # a packet that no case matches
        ("entries.p4", "duplicate-keys"),  # of which the first or the one of higher priority wins
    }


def test_a_header_at_a_computed_index_is_written_without_a_warning(build: Callable[..., Compiled]) -> None:
    declared = "header h_t { bit<8> a; } struct headers { h_t h; h_t[2] s; }"
    assert build(declarations=declared, apply="hdr.s[hdr.h.a].a = 1;").json
