"""Names that the control plane, or BMv2's JSON, could not tell apart."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from fanin.p4compiler import Compiled
from fanin.p4switch.engine.engine import Engine
from tests.p4compiler.conftest import HEADERS

Build = Callable[..., Compiled]
Complain = Callable[..., str]
KEY = "key = { hdr.h.a: exact; } actions = { NoAction; }"


def test_both_places_are_shown(complain: Complain) -> None:
    found = complain(
        locals='\n    @name(".r") register<bit<8>>(4) one;\n    @name(".r") register<bit<8>>(4) two;\n',
        apply="one.write(0, 5); two.write(0, 7);",
    )
    assert found == textwrap.dedent("""\
        test.p4:13:37: error: two registers are called 'r' in the control plane
              @name(".r") register<bit<8>>(4) two;
                                              ^~~
        test.p4:12:37: note: the other is here
              @name(".r") register<bit<8>>(4) one;
                                              ^~~
          hint: give one of them another name: @name("...") before the register""")


@pytest.mark.parametrize(
    ("locals_", "apply", "message"),
    [
        (
            """@name(".c") counter(4, CounterType.bytes) a; @name(".c") counter(4, CounterType.bytes) b;""",
            "a.count(0); b.count(1);",
            "two counters are called 'c'",
        ),
        (
            f"""@name(".c") counter(4, CounterType.bytes) a; @name(".c") direct_counter(CounterType.bytes) b;
            table t {{ {KEY} counters = b; }}""",
            "a.count(0); t.apply();",
            "two counters are called 'c'",
        ),
        (
            """@name(".m") meter(4, MeterType.bytes) a; @name(".m") meter(4, MeterType.bytes) b;""",
            "a.execute_meter(0, meta.y); b.execute_meter(0, meta.y);",
            "two meters are called 'm'",
        ),
        (
            f"""@name(".p") action_profile(4) a; @name(".p") action_selector(HashAlgorithm.crc16, 4, 8) b;
            table t {{ {KEY} implementation = a; }}
            table u {{ key = {{ hdr.h.a: exact; hdr.h.b: selector; }} actions = {{ NoAction; }}
                implementation = b; }}""",
            "t.apply(); u.apply();",
            "two action profiles are called 'p'",
        ),
        (
            f"""@name("t") table a {{ {KEY} }} table t {{ {KEY} }}""",
            "a.apply(); t.apply();",
            "two tables are called 'I.t'",
        ),
        (
            """@name(".f") action a() { meta.x = 1; } @name(".f") action b() { meta.x = 2; }
            table t { key = { hdr.h.a: exact; } actions = { a; b; } }""",
            "t.apply();",
            "two actions are called 'f'",
        ),
        (
            """@name(".f") action a(bit<8> v) { meta.y = v; } @name(".f") action b(bit<16> v) { meta.x = v; }
            table t { key = { hdr.h.a: exact; } actions = { a; } }
            table u { key = { hdr.h.a: exact; } actions = { b; } }""",
            "t.apply(); u.apply();",
            "two actions are called 'f'",
        ),
        (
            """table t { key = { hdr.h.a: exact @name("k"); hdr.h.b: exact @name("k"); } actions = { NoAction; } }""",
            "t.apply();",
            "two elements of the key are called 'k'",
        ),
        (
            """table t { key = { hdr.h.a: exact; hdr.h.a: ternary; } actions = { NoAction; } }""",
            "t.apply();",
            "two elements of the key are called 'hdr.h.a'",
        ),
        (
            """action a(@name("v") bit<8> x, bit<16> v) { meta.y = x; meta.x = v; }
            table t { key = { hdr.h.a: exact; } actions = { a; } }""",
            "t.apply();",
            "two parameters are called 'v'",
        ),
    ],
)
def test_two_of_a_kind_with_one_name(complain: Complain, locals_: str, apply: str, message: str) -> None:
    found = complain(locals=locals_, apply=apply)
    assert f"error: {message} in the control plane" in found
    assert found.count("note: the other is here") == 1


def test_two_controller_headers_with_one_name(complain: Complain) -> None:
    declarations = f"""{HEADERS}
        @controller_header("packet_in") header in_t {{ bit<8> x; }}
        @controller_header("packet_in") header too_t {{ bit<16> x; }}
        @controller_header("packet_out") header out_t {{ bit<16> x; }}"""
    found = complain(declarations=declarations, apply="")
    assert "error: two controller headers are called 'packet_in'" in found
    assert found.count("note: the other is here") == 1


def test_a_table_of_two_instances_with_one_name(complain: Complain) -> None:
    declarations = f"""{HEADERS}
        control C(inout headers hdr) {{ @name(".t") table t {{ {KEY} }} apply {{ t.apply(); }} }}"""
    found = complain(declarations=declarations, locals="C() a; C() b;", apply="a.apply(hdr); b.apply(hdr);")
    assert "two tables are called 't' in the control plane" in found
    assert "hint: its control has several instances: leave out the dot in @name" in found


def test_actions_that_do_the_same_may_have_one_name(build: Build) -> None:
    locals_ = """@name(".f") action a(bit<16> v) { meta.x = v; } @name(".f") action b(bit<16> v) { meta.x = v; }
        table t { key = { hdr.h.a: exact; } actions = { a; } }
        table u { key = { hdr.h.b: exact; } actions = { b; } }"""
    (action,) = build(locals=locals_, apply="t.apply(); u.apply();").p4info.actions[1:]
    assert action.preamble.name == "f"


def test_names_of_several_kinds_may_be_equal(build: Build) -> None:
    locals_ = f"""@name("x") counter(4, CounterType.bytes) c; @name("x") register<bit<8>>(4) r;
        action x(bit<16> v) {{ meta.x = v; }} @name("x") table t {{ {KEY.replace("NoAction", "x")} }}
        table u {{ key = {{ hdr.h.a: exact; hdr.h.a: selector; }} actions = {{ x; NoAction; }}
            implementation = action_selector(HashAlgorithm.crc16, 4, 8); }}"""
    build(locals=locals_, apply="c.count(0); r.write(0, 1); t.apply(); u.apply();")


@pytest.mark.parametrize(
    ("locals_", "message"),
    [
        (
            "@id(5) action a() {} @id(5) action b() {} table t { actions = { a; b; } }",
            "@id 0x1000005 is taken",
        ),
        (
            "table t { key = { hdr.h.a: exact @id(2); hdr.h.b: exact @id(2); } actions = { NoAction; } }",
            "@id 0x2 is taken",
        ),
        (
            "action a(@id(3) bit<8> v, @id(3) bit<8> w) { meta.y = v + w; } table t { actions = { a; } }",
            "@id 0x3 is taken",
        ),
    ],
)
def test_an_identifier_is_given_once(complain: Complain, locals_: str, message: str) -> None:
    found = complain(locals=locals_, apply="t.apply();")
    assert message in found
    assert "note: the other is here" in found


# Names in BMv2's JSON


@pytest.mark.parametrize(
    ("declarations", "message"),
    [
        (
            """@name("x") header h_t { bit<8> a; } @name("x") header g_t { bit<16> a; }
            struct headers { h_t h; g_t g; }""",
            "two types of headers have the name 'x'",
        ),
        (
            'header h_t { bit<8> a; @name("a") bit<8> b; } struct headers { h_t h; }',
            "two fields of h_t have the name 'a': a and b",
        ),
        (
            'header h_t { bit<8> a; } struct headers { h_t h; @name("h") h_t g; }',
            "two fields of headers have the name 'h': h and g",
        ),
        (
            "header scalars_0 { bit<8> a; } struct headers { scalars_0 h; }",
            "'scalars_0' is the name of another type in BMv2's JSON",
        ),
    ],
)
def test_what_the_json_could_not_tell_apart(complain: Complain, declarations: str, message: str) -> None:
    assert message in complain(declarations=declarations)


def test_a_local_header_is_another_than_one_of_the_packet_with_its_name(build: Build) -> None:
    compiled = build(
        declarations="header h_t { bit<8> a; } struct headers { h_t h; h_t g_0; }",
        locals="h_t g;",
        apply="g.setValid(); g.a = 5; hdr.h.a = g.a; standard_metadata.egress_spec = 1;",
    )
    engine = Engine.load(compiled.device_config())
    assert engine.process(0, bytes([1, 2])) == [(1, bytes([5, 2]))]
