from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from fanin.p4compiler import Compiled, CompileError, compile_file
from tests.p4compiler.conftest import HEADERS, source

Build = Callable[..., Compiled]
Complain = Callable[..., str]


def first_line(text: str) -> str:
    return text.split("\n")[0].partition(": error: ")[2]


# The whole message


def test_an_error_shows_place_line_caret_and_hint(complain: Complain) -> None:
    found = complain(apply="\n        meta.x = meta.y;\n    ")
    assert found == textwrap.dedent("""\
        test.p4:13:18: error: a value of type bit<8> stands where bit<16> is needed
                  meta.x = meta.y;
                           ^~~~~~
          hint: cast it: (bit<16>)meta.y""")


def test_an_error_in_what_a_macro_wrote_shows_the_call_and_the_macro(complain: Complain) -> None:
    declarations = "#define SET(t) t = meta.y;\nheader h_t { bit<8> a; }\nstruct headers { h_t h; }"
    found = complain(declarations=declarations, apply="\n        SET(meta.x)\n    ")
    assert found == textwrap.dedent("""\
        test.p4:14:9: error: a value of type bit<8> stands where bit<16> is needed
                  SET(meta.x)
                  ^~~
        test.p4:3:20: note: in the expansion of macro 'SET'
          #define SET(t) t = meta.y;
                             ^
          hint: cast it: (bit<16>)x""")


def test_errors_in_several_statements_are_reported_at_once(complain: Complain) -> None:
    found = complain(apply="meta.z = 1; meta.x = 2; meta.flag = 3; nothing();")
    assert found.count(": error: ") == 3
    assert "metadata has no field 'z'" in found
    assert "a value of type int stands where bool is needed" in found
    assert "there is no function or action 'nothing'" in found


def test_what_has_an_error_in_its_declaration_is_not_reported_again_where_it_is_used(
    complain: Complain,
) -> None:
    found = complain(
        locals="table t { key = { hdr.h.a: exakt; } actions = { NoAction; } }", apply="t.apply();"
    )
    assert found.count(": error: ") == 1
    assert "there is no match kind 'exakt'" in found
    assert "did you mean 'exact'?" in found


# Types


@pytest.mark.parametrize(
    "statement",
    [
        "meta.x = 5;",
        "meta.x = 16w5;",
        "meta.x = (bit<16>)meta.y;",
        "meta.x = meta.y ++ meta.y;",
        "meta.y = meta.x[15:8];",
        "meta.x[7:0] = meta.y;",
        "meta.flag = meta.x == 5 && hdr.h.isValid();",
        "meta.x = meta.flag ? 16w1 : 0;",
        "hdr.h.s = hdr.h.s |+| -1;",
        "hdr.h.s = (int<8>)meta.y;",
        "meta.x = meta.x << meta.y;",
        "meta.x = meta.x << 3;",
        "meta.y = (bit<8>)(bit<1>)meta.flag;",
        "hdr.h = { 1, 2, 3, 4 };",
        "hdr.h = { a = 1, b = 2, c = 3, s = -4 };",
        "meta.flag = hdr.h == { 1, 2, 3, 4 };",
        "bit<16> local = meta.x; meta.x = local + 1;",
        "const bit<16> c = 1 << 4; meta.x = c;",
        "if (meta.x > 3) { return; } else { exit; }",
        "meta.flag = standard_metadata.parser_error == error.NoError;",
    ],
)
def test_statements_that_are_p4(build: Build, statement: str) -> None:
    build(apply=statement)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("meta.x = meta.x + meta.y;", "'+' cannot be applied to bit<16> and bit<8>"),
        ("meta.x = hdr.h.s;", "a value of type int<8> stands where bit<16> is needed"),
        ("meta.flag = meta.x == meta.y;", "'==' cannot compare bit<16> with bit<8>"),
        ("meta.flag = !meta.x;", "'!' needs a bool, not bit<16>"),
        ("meta.flag = meta.x && meta.flag;", "'&&' needs a bool, not bit<16>"),
        ("if (meta.x) { }", "a condition is a bool, not bit<16>"),
        ("meta.x = meta.flag ? meta.x : meta.y;", "the branches of ?: have different types: bit<16> and bit<8>"),
        ("meta.x = meta.y ++ 3;", "'++' joins bit<> values, not int"),
        ("meta.y = meta.x[16:9];", "[16:9] is not a slice of bit<16>"),
        ("meta.y = meta.x[0:7];", "[0:7] is not a slice of bit<16>"),
        ("meta.x = (bit<16>)hdr.h.s;", "int<8> cannot be cast to bit<16>"),
        ("hdr.h.s = hdr.h.s / 2;", "'/' is not defined for int<8>"),
        ("meta.x = meta.x / 0;", "division by zero"),
        ("meta.x = meta.x << hdr.h.s;", "a shift by int<8>"),
        ("hdr.h = { 1, 2 };", "h_t takes 4 values, not 2"),
        ("tuple<bit<8>> t = { 1, 2 };", "tuple<bit<8>> takes 1 value, not 2"),
        ("hdr.h = { a = 1 };", "fields of h_t are missing: b, s, c"),
        ("5 = meta.x;", "this cannot be written"),
        ("meta.x + 1 = 2;", "this is not a statement"),
        ("I.nothing();", "a type stands where a value is needed"),
        ("hdr.h.pop_front(1);", "h_t has no method 'pop_front'"),
        ("hdr.h.isValid();", "isValid() without using its value"),
        ("meta.flag = error.Nope == error.NoError;", "there is no error 'Nope'"),
        ("int x = 5;", "a variable cannot be of type int"),
        ("int<0> x;", "int<0>: a width is between 1 and 65536"),
        ("bit<65537> x;", "bit<65537>: a width is between 0 and 65536"),
        ("const bit<8> c = meta.y;", "a constant's value must be known when compiling"),
        ("meta.x = 1; return 5;", "nothing is returned here"),
        ("static_assert(1 == 2, \"so it is\");", "static assertion failed: so it is"),
        ("hash(meta.x, HashAlgorithm.crc64, 16w0, { meta.x }, 16w4);", "enum HashAlgorithm has no member 'crc64'"),
        ("random(meta.x, 0);", "random() takes 3 arguments, not 2"),
    ],
)  # fmt: skip
def test_statements_that_are_not(complain: Complain, statement: str, message: str) -> None:
    assert first_line(complain(apply=statement)) == message


def test_types_with_equal_fields_are_still_different_types(complain: Complain) -> None:
    structs = "header h_t { bit<8> a; }\nheader g_t { bit<8> a; }\nstruct headers { h_t h; g_t g; }"
    found = complain(declarations=structs, apply="hdr.h = hdr.g;")
    assert first_line(found) == "a value of type g_t stands where h_t is needed"


def test_a_literal_that_does_not_fit_is_a_warning_and_wraps(build: Build) -> None:
    (warning,) = build(apply="meta.y = 300;").warnings
    assert str(warning).startswith("test.p4:12:22: warning: 300 does not fit in bit<8>; it becomes 44")


def test_enums_and_new_types_are_types_of_their_own(build: Build, complain: Complain) -> None:
    declarations = """enum bit<8> Kind { one = 1, two = 2 }
        enum Plain { a, b }
        type bit<16> port_t;
        header h_t { Kind k; }
        struct headers { h_t h; }"""
    build(
        declarations=declarations,
        apply="if (hdr.h.k == Kind.two) { meta.y = Kind.one; } port_t p = (port_t)meta.x;",
    )
    assert "Plain stands where" in complain(declarations=declarations, apply="meta.y = Plain.a;")
    assert "bit<8> stands where Kind" in complain(declarations=declarations, apply="hdr.h.k = meta.y;")
    assert "port_t" in complain(declarations=declarations, apply="port_t p = meta.x;")


# Directions


def test_an_in_parameter_cannot_be_written(complain: Complain) -> None:
    control = "control C(in bit<16> p) { apply { p = 1; } }"
    found = complain(declarations=f"{control} header h_t {{ }} struct headers {{ h_t h; }}")
    assert first_line(found) == "'p' cannot be written: it is an 'in' parameter"


def test_an_actions_data_cannot_be_written(complain: Complain) -> None:
    found = complain(locals="action a(bit<16> p) { p = 1; }")
    assert first_line(found) == "'p' cannot be written: it is a parameter without a direction"


def test_what_is_written_must_have_the_very_type(complain: Complain) -> None:
    found = complain(locals="register<bit<16>>(4) r;", apply="r.read(meta.y, 0);")
    assert first_line(found) == "'result' writes bit<16>, not bit<8>"


def test_data_parameters_come_last(complain: Complain) -> None:
    found = complain(locals="action a(bit<8> p, inout bit<8> q) { }")
    assert first_line(found) == "a parameter with a direction after one without"


# Tables


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("key = { hdr.h.a: exact; } actions = { b; }", "there is no action 'b'"),
        ("actions = { a; a; }", "action 'a' is listed twice"),
        ("actions = { a; } default_action = NoAction();", "'NoAction' is not in the table's list of actions"),
        ("actions = { a; } default_action = a();", "'a' takes 1 argument, not 0"),
        ("actions = { a; } default_action = a(meta.x);", "an action's data must be known when compiling"),
        ("key = { hdr.h.a + 1: exact; } actions = { a; }", "a key that is computed needs a name for the control plane"),
        ("key = { hdr.h: exact; } actions = { a; }", "a value of type h_t cannot be a key"),
        ("key = { hdr.h.a: exact; } actions = { a; } const entries = { (1, 2): a(1); }", "1 key is needed, not 2"),
        ("key = { hdr.h.a: exact; } actions = { a; } const entries = { 1 &&& 1: a(1); }",
         "a key of kind exact needs a value"),
        ("key = { hdr.h.a: lpm; } actions = { a; } const entries = { 1 &&& 5: a(1); }",
         "the mask of an lpm key is a prefix: ones, then zeros"),
        ("actions = { a; } const entries = { _: a(1); }", "table 't' has no key that an entry could match"),
        ("actions = { a; } counters = c;", "there is no name 'c'"),
        ("actions = { a; } size = meta.x;", "a table's size must be a number known when compiling"),
    ],
)  # fmt: skip
def test_tables_that_are_wrong(complain: Complain, table: str, message: str) -> None:
    assert first_line(complain(locals=f"action a(bit<16> p) {{ }} table t {{ {table} }}")) == message


@pytest.mark.parametrize(
    ("parts", "message", "hint"),
    [
        ({"locals": "action a() { a(); }"}, "'a' is used in its own declaration", "P4 has no recursion"),
        (
            {"declarations": HEADERS + "\nbit<8> f(in bit<8> x) { return f(x); }"},
            "'f' is used in its own declaration",
            "P4 has no recursion",
        ),
        (
            {"declarations": HEADERS + "\ncontrol C() { C() c; apply {} }"},
            "'C' is used in its own declaration",
            "P4 has no recursion",
        ),
        (
            {"locals": "action a() { t.apply(); }\n table t { key = { meta.x: exact; } actions = { a; } }"},
            "table 't' cannot be applied in what is declared before it",
            "apply it in the control's apply block, before or after the action",
        ),
        (
            {"locals": "action a() { b(); }\n action b() { a(); }"},
            "'b' is declared only further down",
            "move its declaration, test.p4:12, before this",
        ),
        (
            {"declarations": "struct headers { h_t h; }\nheader h_t { bit<8> a; }"},
            "'h_t' is declared only further down",
            "move its declaration, test.p4:4, before this",
        ),
    ],
)
def test_what_is_used_before_it_is_declared(
    complain: Complain, parts: dict[str, str], message: str, hint: str
) -> None:
    found = complain(**parts)
    assert first_line(found) == message
    assert f"\n  hint: {hint}" in found


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("t.apply();", "a table"),
        ("if (t.apply().hit) { meta.y = 1; }", "a table"),
        ("switch (t.apply().action_run) { NoAction: { meta.y = 1; } }", "a table"),
        ("c.apply();", "a control"),
    ],
)
def test_what_cannot_be_applied_in_an_action(complain: Complain, body: str, what: str) -> None:
    found = complain(
        declarations=HEADERS + "\ncontrol C() { apply {} }",
        locals=f"C() c; table t {{ actions = {{ NoAction; }} }} action a() {{ {body} }}",
        apply="a();",
    )
    assert first_line(found) == f"{what} cannot be applied in an action"


@pytest.mark.parametrize(
    ("property_", "made"),
    [
        ("counters = direct_counter(CounterType.packets);", "direct_counters"),
        ("implementation = action_profile(4);", "action_profiles"),
    ],
)
def test_an_object_that_nothing_names_is_named_after_its_table(
    build: Build, property_: str, made: str
) -> None:
    kind = property_.split()[0]
    table = f"table t {{ key = {{ meta.y: exact; }} actions = {{ NoAction; }} {property_} }}"
    compiled = build(locals=table, apply="t.apply();")
    assert [x.preamble.name for x in getattr(compiled.p4info, made)] == [f"I.t_{kind}"]
    assert [w.message for w in compiled.warnings] == [
        f"an object without a name is 't_{kind}' for the control plane; p4c leaves it out of P4Info"
    ]


@pytest.mark.parametrize(
    ("kind", "key", "hint"),
    [
        ("lpm", "0x0a00 / 8", "write the prefix with a mask: 0x0a00 &&& 0xff00"),
        ("range", "9 - 7", "write 9 .. 7"),
    ],
)
def test_a_prefix_or_range_in_another_notation_is_a_warning(
    build: Build, kind: str, key: str, hint: str
) -> None:
    entries = f"const entries = {{ {key}: NoAction(); }}"
    table = f"table t {{ key = {{ meta.x: {kind}; }} actions = {{ NoAction; }} {entries} }}"
    [warning] = build(locals=table, apply="meta.x = 1; t.apply();").warnings
    assert (warning.option, warning.hint) == ("mismatch", hint)


def test_a_signed_literal_of_width_0_is_refused(complain: Complain) -> None:
    assert first_line(complain(apply="meta.y = meta.y ++ 0s0;")) == "a literal of width 0"


def test_keys_and_data_of_width_0_have_no_width_in_p4info(build: Build) -> None:
    info = build(
        locals="bit<0> none; action a(bit<0> x) { none = x; } table t { key = { none: exact; } actions = { a; } }",
        apply="none = 0; t.apply();",
    ).p4info
    assert info.tables[0].match_fields[0].bitwidth == 0
    assert [p.bitwidth for a in info.actions for p in a.params] == [0]


def test_a_literal_of_width_0_is_0(build: Build) -> None:
    [warning] = build(apply="meta.y = meta.y ++ 0w1;").warnings
    assert warning.message == "1 does not fit in bit<0>; it becomes 0"


def test_a_constant_can_be_cast_to_int(build: Build, complain: Complain) -> None:
    declarations = (
        HEADERS + " enum bit<8> e_t { A = 200 } const int SUM = (int)8w255 + (int)-8s1 + (int)e_t.A;"
    )
    compiled = build(declarations=declarations, apply="meta.x = SUM + (int)16w1;")
    [assignment] = [p for a in compiled.json["actions"] for p in a["primitives"]]
    assert assignment["parameters"][1]["value"] == "0x01c7"
    message = "only a value known when compiling can be cast to int"
    assert first_line(complain(apply="meta.x = (bit<16>)((int)meta.y + 1);")) == message


def test_a_number_without_a_width_becomes_a_new_type(build: Build) -> None:
    compiled = build(
        declarations=HEADERS + "\ntype bit<16> vrf_t; const vrf_t DEFAULT = 7;",
        locals="""vrf_t v; action a(vrf_t to) { v = to; }
        table t { key = { v: exact; } actions = { a; } const default_action = a(5); const entries = { 3: a(4); } }""",
        apply="v = 2; t.apply(); if (v == DEFAULT) { meta.x = (bit<16>)v; }",
    )
    assert compiled.warnings == ()
    [table] = [t for t in compiled.json["pipelines"][0]["tables"] if t["name"] == "I.t"]
    assert [k["key"] for k in table["entries"][0]["match_key"]] == ["0x0003"]
    assert table["entries"][0]["action_entry"]["action_data"] == ["0x4"]


def test_a_number_without_a_width_is_not_compared_with_a_new_type(complain: Complain) -> None:
    found = complain(declarations=HEADERS + "\ntype bit<16> t;", apply="t v = 1; if (v == 1) {}")
    assert first_line(found) == "'==' cannot compare t with int"


def test_an_unknown_property_is_a_warning(build: Build) -> None:
    compiled = build(locals="table t { actions = { NoAction; } siz = 4; }", apply="t.apply();")
    assert [w.message for w in compiled.warnings] == ["table property 'siz' is unknown and has no effect"]
    assert compiled.warnings[0].hint == "did you mean 'size'?"


@pytest.mark.parametrize("body", ["bit<16> p = 1; meta.x = p;", "if (p == 1) { bit<8> p; }"])
def test_a_variable_does_not_hide_a_parameter(complain: Complain, body: str) -> None:
    found = complain(locals=f"action a(bit<16> p) {{ {body} }}", apply="a(1);")
    assert first_line(found) == "'p' is already the name of a parameter"
    assert "note: the other is here" in found


@pytest.mark.parametrize("arguments", ["1, y = 2", "x = 1, 2"])
def test_all_arguments_have_names_or_none_has(complain: Complain, arguments: str) -> None:
    found = complain(locals="action a(in bit<8> x, in bit<8> y) { }", apply=f"a({arguments});")
    assert first_line(found) == "either all arguments have names, or none has"
    assert "\n  hint: write a(x = ..., y = ...)" in found


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ("key = { meta.x: exact; } actions = { a; } key = { meta.y: exact; }", "key"),
        ("actions = { a; } actions = { NoAction; }", "actions"),
        ("actions = { a; } default_action = a; const default_action = NoAction;", "default_action"),
        (
            "key = { meta.x: exact; } actions = { a; } const entries = { 1: a; } const entries = { 2: a; }",
            "entries",
        ),
        ("actions = { a; } counters = c; counters = d;", "counters"),
    ],
)
def test_a_property_given_twice_is_refused(complain: Complain, properties: str, name: str) -> None:
    counters = "direct_counter(CounterType.packets) c; direct_counter(CounterType.bytes) d;"
    found = complain(locals=f"{counters} action a() {{ }} table t {{ {properties} }}", apply="t.apply();")
    assert first_line(found) == f"table 't' has '{name}' twice"
    assert "note: the other is here" in found


@pytest.mark.parametrize(
    ("subject", "label", "other"), [("t.apply().action_run", "a", "b"), ("meta.x", "1", "0x2")]
)
def test_labels_of_a_switch_differ_and_default_is_the_last(
    complain: Complain, subject: str, label: str, other: str
) -> None:
    table = "action a() { } action b() { } table t { actions = { a; b; } default_action = b; }"

    def switch(*labels: str) -> str:
        return complain(
            locals=table, apply=f"switch ({subject}) {{ {' '.join(f'{x}: {{ }}' for x in labels)} }}"
        )

    assert first_line(switch(label, other, label)) == "duplicate label"
    for labels in (("default", label), (label, "default", "default")):
        found = switch(*labels)
        assert first_line(found) == "no label comes after default"
        assert "\n  hint: move the default to the end" in found


def test_a_switch_knows_the_tables_actions(complain: Complain) -> None:
    table = "action a() { } action b() { } table t { actions = { a; } }"
    found = complain(locals=table, apply="switch (t.apply().action_run) { b: { } }")
    assert first_line(found) == "'b' is not an action of table 't'"


# Parsers and the package


@pytest.mark.parametrize(
    ("parser", "message"),
    [
        ("state begin { transition accept; }", "parser 'P' has no state 'start'"),
        ("state start { transition next; }", "there is no state 'next'"),
        ("state start { transition select(hdr.h) { _: accept; } }", "a select over h_t is not supported"),
        ("state start { transition select(hdr.h.a) { 1 .. 0: accept; } }", "the range 1 .. 0 is empty"),
        (
            "state start { packet.extrakt(hdr.h); transition accept; }",
            "there is no method of packet_in 'extrakt'",
        ),
        (
            "state start { packet.extract(meta.x); transition accept; }",
            "only a header can be extracted, not bit<16>",
        ),
    ],
)
def test_parsers_that_are_wrong(complain: Complain, parser: str, message: str) -> None:
    assert first_line(complain(parser=parser)) == message


def test_a_program_has_one_main(tmp_path: Path) -> None:
    path = tmp_path / "test.p4"
    path.write_text(source() + "V1Switch(P(), V(), I(), E(), U(), D()) main;\n")
    with pytest.raises(CompileError, match="the program has two 'main' packages"):
        compile_file(path)


def test_a_program_without_main_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "empty.p4"
    path.write_text("#include <core.p4>\nconst bit<8> x = 1;\n")
    with pytest.raises(CompileError, match="the program has no 'main' package"):
        compile_file(path)


def test_a_package_that_only_has_the_name_of_the_architectures_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "test.p4"
    path.write_text(
        """
        parser P(); control C(); package V1Switch(P p, C c);
        parser MyP() { state start { transition accept; } }
        control MyC() { apply { } }
        V1Switch(MyP(), MyC()) main;
        """
    )
    with pytest.raises(CompileError, match=r"this 'V1Switch' is not the one of v1model\.p4"):
        compile_file(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("I(), E()", "I(), V()", "'V' is not the architecture's Egress"),
        ("P(), V()", "I(), V()", "'I' is not the architecture's Parser"),
        ("control E(inout headers", "control E(in headers",
         "'E' has 'in headers hdr', the architecture gives 'inout headers'"),
        ("D()) main", "D()) other", "the package's instance must be called 'main', not 'other'"),
    ],
)  # fmt: skip
def test_the_architecture_checks_its_blocks(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "wrong.p4"
    path.write_text(source().replace(old, new))
    with pytest.raises(CompileError) as failure:
        compile_file(path)
    assert first_line(str(failure.value)) == message


# What is not supported is refused


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"declarations": "T f<T>(in T x) { return x; } "}, "generic functions are not supported"),
        ({"update": "if (meta.flag) { hdr.h.a = 1; }"}, "only update_checksum() is supported here"),
        ({"declarations": "header h_t { bit<3> a; } struct headers { h_t h; }"},
         "header h_t has 3 bits, not whole bytes"),
        ({"apply": "int<1> one = 0; hdr.h.s = (int<8>)one;"}, "BMv2 has no fields of type int<1>"),
        ({"apply": "meta.x = meta.x << meta.x;"}, "the amount of a shift has at most 8 bits on this target"),
        ({"locals": "action a(bool b) { }  table t { actions = { a; } }", "apply": "t.apply();"},
         "an action's data cannot be of type bool on this target"),
        ({"locals": "table t { actions = { NoAction; } }", "apply": "t.apply(); meta.x = 1; t.apply();"},
         "table 't' is applied twice with different things to follow"),
    ],
)  # fmt: skip
def test_refusals(complain: Complain, parts: dict[str, str], message: str) -> None:
    assert message in complain(**parts).replace("'I.t'", "'t'")


def test_a_hint_to_cast_a_slice_can_be_copied(complain: Callable[..., str]) -> None:
    found = complain(apply="bit<32> x; x = hdr.h.b[7:0];")
    assert "cast it: (bit<32>)hdr.h.b[7:0]" in found
