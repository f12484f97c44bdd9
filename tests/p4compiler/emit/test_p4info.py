"""P4Info as p4c makes it; the numbers are those that p4c gives these names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from finsy.proto import p4i
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from fanin.experiments.scenario.compilers import compile_program
from fanin.experiments.scenario.tools import ToolError
from fanin.p4compiler import Compiled, compile_file, nodes
from fanin.p4compiler.emit.p4info_ids import Symbols, field_ids, one_at_a_time
from fanin.p4compiler.source import SourceFile, Span

Build = Callable[..., Compiled]
Complain = Callable[..., str]

ROOT = Path(__file__).parents[3]
PROGRAMS = [ROOT / "p4src/fanin.p4", *sorted((ROOT / "tests/p4switch").rglob("*.p4"))]
# Programs of ours that p4c does not compile, and its message.
NOT_BY_P4C = {
    ROOT / "tests/p4switch/p4runtime/entities/declared.p4": "zero Overflow in priority computation",
    ROOT / "tests/p4switch/stf/zero_width.p4": "Unexpected width 0",
}
TABLE, ACTION = p4i.P4Ids.TABLE, p4i.P4Ids.ACTION


def named(things: Any) -> dict[str, Any]:
    return {thing.preamble.name: thing for thing in things}


# Identifiers and aliases


@pytest.mark.parametrize(
    ("kind", "name", "number"),
    [
        (ACTION, "NoAction", 21257015),
        (ACTION, "MyIngress.drop", 25652968),
        (ACTION, "MyIngress.ipv4_forward", 28792405),
        (TABLE, "MyIngress.ipv4_lpm", 37375156),
        (p4i.P4Ids.COUNTER, "ingress.stats", 304134966),
        (p4i.P4Ids.REGISTER, "ingress.flowlet_id", 384519412),
    ],
)
def test_identifiers_are_p4cs(kind: int, name: str, number: int) -> None:
    symbols = Symbols()
    symbols.add(kind, name)
    symbols.assign()
    assert symbols.id(kind, name) == number


def test_a_collision_takes_the_next_number_in_alphabetical_order() -> None:
    by_hash: dict[int, str] = {}
    number = 0
    while (other := by_hash.setdefault(one_at_a_time(f"n{number}") & 0xFFFFFF, f"n{number}")) == f"n{number}":
        number += 1
    first, second = sorted((other, f"n{number}"))
    symbols = Symbols()
    symbols.add(TABLE, second)
    symbols.add(TABLE, first)
    symbols.assign()
    assert symbols.id(TABLE, second) == symbols.id(TABLE, first) + 1


names = st.lists(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(".".join), min_size=1, unique=True
)


@given(names)
def test_an_alias_is_the_shortest_end_that_is_unique(found: list[str]) -> None:
    symbols = Symbols()
    for name in found:
        symbols.add(TABLE, name)
    symbols.assign()
    for name in found:
        alias = symbols.alias(name)
        assert name == alias or name.endswith(f".{alias}")
        shorter = alias.partition(".")[2]
        if shorter:
            assert sum(n == shorter or n.endswith(f".{shorter}") for n in found) > 1
        if alias != name:
            assert sum(n == alias or n.endswith(f".{alias}") for n in found) == 1


def test_fields_are_numbered_by_place_around_those_that_have_a_number() -> None:
    span = Span(SourceFile("", ()), 1, 0, 1, 0)

    def given_id(number: int) -> nodes.Annotations:
        return (nodes.Annotation(span, "id", (nodes.Integer(span, number, None, False, 10),), str(number)),)

    assert field_ids([(), (), ()]) == [1, 2, 3]
    assert field_ids([given_id(2), (), ()]) == [2, 3, 4]
    assert field_ids([(), given_id(1), ()]) == [2, 1, 3]


# Objects


def test_a_table_with_its_actions(build: Build) -> None:
    locals_ = """@brief("sets x") action a(@id(7) bit<16> v, bit<9> port) { meta.x = v; }
        action b() { }
        direct_counter(CounterType.bytes) hits;
        @id(5) table t {
            key = { hdr.h.a: exact; hdr.h.b: ternary @name("second"); hdr.h.isValid(): exact; hdr.h.c: lpm; }
            actions = { a; @tableonly b; @defaultonly NoAction; }
            default_action = NoAction();
            counters = hits;
            size = 9;
        }"""
    info = build(locals=locals_, apply="t.apply();").p4info
    (table,) = info.tables
    assert (table.preamble.id, table.preamble.name, table.preamble.alias) == (TABLE << 24 | 5, "I.t", "t")
    assert [(f.id, f.name, f.bitwidth, f.match_type) for f in table.match_fields] == [
        (1, "hdr.h.a", 8, p4i.MatchField.EXACT),
        (2, "second", 16, p4i.MatchField.TERNARY),
        (3, "hdr.h.$valid$", 1, p4i.MatchField.EXACT),
        (4, "hdr.h.c", 32, p4i.MatchField.LPM),
    ]
    actions = named(info.actions)
    assert {r.id: r.scope for r in table.action_refs} == {
        actions["I.a"].preamble.id: p4i.ActionRef.TABLE_AND_DEFAULT,
        actions["I.b"].preamble.id: p4i.ActionRef.TABLE_ONLY,
        actions["NoAction"].preamble.id: p4i.ActionRef.DEFAULT_ONLY,
    }
    assert [(p.id, p.name, p.bitwidth) for p in actions["I.a"].params] == [(7, "v", 16), (2, "port", 9)]
    assert actions["I.a"].preamble.doc.brief == "sets x"
    (counter,) = info.direct_counters
    assert list(table.direct_resource_ids) == [counter.preamble.id]
    assert (counter.direct_table_id, counter.spec.unit) == (table.preamble.id, p4i.CounterSpec.BYTES)
    assert (table.size, table.const_default_action_id, table.is_const_table) == (9, 0, False)
    assert table.initial_default_action.action_id == actions["NoAction"].preamble.id


def test_a_constant_default_and_constant_entries(build: Build) -> None:
    locals_ = """action a(bit<16> v) { meta.x = v; }
        table t {
            key = { hdr.h.a: exact; } actions = { a; } const default_action = a(258);
            const entries = { 1: a(2); }
        }"""
    (table,) = build(locals=locals_, apply="t.apply();").p4info.tables
    assert table.const_default_action_id == table.initial_default_action.action_id
    assert [a.value for a in table.initial_default_action.arguments] == [b"\x01\x02"]
    assert (table.is_const_table, table.has_initial_entries) == (True, True)


def test_what_is_hidden_or_unused_is_left_out(build: Build) -> None:
    locals_ = """@hidden action secret() { meta.x = 1; }
        action unused() { meta.x = 1; }
        @hidden table inner { actions = { secret; } default_action = secret(); }
        table never { actions = { unused; } }"""
    info = build(locals=locals_, apply="inner.apply(); meta.y = 2;").p4info
    assert list(info.tables) == []
    assert list(info.actions) == []


def test_extern_objects(build: Build) -> None:
    locals_ = """register<int<32>>(16) r; counter(4, CounterType.packets_and_bytes) c; meter(2, MeterType.bytes) m;
        @max_group_size(10) action_selector(HashAlgorithm.crc32, 64, 16) s;
        table t { key = { hdr.h.a: exact; hdr.h.b: selector; } actions = { NoAction; } implementation = s; }"""
    info = build(locals=locals_, apply="t.apply();").p4info
    (register,), (counter,), (meter,), (profile,) = (
        info.registers,
        info.counters,
        info.meters,
        info.action_profiles,
    )
    assert (register.preamble.id >> 24, register.size, register.type_spec.bitstring.int.bitwidth) == (
        0x16,
        16,
        32,
    )
    assert (counter.preamble.id >> 24, counter.size, counter.spec.unit) == (0x12, 4, p4i.CounterSpec.BOTH)
    assert (meter.preamble.id >> 24, meter.size, meter.spec.unit) == (0x14, 2, p4i.MeterSpec.BYTES)
    assert (profile.with_selector, profile.size, profile.max_group_size) == (True, 64, 10)
    assert info.tables[0].implementation_id == profile.preamble.id
    assert list(profile.table_ids) == [info.tables[0].preamble.id]
    assert [f.name for f in info.tables[0].match_fields] == ["hdr.h.a"]


def test_controller_headers(build: Build) -> None:
    declarations = """@controller_header("packet_in") header in_t { bit<9> port; bit<7> rest; }
        struct headers { in_t h; }"""
    (metadata,) = build(declarations=declarations).p4info.controller_packet_metadata
    assert (metadata.preamble.id >> 24, metadata.preamble.name) == (4, "packet_in")
    assert list(metadata.preamble.annotations) == ['@controller_header("packet_in")']
    assert [(m.id, m.name, m.bitwidth) for m in metadata.metadata] == [(1, "port", 9), (2, "rest", 7)]


def test_types_that_the_control_plane_sees(build: Build) -> None:
    declarations = """@p4runtime_translation("example.org/port", 32) type bit<9> port_t;
        enum bit<8> Kind { a = 1, b = 2 }
        struct note_t { bit<8> a; Kind k; }
        header h_t { Kind k; bit<8> a; }
        struct headers { h_t h; }"""
    locals_ = """action go(port_t p) { note_t n = { hdr.h.a, hdr.h.k }; digest(1, n); }
        table t { key = { hdr.h.k: exact; } actions = { go; } }"""
    info = build(declarations=declarations, locals=locals_, apply="t.apply();").p4info
    (parameter,) = named(info.actions)["I.go"].params
    assert (parameter.bitwidth, parameter.type_name.name) == (32, "port_t")
    assert info.type_info.new_types["port_t"].translated_type.uri == "example.org/port"
    members = info.type_info.serializable_enums["Kind"].members
    assert [(m.name, m.value) for m in members] == [("a", b"\x01"), ("b", b"\x02")]
    (digest,) = info.digests
    assert (digest.preamble.name, digest.type_spec.struct.name) == ("note_t", "note_t")
    assert [m.name for m in info.type_info.structs["note_t"].members] == ["a", "k"]


def test_strings_for_the_control_plane_have_no_width(build: Build) -> None:
    declarations = """@p4runtime_translation("example.org/vrf", string) type bit<8> vrf_t;
        @controller_header("packet_in") header in_t { vrf_t vrf; @hidden bit<7> pad; bit<1> last; }
        struct headers { in_t h; }"""
    locals_ = "action go(vrf_t v) { } table t { key = { hdr.h.vrf: optional; } actions = { go; } }"
    info = build(declarations=declarations, locals=locals_, apply="t.apply();").p4info
    (key,), (parameter,) = named(info.tables)["I.t"].match_fields, named(info.actions)["I.go"].params
    (header,) = info.controller_packet_metadata
    for described in key, parameter, header.metadata[0]:
        assert (described.bitwidth, described.type_name.name) == (0, "vrf_t")
    assert info.type_info.new_types["vrf_t"].translated_type.HasField("sdn_string")
    assert [(m.id, m.name) for m in header.metadata] == [(1, "vrf"), (3, "last")]


def test_an_id_of_another_kind_is_an_error(complain: Complain) -> None:
    found = complain(locals="@id(0x01000001) table t { actions = { NoAction; } }", apply="t.apply();")
    assert "@id 0x1000001 has the prefix of another kind of object" in found


def test_other_annotations_are_handed_on(build: Build) -> None:
    locals_ = '@mine("x", 3) @flags[a=1, b="c"] action a() { } table t { actions = { a; } }'
    info = build(locals=locals_, apply="t.apply();").p4info
    preamble = named(info.actions)["I.a"].preamble
    assert list(preamble.annotations) == ['@mine("x" , 3)']
    (structured,) = preamble.structured_annotations
    assert [(p.key, p.value.WhichOneof("value")) for p in structured.kv_pair_list.kv_pairs] == [
        ("a", "int64_value"),
        ("b", "string_value"),
    ]


def test_objects_stand_in_the_order_of_their_declaration_a_control_s_at_its_instance(build: Build) -> None:
    controls = """header h_t { bit<8> a; bit<16> b; int<8> s; bit<32> c; }
        struct headers { h_t h; }
        action shared() { }
        control Inner(inout bit<16> v) {
            counter(1, CounterType.packets) c;
            action a(bit<16> by) { v = by; c.count(0); }
            table t { key = { v: exact; } actions = { a; shared; } }
            apply { t.apply(); }
        }"""
    own = """counter(1, CounterType.packets) first; Inner() inner; counter(1, CounterType.packets) last;
        action z() { first.count(0); } table early { key = { meta.x: exact; } actions = { z; } }"""
    info = build(
        declarations=controls, locals=own, apply="inner.apply(meta.x); early.apply(); last.count(0);"
    ).p4info
    assert list(named(info.counters)) == ["I.first", "I.inner.c", "I.last"]
    assert list(named(info.tables)) == ["I.inner.t", "I.early"]
    assert [n for n in named(info.actions) if n != "NoAction"] == ["shared", "I.inner.a", "I.z"]


def test_a_digest_of_an_unnamed_type_has_a_number(build: Build) -> None:
    info = build(apply="digest(1, { hdr.h.a });").p4info
    (digest,) = info.digests
    assert digest.preamble.name == "digest_0"
    assert [m.bitstring.bit.bitwidth for m in digest.type_spec.tuple.members] == [8]


def test_types_have_the_names_of_their_annotations(build: Build) -> None:
    declarations = """@name("Kind") enum bit<8> kind_t { a = 1 }
        @name("Port") type bit<8> port_t;
        @name("Inner") struct inner_t { kind_t k; port_t p; }
        @name("Note") struct note_t<T> { T x; inner_t i; }
        header h_t { bit<8> a; }
        struct headers { h_t h; }"""
    locals_ = "action go(port_t p) { } table t { actions = { go; } }"
    apply = "note_t<bit<8>> n = { 1, { kind_t.a, (port_t)2 } }; digest(1, n); digest(2, hdr.h); t.apply();"
    made = build(declarations=declarations, locals=locals_, apply=apply)
    assert [d.preamble.name for d in made.p4info.digests] == ["Note", "h_t"]
    assert [each["name"] for each in made.json["learn_lists"]] == ["Note", "h_t"]
    info = made.p4info.type_info
    kinds = (info.structs, info.headers, info.serializable_enums, info.new_types)
    assert [sorted(kind) for kind in kinds] == [["Inner", "Note"], ["h_t"], ["Kind"], ["Port"]]
    assert [m.type_spec.struct.name for m in info.structs["Note"].members] == ["", "Inner"]
    (parameter,) = named(made.p4info.actions)["I.go"].params
    assert parameter.type_name.name == "Port"


def test_a_control_of_main_keeps_its_name(tmp_path: Path) -> None:
    path = tmp_path / "x.p4"
    text = (ROOT / "tests/p4switch/programs/router.p4").read_text()
    path.write_text(text.replace("control ", '@name("other") control '))
    assert not any(table.preamble.name.startswith("other") for table in compile_file(path).p4info.tables)


def test_tables_refer_to_hidden_actions_by_id(build: Build) -> None:
    locals_ = "@hidden action a() { } table t { actions = { a; NoAction; } default_action = a; }"
    info = build(locals=locals_, apply="t.apply();").p4info
    assert [action.preamble.name for action in info.actions] == ["NoAction"]
    [table] = info.tables
    hidden = (p4i.P4Ids.ACTION << 24) + (one_at_a_time("I.a") & 0xFFFFFF)
    assert [ref.id for ref in table.action_refs] == [hidden, info.actions[0].preamble.id]
    assert table.initial_default_action.action_id == hidden


def test_a_digest_of_a_single_value(build: Build) -> None:
    locals_ = "action go(bit<8> d) { digest(2, d); } table t { actions = { go; } }"
    made = build(locals=locals_, apply="t.apply(); digest(1, hdr.h.a); digest<bit<16>>(3, 5);")
    assert [d.type_spec.bitstring.bit.bitwidth for d in made.p4info.digests] == [8, 8, 16]
    sent = [[e["type"] for e in each["elements"]] for each in made.json["learn_lists"]]
    assert sent == [["field"]] * 3


@pytest.mark.p4c
@pytest.mark.parametrize(
    "program", [path for path in PROGRAMS if path not in NOT_BY_P4C], ids=lambda path: path.stem
)
def test_it_is_p4cs(program: Path) -> None:
    assert compile_file(program).p4info == compile_program(program, "p4c").p4info


@pytest.mark.p4c
@pytest.mark.parametrize(("program", "message"), NOT_BY_P4C.items(), ids=lambda value: Path(value).stem)
def test_what_p4c_does_not_compile(program: Path, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        compile_program(program, "p4c")


def test_the_tokens_of_annotations_are_p4cs(build: Build) -> None:
    compiled = build(
        locals="@refers_to(builtin::multicast_group_table, id) table t { actions = { NoAction; } }",
        apply="t.apply();",
    )
    [table] = compiled.p4info.tables
    assert table.preamble.annotations == ["@refers_to(builtin : : multicast_group_table , id)"]


def test_the_text_reads_back(build: Build) -> None:
    compiled = build(locals="table t { actions = { NoAction; } }", apply="t.apply();")
    assert text_format.Parse(compiled.p4info_text(), p4i.P4Info()) == compiled.p4info
