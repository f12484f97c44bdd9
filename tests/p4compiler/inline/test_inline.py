"""The names, parameters and copies of nested calls once everything is written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fanin.p4compiler import Compiled
from tests.p4compiler.conftest import HEADERS

Build = Callable[..., Compiled]
Complain = Callable[..., str]

COUNTED = f"""{HEADERS}
control Inner(inout bit<16> value, in bit<8> step)(bit<32> cells) {{
    register<bit<16>>(cells) r;
    action grow(bit<16> by) {{ value = value + by + (bit<16>)step; }}
    table t {{ key = {{ step: exact; }} actions = {{ grow; }} size = cells; }}
    apply {{ r.read(value, (bit<32>)step); t.apply(); }}
}}
control Outer(inout headers hdr, inout bit<16> value) {{
    Inner(4) one;
    @name("second") Inner(8) two;
    apply {{ one.apply(value, hdr.h.a); two.apply(hdr.h.b, 7); }}
}}"""


def names(compiled: Compiled, section: str) -> list[str]:
    return [thing["name"] for thing in compiled.json[section]]


def tables(compiled: Compiled) -> dict[str, dict[str, Any]]:
    return {table["name"]: table for table in compiled.json["pipelines"][0]["tables"]}


def primitives(compiled: Compiled, action: str) -> list[tuple[str, list[Any]]]:
    (found,) = (a for a in compiled.json["actions"] if a["name"] == action)
    return [(p["op"], p["parameters"]) for p in found["primitives"]]


def field(*where: str) -> dict[str, Any]:
    return {"type": "field", "value": list(where)}


@pytest.mark.parametrize(
    "value",
    ["data", "(bit<32>)data", "(bit<32>)(bit<24>)data", "(bit<32>)(bit<16>)data", "(bit<32>)data + 1"],
)
def test_action_data_are_called_otherwise_inside_expressions(build: Build, value: str) -> None:
    """BMv2 knows `runtime_data` as a primitive's parameter and `local` in an expression, not the other way round."""
    width = 32 if value == "data" else 16
    locals_ = f"action a(bit<{width}> data) {{ hdr.h.c = {value}; }} table t {{ actions = {{ a; }} }}"
    ((_, (_, found)),) = primitives(build(locals=locals_, apply="t.apply();"), "I.a")
    assert found["type"] == ("expression" if value.endswith("+ 1") else "runtime_data")
    assert ("local" in str(found)) == value.endswith("+ 1")


def test_controls_inside_controls_give_their_objects_a_path(build: Build) -> None:
    compiled = build(declarations=COUNTED, locals="Outer() outer;", apply="outer.apply(hdr, meta.x);")
    assert names(compiled, "register_arrays") == ["I.outer.one.r", "I.outer.second.r"]
    assert {"I.outer.one.t", "I.outer.second.t"} <= tables(compiled).keys()
    assert {"I.outer.one.grow", "I.outer.second.grow"} <= set(names(compiled, "actions"))


def test_constructor_parameters_are_known_in_each_instance(build: Build) -> None:
    compiled = build(declarations=COUNTED, locals="Outer() outer;", apply="outer.apply(hdr, meta.x);")
    assert [r["size"] for r in compiled.json["register_arrays"]] == [4, 8]
    assert tables(compiled)["I.outer.one.t"]["max_size"] == 4


def test_parameters_become_the_arguments_themselves_where_nobody_can_tell(build: Build) -> None:
    compiled = build(declarations=COUNTED, locals="Outer() outer;", apply="outer.apply(hdr, meta.x);")
    (grow,) = primitives(compiled, "I.outer.one.grow")
    assert grow[1][0] == field("scalars", "metadata.x")
    assert tables(compiled)["I.outer.one.t"]["key"][0]["target"] == ["h", "a"]


def test_an_in_argument_that_the_callee_may_change_is_copied(build: Build) -> None:
    control = f"""{HEADERS}
        control C(in bit<16> before, inout bit<16> after) {{ apply {{ after = after + 1; after = before; }} }}"""
    compiled = build(declarations=control, locals="C() c;", apply="c.apply(meta.x, meta.x);")
    (action,) = compiled.json["actions"]
    (first, second), _, (_, last) = ([x["value"] for x in p["parameters"]] for p in action["primitives"])
    assert second == ["scalars", "metadata.x"]
    assert first == last != second


def test_an_action_called_directly_has_no_data_left(build: Build) -> None:
    compiled = build(locals="action set(bit<16> v) { meta.x = v; }", apply="set(5);")
    assert primitives(compiled, "I.set") == [
        ("assign", [field("scalars", "metadata.x"), {"type": "hexstr", "value": "0x0005"}])
    ]
    assert tables(compiled)["tbl_set"]["default_entry"]["action_data"] == []


def test_an_action_called_by_another_is_written_into_it(build: Build) -> None:
    actions = "action low() { meta.y = 1; } action high(bit<8> v) { low(); hdr.h.a = v; }"
    compiled = build(locals=f"{actions} table t {{ actions = {{ high; }} }}", apply="t.apply();")
    assert [op for op, _ in primitives(compiled, "I.high")] == ["assign", "assign"]
    assert "I.low" not in names(compiled, "actions")


def test_a_tables_action_may_be_bound_to_places(build: Build) -> None:
    parts = (
        "action set(inout bit<16> where, bit<16> v) { where = v; } table t { actions = { set(hdr.h.b); } }"
    )
    compiled = build(locals=parts, apply="t.apply();")
    assert primitives(compiled, "I.set") == [
        ("assign", [field("h", "b"), {"type": "runtime_data", "value": 0}])
    ]


def test_functions_are_written_out_with_their_returns(build: Build) -> None:
    function = f"""{HEADERS}
        bit<16> least(in bit<16> a, in bit<16> b) {{ if (a < b) {{ return a; }} return b; }}"""
    compiled = build(
        declarations=function, locals="action a() { meta.x = least(meta.x, hdr.h.b) + 1; }", apply="a();"
    )
    ops = [op for op, _ in primitives(compiled, "I.a")]
    assert ops == ["_jump_if_zero", "assign", "_jump", "assign", "assign"]


def test_a_control_that_has_objects_is_applied_at_one_place(complain: Complain) -> None:
    found = complain(
        declarations=COUNTED, locals="Outer() o;", apply="o.apply(hdr, meta.x); o.apply(hdr, hdr.h.b);"
    )
    assert "'one' is applied at more than one place" in found


def test_one_without_tables_may_be_applied_twice_and_has_its_objects_once(build: Build) -> None:
    control = f"{HEADERS} control C(inout bit<16> v) {{ register<bit<16>>(2) r; apply {{ r.read(v, 1); }} }}"
    compiled = build(declarations=control, locals="C() c;", apply="c.apply(meta.x); c.apply(hdr.h.b);")
    assert names(compiled, "register_arrays") == ["I.c.r"]
    reads = [p for a in compiled.json["actions"] for p in a["primitives"] if p["op"] == "register_read"]
    assert [r["parameters"][0]["value"] for r in reads] == [["scalars", "metadata.x"], ["h", "b"]]


def test_controls_are_given_to_controls(build: Build, complain: Complain) -> None:
    controls = f"""{HEADERS}
        control any(inout bit<16> v);
        control One(inout bit<16> v) {{ register<bit<16>>(2) r; apply {{ r.read(v, 0); }} }}
        control Two(inout bit<16> v)(any inner) {{ apply {{ inner.apply(v); v = v << 1; }} }}
        control Other(inout bit<8> v) {{ apply {{ v = 1; }} }}"""
    compiled = build(declarations=controls, locals="One() one; Two(one) two;", apply="two.apply(meta.x);")
    assert names(compiled, "register_arrays") == ["I.one.r"]
    found = complain(
        declarations=controls, locals="Other() other; Two(other) two;", apply="two.apply(meta.x);"
    )
    assert "a any is needed, not Other" in found


def test_registers_are_given_to_controls(build: Build) -> None:
    control = f"""{HEADERS}
        control Read(register<bit<16>> cells, out bit<16> v) {{ apply {{ cells.read(v, 1); }} }}"""
    compiled = build(
        declarations=control,
        locals="register<bit<16>>(2) mine; Read() read;",
        apply="read.apply(mine, meta.x);",
    )
    ((op, parameters),) = [
        (p["op"], p["parameters"]) for a in compiled.json["actions"] for p in a["primitives"]
    ]
    assert (op, parameters[1]) == ("register_read", {"type": "register_array", "value": "I.mine"})


def test_arguments_in_a_tables_actions_are_computed_before_it_is_applied(build: Build) -> None:
    declarations = f"{HEADERS} bit<16> twice(inout bit<16> v) {{ v = v + 1; return v << 1; }}"
    actions = "action set(in bit<16> v) { meta.x = v; } table t { actions = { set(twice(hdr.h.b)); } }"
    compiled = build(declarations=declarations, locals=actions, apply="t.apply();")
    first = compiled.json["pipelines"][0]["init_table"]
    assert first != "I.t"
    assert tables(compiled)[first]["base_default_next"] == "I.t"


def test_a_control_may_be_applied_without_an_instance(build: Build) -> None:
    control = f"{HEADERS} control C(inout bit<16> v) {{ register<bit<8>>(2) r; apply {{ v = 1; }} }}"
    assert names(build(declarations=control, apply="C.apply(meta.x);"), "register_arrays") == ["I.C.r"]


def test_a_parser_inside_another_becomes_states_between_its_own(build: Build) -> None:
    parser = """header h_t { bit<8> a; }
        struct headers { h_t h; h_t g; }
        parser Sub(packet_in packet, out h_t where) {
            state start { packet.extract(where); transition select(where.a) { 0: more; _: accept; } }
            state more { transition accept; }
        }"""
    states = """Sub() sub;
        state start { packet.extract(hdr.h); sub.apply(packet, hdr.g); transition select(hdr.g.a) { 1: last; } }
        state last { transition accept; }"""
    (made,) = build(declarations=parser, parser=states).json["parsers"]
    next_states = {s["name"]: [t["next_state"] for t in s["transitions"]] for s in made["parse_states"]}
    assert next_states == {
        "start": ["sub_more", "start_join"],  # with what sub_start does: nobody else leads there
        "sub_more": ["start_join"],
        "start_join": ["last"],
        "last": [None],
    }


def test_if_in_a_parser_becomes_a_select(build: Build) -> None:
    states = "state start { packet.extract(hdr.h); if (hdr.h.a > 3) { meta.x = 1; } transition accept; }"
    (made,) = build(parser=states).json["parsers"]
    by_name = {s["name"]: s for s in made["parse_states"]}
    assert [t["next_state"] for t in by_name["start"]["transitions"]] == ["start_true", None]
    assert by_name["start"]["transitions"][0]["value"] == "0x01"


def test_headers_declared_in_a_control_begin_invalid(build: Build) -> None:
    compiled = build(apply="h_t local; local.a = hdr.h.a; hdr.h = local;")
    (action,) = compiled.json["actions"]
    assert [p["op"] for p in action["primitives"]] == ["remove_header", "assign", "assign_header"]


@pytest.mark.parametrize("swap", ["p = { p.b, p.a };", "p = { b = p.a, a = p.b };"])
def test_a_struct_made_of_its_own_fields_reads_before_it_writes(build: Build, swap: str) -> None:
    declared = f"{HEADERS} struct pair {{ bit<8> a; bit<8> b; }}"
    compiled = build(declarations=declared, apply=f"pair p; p.a = 1; p.b = 2; {swap} meta.y = p.a;")
    (action,) = compiled.json["actions"]
    memory: dict[str, int] = {}
    for p in action["primitives"]:
        target, value = (parameter["value"] for parameter in p["parameters"])
        memory[target[1]] = int(value, 16) if isinstance(value, str) else memory[value[1]]
    assert memory["metadata.y"] == 2


def test_a_call_in_an_index_happens_before_and_the_extern_writes_to_the_place_meant(build: Build) -> None:
    declared = (
        f"{HEADERS} bit<32> next(inout bit<8> counter) {{ counter = counter + 1; return (bit<32>)counter; }}"
    )
    compiled = build(
        declarations=declared, locals="register<bit<16>>(9) r;", apply="r.read(meta.x, next(meta.y));"
    )
    (action,) = compiled.json["actions"]
    *_, read = action["primitives"]
    assert [p["op"] for p in action["primitives"]][-1] == "register_read"
    assert read["parameters"][0] == field("scalars", "metadata.x")


def test_a_computed_key_is_computed_before_every_application(build: Build) -> None:
    locals_ = 'table t { key = { meta.x + 1: exact @name("k"); } actions = { NoAction; } }'
    compiled = build(
        locals=locals_, apply="if (meta.flag) { meta.x = 1; t.apply(); } else { meta.x = 2; t.apply(); }"
    )
    key = tables(compiled)["I.t"]["key"][0]["target"]
    writers = [
        a
        for a in compiled.json["actions"]
        if any(p["parameters"][0]["value"] == key for p in a["primitives"])
    ]
    assert len(writers) == 2


LISTED = """action a(in bit<16> w, bit<16> v) { meta.x = w + v; }
    table t { actions = { a(%s); } default_action = a(%s, 1); }"""


@pytest.mark.parametrize(
    "argument",
    [
        "meta.x",
        "5",
        "meta.x + 5",
        "(bit<16>)meta.y",
        "hdr.h.b",
        "meta.x[7:0] ++ meta.y",
        "meta.flag ? meta.x : 2",
    ],
)
def test_a_default_action_repeats_the_argument_in_the_list(build: Build, argument: str) -> None:
    compiled = build(declarations=HEADERS, locals=LISTED % (argument, argument), apply="t.apply();")
    assert tables(compiled)["I.t"]["default_entry"]["action_data"] == ["0x1"]


@pytest.mark.parametrize(
    ("listed", "given"),
    [
        ("meta.x", "hdr.h.b"),
        ("5", "6"),
        ("meta.x + 5", "meta.x + 6"),
        ("meta.x + 5", "meta.x - 5"),
        ("meta.y[7:4] ++ 12w0", "meta.y[3:0] ++ 12w0"),
        ("(bit<16>)meta.y", "(bit<16>)(bit<4>)meta.y"),
    ],
)
def test_a_default_action_is_bound_as_the_list_says(complain: Complain, listed: str, given: str) -> None:
    found = complain(declarations=HEADERS, locals=LISTED % (listed, given), apply="t.apply();")
    assert "this argument is not the one in the table's list of actions" in found


def test_an_argument_with_a_computed_index_is_written_where_it_was_read(build: Build) -> None:
    declared = "header h_t { bit<8> a; } struct headers { h_t[4] s; h_t h; }"
    body = "action grow(inout bit<8> v) { hdr.h.a = 0; v = v + 1; }"
    compiled = build(
        declarations=declared,
        parser="state start { packet.extract(hdr.h); transition accept; }",
        locals=body,
        apply="grow(hdr.s[hdr.h.a].a);",
    )
    text = str([a for a in compiled.json["actions"] if "test" in a["name"]])
    assert text.count("['h', 'a']") == 1, "the index is read once, before"
