"""Control flow, tables, actions and parsers as BMv2's JSON has them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fanin.p4compiler import Compiled
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import EntryKey, Exact
from tests.p4compiler.conftest import HEADERS

Complain = Callable[..., str]
Build = Callable[..., Compiled]

ACTIONS = "action a(bit<16> v) { meta.x = v; } action b() { } table t { key = { hdr.h.a: exact; } actions = { a; b; } }"


def ingress(compiled: Compiled) -> dict[str, Any]:
    pipeline: dict[str, Any] = compiled.json["pipelines"][0]
    return pipeline


def table(compiled: Compiled, name: str) -> dict[str, Any]:
    (found,) = (t for t in ingress(compiled)["tables"] if t["name"] == name)
    return dict(found)


def test_an_empty_control_has_no_first_table(build: Build) -> None:
    assert ingress(build())["init_table"] is None


def test_statements_between_tables_are_hidden_actions_named_after_their_line(build: Build) -> None:
    compiled = build(locals=ACTIONS, apply="\n meta.x = 1;\n meta.y = 2;\n t.apply();\n meta.x = 3; ")
    assert [(x["name"], x["base_default_next"]) for x in ingress(compiled)["tables"]] == [
        ("tbl_test13", "I.t"),
        ("I.t", "tbl_test16"),
        ("tbl_test16", None),
    ]
    assert [len(x["primitives"]) for x in compiled.json["actions"] if x["name"].startswith("test")] == [2, 1]


def test_conditions_are_numbered_with_the_tables(build: Build) -> None:
    compiled = build(
        locals=ACTIONS, apply="if (meta.x == 1) { t.apply(); } else if (meta.x == 2) { meta.y = 1; }"
    )
    assert [(c["name"], c["true_next"], c["false_next"]) for c in ingress(compiled)["conditionals"]] == [
        ("node_2", "I.t", "node_4"),
        ("node_4", "tbl_test12", None),
    ]


def test_hit_and_miss_choose_what_comes_next(build: Build) -> None:
    compiled = build(locals=ACTIONS, apply="if (t.apply().hit) { meta.y = 1; } else { b(); }")
    assert table(compiled, "I.t")["next_tables"] == {"__HIT__": "tbl_test12", "__MISS__": "tbl_b"}
    assert table(compiled, "I.t")["base_default_next"] is None


def test_miss_is_the_other_way_round(build: Build) -> None:
    compiled = build(locals=ACTIONS, apply="if (t.apply().miss) { b(); }")
    assert table(compiled, "I.t")["next_tables"] == {"__HIT__": None, "__MISS__": "tbl_b"}


def test_a_hit_inside_an_expression_is_kept_in_a_variable(build: Build) -> None:
    compiled = build(locals=ACTIONS, apply="if (meta.flag && t.apply().hit) { meta.y = 1; }")
    hit = table(compiled, "I.t")["next_tables"]
    assert hit["__HIT__"] != hit["__MISS__"]
    assert len(ingress(compiled)["conditionals"]) == 2


def test_a_switch_leads_by_action(build: Build) -> None:
    compiled = build(
        locals=ACTIONS,
        apply="switch (t.apply().action_run) { a: { meta.y = 1; } default: { meta.y = 2; } } meta.y = 3;",
    )
    nexts = table(compiled, "I.t")["next_tables"]
    assert nexts == {"I.a": "tbl_test12", "I.b": "tbl_test12_0", "NoAction": "tbl_test12_0"}
    assert (
        table(compiled, "tbl_test12")["base_default_next"]
        == table(compiled, "tbl_test12_0")["base_default_next"]
    )


def test_a_case_without_a_body_falls_through(build: Build) -> None:
    compiled = build(locals=ACTIONS, apply="switch (t.apply().action_run) { a: b: { meta.y = 1; } }")
    nexts = table(compiled, "I.t")["next_tables"]
    assert nexts == {"I.a": "tbl_test12", "I.b": "tbl_test12", "NoAction": None}


def test_a_switch_over_a_value_is_a_row_of_conditions(build: Build) -> None:
    compiled = build(apply="switch (meta.x) { 1: 2: { meta.y = 1; } default: { meta.y = 2; } }")
    assert len(ingress(compiled)["conditionals"]) == 1


def test_return_leaves_the_control_and_exit_the_pipeline(build: Build) -> None:
    inner = (
        "header h_t { bit<8> a; } struct headers { h_t h; } control C(inout bit<8> v) { apply { %s v = 9; } }"
    )
    after = "C.apply(meta.y); meta.x = 5;"
    back = build(declarations=inner % "if (v == 1) { return; }", apply=after)
    (condition,) = ingress(back)["conditionals"]
    assert condition["true_next"] == table(back, condition["false_next"])["base_default_next"] is not None
    gone = build(declarations=inner % "if (v == 1) { exit; }", apply=after)
    assert ingress(gone)["conditionals"][0]["true_next"] is None


def test_conditions_in_actions_are_jumps(build: Build) -> None:
    body = "if (meta.x == 1) { meta.y = 1; } else { meta.y = 2; } meta.y = 3;"
    compiled = build(locals=f"action a() {{ {body} }}", apply="a();")
    (action,) = (x for x in compiled.json["actions"] if x["name"] == "I.a")
    ops = [(p["op"], p["parameters"][-1].get("value")) for p in action["primitives"]]
    assert [op for op, _ in ops] == ["_jump_if_zero", "assign", "_jump", "assign", "assign"]
    assert (ops[0][1], ops[2][1]) == ("0x3", "0x4")


# Tables


def test_keys(build: Build) -> None:
    keys = 'hdr.h.a: exact; hdr.h.b & 0xFF0: ternary; hdr.h.isValid(): exact; meta.x + 1: exact @name("sum");'
    compiled = build(
        locals=f"table t {{ key = {{ {keys} standard_metadata.ingress_port: optional; }} actions = {{ NoAction; }} }}",
        apply="t.apply();",
    )
    made = table(compiled, "I.t")
    assert made["match_type"] == "ternary"
    assert [(k["name"], k["match_type"], k["mask"]) for k in made["key"]] == [
        ("hdr.h.a", "exact", None),
        ("hdr.h.b & 0xff0", "ternary", "0x0ff0"),
        ("hdr.h.$valid$", "exact", None),
        ("sum", "exact", None),
        ("standard_metadata.ingress_port", "ternary", None),
    ]
    assert made["key"][2]["target"] == ["h", "$valid$"]
    assert made["key"][3]["target"][0] == "scalars"


def test_entries(build: Build) -> None:
    locals_ = """action a(bit<16> v) { meta.x = v; }
        table t {
            key = { hdr.h.a: lpm; hdr.h.b: range; hdr.h.c: ternary; }
            actions = { a; }
            const entries = {
                (0x80 &&& 0xF0, 1 .. 5, _): a(1);
                (3, _, 7): a(0xFFFF);
            }
        }"""
    made = table(build(locals=locals_, apply="t.apply();"), "I.t")
    assert made["max_size"] == 2
    first, second = made["entries"]
    assert first["match_key"] == [
        {"match_type": "lpm", "key": "0x80", "prefix_length": 4},
        {"match_type": "range", "start": "0x0001", "end": "0x0005"},
        {"match_type": "ternary", "key": "0x00000000", "mask": "0x00000000"},
    ]
    assert second["match_key"] == [
        {"match_type": "lpm", "key": "0x03", "prefix_length": 8},
        {"match_type": "range", "start": "0x0000", "end": "0xffff"},
        {"match_type": "ternary", "key": "0x00000007", "mask": "0xffffffff"},
    ]
    assert (first["priority"], second["priority"]) == (1, 2)
    assert second["action_entry"]["action_data"] == ["0xffff"]


@pytest.mark.parametrize(
    ("wins", "priorities"),
    [("false", [10, 11, 15, 17]), ("true", [6, 5, 1, 3])],  # the smallest wins in the JSON
)
def test_entries_with_priorities_of_their_own(build: Build, wins: str, priorities: list[int]) -> None:
    locals_ = f"""action a(bit<16> v) {{ meta.x = v; }}
        table t {{
            key = {{ hdr.h.a: ternary; }}
            actions = {{ a; }}
            largest_priority_wins = {wins};
            priority_delta = 2;
            entries = {{
                const priority=10: 1: a(1);
                priority=11: 2 &&& 3: a(2);
                priority=15: 4: a(3);
                const _: a(4);
            }}
        }}"""
    compiled = build(locals=locals_, apply="t.apply();")
    assert [e["priority"] for e in table(compiled, "I.t")["entries"]] == priorities
    (info,) = compiled.p4info.tables
    assert info.has_initial_entries
    assert not info.is_const_table


PRIORITIES = """action a(bit<16> v) {{ meta.x = v; }}
    table t {{ key = {{ hdr.h.a: {kind}; }} actions = {{ a; }} {properties} {const} entries = {{ {entries} }} }}"""


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"entries": "1: a(1); priority=9: 2: a(2);"},
            "the first entry has no priority, though a later one does",
        ),
        ({"entries": "priority=-1: 1: a(1);"}, "the priority of this entry is -1: it cannot be negative"),
        (
            {"entries": "priority=12: 1: a(1); 2: a(2); 3: a(3);", "properties": "priority_delta = 10;"},
            "the priority of this entry is -8: it cannot be negative",
        ),
        (
            {"properties": "priority_delta = 0;", "entries": "1: a(1);"},
            "priority_delta is 0: it must be positive",
        ),
        ({"const": "const", "entries": "priority=1: 1: a(1);"}, "const entries cannot have priorities"),
        (
            {"kind": "exact", "entries": "priority=1: 1: a(1);"},
            "entries of table 't' cannot have priorities: its keys are exact or lpm",
        ),
        (
            {"kind": "lpm", "entries": "1: a(1); priority=1: 2: a(1);"},
            "entries of table 't' cannot have priorities: its keys are exact or lpm",
        ),
    ],
)
def test_priorities_that_entries_cannot_have(complain: Complain, parts: dict[str, str], message: str) -> None:
    usual = {"kind": "ternary", "properties": "", "const": ""}
    found = complain(locals=PRIORITIES.format(**(usual | parts)), apply="t.apply();")
    assert f"error: {message}\n" in found


@pytest.mark.parametrize(
    "entries",
    ["priority=9: 1 &&& 1: a(1); priority=9: 3: a(2);", "priority=9: 1: a(1); 2: a(2); priority=8: _: a(3);"],
)
def test_equal_priorities_are_a_warning(build: Build, entries: str) -> None:
    locals_ = PRIORITIES.format(kind="ternary", properties="", const="", entries=entries)
    [warning] = build(locals=locals_, apply="t.apply();").warnings
    assert warning.option == "duplicate-priorities"
    assert "two entries have the priority" in warning.message
    assert "note: the other is here" in str(warning)


def test_the_default_action(build: Build) -> None:
    locals_ = ACTIONS.replace(
        "actions = { a; b; }", "actions = { a; b; } const default_action = a(7); size = 12;"
    )
    made = table(build(locals=locals_, apply="t.apply();"), "I.t")
    entry = made["default_entry"]
    assert (entry["action_const"], entry["action_entry_const"], entry["action_data"]) == (True, True, ["0x7"])
    assert made["actions"][made["action_ids"].index(entry["action_id"])] == "I.a"
    assert made["max_size"] == 12


def test_direct_counters_selectors_and_profiles(build: Build) -> None:
    locals_ = """direct_counter(CounterType.packets) hits;
        action_selector(HashAlgorithm.crc16, 128, 16) group;
        table t { key = { hdr.h.a: exact; hdr.h.b: selector; } actions = { NoAction; } implementation = group; }
        table u { key = { hdr.h.a: exact; } actions = { NoAction; } counters = hits; }"""
    compiled = build(locals=locals_, apply="t.apply(); u.apply();")
    assert table(compiled, "I.t")["type"] == "indirect_ws"
    assert [k["name"] for k in table(compiled, "I.t")["key"]] == ["hdr.h.a"]
    (profile,) = ingress(compiled)["action_profiles"]
    assert profile["selector"] == {"algo": "crc16", "input": [{"type": "field", "value": ["h", "b"]}]}
    assert table(compiled, "I.u")["with_counters"] is True
    (counter,) = compiled.json["counter_arrays"]
    assert (counter["name"], counter["is_direct"], counter["binding"]) == ("I.hits", True, "I.u")


# Externs


def test_externs_are_primitives(build: Build) -> None:
    locals_ = """register<bit<16>>(8) r; counter(4, CounterType.bytes) c; meter(2, MeterType.packets) m;
        action all(bit<32> i) {
            r.read(meta.x, i); r.write(i + 1, meta.x); c.count(i); m.execute_meter(i, meta.y);
            hash(meta.x, HashAlgorithm.crc32, 16w0, { hdr.h.a, 8w5 }, 16w9);
            random(meta.y, 8w0, 8w3);
            mark_to_drop(standard_metadata);
        }
        table t { actions = { all; } }"""
    compiled = build(locals=locals_, apply="t.apply();")
    (action,) = (a for a in compiled.json["actions"] if a["name"] == "I.all")
    assert [p["op"] for p in action["primitives"]] == [
        "register_read", "assign", "register_write", "count", "execute_meter",
        "modify_field_with_hash_based_offset", "modify_field_rng_uniform", "mark_to_drop",
    ]  # fmt: skip
    read, _, write, *_ = action["primitives"]
    assert read["parameters"] == [
        {"type": "field", "value": ["scalars", "metadata.x"]},
        {"type": "register_array", "value": "I.r"},
        {"type": "runtime_data", "value": 0},
    ]
    assert write["parameters"][1]["type"] == "field", "a computed index is put into a variable before"
    (calculation,) = compiled.json["calculations"]
    assert calculation["algo"] == "crc32"
    assert calculation["input"] == [
        {"type": "field", "value": ["h", "a"]},
        {"type": "hexstr", "value": "0x05", "bitwidth": 8},
    ]


LOGGED = """struct pair { bit<8> p; bool q; } header h_t { bit<8> a; bit<16> b; }
struct headers { h_t h; h_t[2] s; } struct both { pair one; h_t two; }"""


@pytest.mark.parametrize(
    ("call", "text", "values"),
    [
        ('"nothing"', "nothing", []),
        ('"{} of {}", { meta.x, hdr.h.a }', "{} of {}", [["scalars", "metadata._x0"], ["h", "a"]]),
        ('"<{}>", { hdr.s[1] }', "<(a:{},b:{})>", [["s[1]", "a"], ["s[1]", "b"]]),
        ('"{}|{}", meta.p', "{}|{}", [["scalars", "metadata._p_p1"], ["scalars", "metadata._p_q2"]]),
        ('"{}{}", { meta.x, meta.p }', "{}(p:{},q:{})", [
            ["scalars", "metadata._x0"], ["scalars", "metadata._p_p1"], ["scalars", "metadata._p_q2"]
        ]),
    ],
)  # fmt: skip
def test_a_message_names_the_fields_of_structs_and_headers(
    build: Build, call: str, text: str, values: list[list[str]]
) -> None:
    compiled = build(declarations=LOGGED, metadata="bit<16> x; pair p;", apply=f"log_msg({call});")
    (message,) = (p for a in compiled.json["actions"] for p in a["primitives"] if p["op"] == "log_msg")
    string, vector = message["parameters"]
    assert string["value"] == text
    assert [value["value"] for value in vector["value"]] == values


def test_a_message_has_as_many_values_as_places(complain: Complain) -> None:
    found = complain(apply='log_msg("{} and {}", { meta.x });')
    assert "the text has 2 places ({}), but the call has 1 value" in found


def test_what_is_read_from_a_signed_register_has_its_sign_again(build: Build) -> None:
    compiled = build(locals="register<int<8>>(8) r;", apply="r.read(hdr.h.s, 0);")
    (action,) = compiled.json["actions"]
    read, again = action["primitives"]
    assert read["op"] == "register_read"
    assert again["parameters"][1]["value"]["value"]["op"] == "two_comp_mod"


def test_checksums(build: Build) -> None:
    compiled = build(
        verify="verify_checksum(hdr.h.isValid(), { hdr.h.a, hdr.h.c }, hdr.h.b, HashAlgorithm.csum16);",
        update="update_checksum_with_payload(true, { hdr.h.a }, hdr.h.b, HashAlgorithm.csum16);",
    )
    update, verify = compiled.json["checksums"]
    assert (update["update"], update["verify"], verify["update"], verify["verify"]) == (
        True,
        False,
        False,
        True,
    )
    assert verify["target"] == ["h", "b"]
    assert update["if_cond"] == {"type": "bool", "value": True}
    inputs = {c["name"]: c["input"] for c in compiled.json["calculations"]}
    assert inputs[update["calculation"]][-1] == {"type": "payload", "value": None}
    assert [i["value"] for i in inputs[verify["calculation"]]] == [["h", "a"], ["h", "c"]]


def test_a_struct_in_a_field_list_is_its_fields(build: Build) -> None:
    compiled = build(
        declarations="""header h_t { bit<8> a; bit<16> b; int<8> s; bit<32> c; }
            struct headers { h_t h; }
            struct pair_t { bit<8> x; bit<16> y; }""",
        metadata="@field_list(1) pair_t p; @field_list(1) bit<8> z;",
        apply="clone_preserving_field_list(CloneType.I2E, 5, 1);",
    )
    (made,) = compiled.json["field_lists"]
    assert [e["value"] for e in made["elements"]] == [
        ["scalars", "metadata._p_x0"],
        ["scalars", "metadata._p_y1"],
        ["scalars", "metadata._z2"],
    ]


def test_a_field_list_has_the_fields_marked_inside_structs(build: Build) -> None:
    compiled = build(
        declarations=HEADERS
        + """
            struct inner_t { @field_list(2) bit<8> a; bit<8> b; }
            struct outer_t { @field_list(1) inner_t i; @field_list(1, 2) bit<16> c; }""",
        metadata="outer_t o; @field_list(1) bit<8> z;",
        apply="clone_preserving_field_list(CloneType.I2E, 5, 1);",
    )
    lists = {f["name"]: [e["value"][1] for e in f["elements"]] for f in compiled.json["field_lists"]}
    assert lists == {
        "field_list1": ["metadata._o_i_a0", "metadata._o_i_b1", "metadata._o_c2", "metadata._z3"],
        "field_list2": ["metadata._o_i_a0", "metadata._o_c2"],
    }


@pytest.mark.parametrize(
    ("declarations", "metadata", "where"),
    [
        ("", "@field_list(1) h_t g;", "g"),
        ("", "@field_list(1) h_t[2] g;", "g"),
        ("header m_t { @field_list(1) bit<8> r; }", "m_t g;", "g"),
        ("header m_t { @field_list(1) bit<8> r; }", "m_t[2] g;", "g"),
        ("struct s_t { @field_list(1) h_t g; }", "s_t s;", "s.g"),
        ("struct s_t { h_t g; }", "@field_list(1) s_t s;", "s.g"),
    ],
)
def test_a_header_cannot_be_in_a_field_list(
    complain: Complain, declarations: str, metadata: str, where: str
) -> None:
    found = complain(
        declarations=f"{HEADERS}\n{declarations}",
        metadata=metadata,
        apply="clone_preserving_field_list(CloneType.I2E, 5, 1);",
    )
    assert f"'{where}' in a field list: headers are not preserved" in found


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ("@field_list(1) varbit<64> g;", "'g' in a field list: varbits are not preserved"),
        ("@field_list() bit<8> g;", "@field_list needs numbers"),
        ('@field_list(1, "two") bit<8> g;', "@field_list needs numbers"),
    ],
)
def test_what_else_cannot_be_marked(complain: Complain, metadata: str, message: str) -> None:
    apply = "clone_preserving_field_list(CloneType.I2E, 5, 1);"
    assert message in complain(metadata=metadata, apply=apply)


def test_a_list_that_no_field_is_marked_for_is_a_warning(build: Build) -> None:
    apply = "clone_preserving_field_list(CloneType.I2E, 5, 3);"
    [warning] = build(metadata="@field_list(1) bit<8> z;", apply=apply).warnings
    assert warning.message == "no metadata field is marked @field_list(3): nothing is preserved"


def test_a_program_without_lists_preserves_nothing_by_the_number_0(build: Build) -> None:
    apply = "clone_preserving_field_list(CloneType.I2E, 5, {});"
    assert not build(metadata="bit<8> z;", apply=apply.format(0)).warnings
    assert build(metadata="bit<8> z;", apply=apply.format(1)).warnings
    assert build(metadata="@field_list(1) bit<8> z;", apply=apply.format(0)).warnings


def test_field_lists_come_from_annotations(build: Build) -> None:
    compiled = build(
        metadata="@field_list(1, 2) bit<16> x; @field_list(2) bit<8> y; bool flag;",
        apply="clone_preserving_field_list(CloneType.I2E, 5, 2);",
    )
    lists = {f["name"]: f for f in compiled.json["field_lists"]}
    assert [e["value"][1] for e in lists["field_list2"]["elements"]] == ["metadata.x", "metadata.y"]
    (primitive,) = compiled.json["actions"][0]["primitives"]
    assert primitive["op"] == "clone_ingress_pkt_to_egress"
    assert int(primitive["parameters"][1]["value"], 16) == lists["field_list2"]["id"]


# Headers and parsers


def test_headers_stacks_and_metadata(build: Build) -> None:
    declarations = """header h_t { bit<8> a; int<8> s; bool flag; bit<7> rest; }
        header v_t { bit<8> size; varbit<64> options; }
        struct inner_t { bit<8> deep; }
        struct headers { h_t h; h_t[2] stack; v_t v; }"""
    compiled = build(
        declarations=declarations,
        metadata="bit<16> x; inner_t inner;",
        parser="""state start { packet.extract(hdr.h); packet.extract(hdr.stack.next);
            packet.extract(hdr.v, (bit<32>)hdr.h.a * 8); transition accept; }""",
        apply="meta.inner.deep = hdr.stack[1].a;",
    )
    types = {t["name"]: t for t in compiled.json["header_types"]}
    assert types["h_t"]["fields"] == [["a", 8, False], ["s", 8, True], ["flag", 1, False], ["rest", 7, False]]
    assert types["v_t"]["fields"] == [["size", 8, False], ["options", "*"]]
    assert types["v_t"]["max_length"] == 9
    assert [f[0] for f in types["scalars_0"]["fields"]] == ["metadata._x0", "metadata._inner_deep1"]
    assert [h["name"] for h in compiled.json["headers"]] == [
        "scalars", "standard_metadata", "h", "stack[0]", "stack[1]", "v",
    ]  # fmt: skip
    (stack,) = compiled.json["header_stacks"]
    assert stack["header_ids"] == [3, 4]
    (state,) = compiled.json["parsers"][0]["parse_states"]
    assert [o["op"] for o in state["parser_ops"]] == ["extract", "extract", "extract_VL"]
    assert state["parser_ops"][1]["parameters"] == [{"type": "stack", "value": "stack"}]
    assert compiled.json["deparsers"][0]["order"] == ["h", "stack[0]", "stack[1]", "v"]


def test_transitions(build: Build) -> None:
    parser = """value_set<bit<16>>(4) ports;
        state start {
            packet.extract(hdr.h);
            transition select(hdr.h.a, hdr.h.b) { (1, 2): accept; (1 &&& 3, _): more; default: reject; }
        }
        state more { transition select(packet.lookahead<bit<16>>()) { ports: accept; 5 .. 8: more; } }"""
    compiled = build(parser=parser)
    start, more = compiled.json["parsers"][0]["parse_states"]
    assert [(t["type"], t["value"], t["mask"]) for t in start["transitions"]] == [
        ("hexstr", "0x010002", None),
        ("hexstr", "0x010000", "0x030000"),
        ("default", None, None),
    ]
    assert [(t["type"], t["value"], t["mask"]) for t in more["transitions"]] == [
        ("parse_vset", "P.ports", None),
        ("hexstr", "0x0005", None),
        ("hexstr", "0x0006", "0xfffe"),
        ("hexstr", "0x0008", None),
    ]
    assert more["parser_ops"][0]["parameters"][1] == {"type": "lookahead", "value": [0, 16]}
    assert compiled.json["parse_vsets"][0]["compressed_bitwidth"] == 16
    assert "a transition to reject behaves like accept on this target" in {
        w.message for w in compiled.warnings
    }


@pytest.mark.parametrize(
    ("assignment", "copies"),
    [
        ("hdr.u = hdr.w;", ["u.x = w.x", "u.y = w.y"]),
        ("hdr.s[1] = hdr.w;", ["s[1].x = w.x", "s[1].y = w.y"]),
        ("hdr.s = hdr.t;", ["s[0].x = t[0].x", "s[0].y = t[0].y", "s[1].x = t[1].x", "s[1].y = t[1].y"]),
    ],
)
def test_unions_are_assigned_member_by_member(build: Build, assignment: str, copies: list[str]) -> None:
    """BMv2's assign_union sets the validity, but leaves the fields of a stack's elements at 0."""
    declared = "header x_t { bit<8> a; } header y_t { bit<16> b; } header_union u_t { x_t x; y_t y; }"
    compiled = build(
        declarations=f"{declared} struct headers {{ u_t u; u_t w; u_t[2] s; u_t[2] t; x_t h; }}",
        apply=assignment,
    )
    done = [p for a in compiled.json["actions"] for p in a["primitives"]]
    assert {p["op"] for p in done} == {"assign_header"}
    assert [" = ".join(x["value"] for x in p["parameters"]) for p in done] == copies


@pytest.mark.parametrize(
    ("apply", "packet", "sent"),
    [
        ("hdr.s[hdr.h.a].x.a = 5;", [1, 2, 3], [1, 2, 5]),
        ("hdr.s[hdr.h.a].x.a = 5;", [2, 2, 3], [2, 2, 3]),  # there is no such element
        ("hdr.s[hdr.h.a].x.a = hdr.s[1 - hdr.h.a].x.a;", [1, 2, 3], [1, 2, 2]),
        ("hdr.h.a = hdr.s[hdr.h.a].x.a;", [1, 2, 3], [3, 2, 3]),
        ("hdr.s[hdr.h.a].x.setInvalid();", [1, 2, 3], [1, 2]),
        ("if (hdr.s[hdr.h.a].isValid()) { hdr.h.a = 7; }", [1, 2, 3], [7, 2, 3]),
        ("if (hdr.s[hdr.h.a].isValid()) { hdr.h.a = 7; }", [9, 2, 3], [9, 2, 3]),
        ("hdr.s[hdr.h.a] = hdr.s[1];", [0, 2, 3], [0, 3, 3]),
        ("u_t u = hdr.s[hdr.h.a]; hdr.s[1] = u;", [0, 2, 3], [0, 2, 2]),
        (
            "switch (hdr.s[hdr.h.a].x.a) { 3: { hdr.h.a = 8; } default: { hdr.h.a = 9; } }",
            [1, 2, 3],
            [8, 2, 3],
        ),
        ("t.apply();", [1, 2, 3], [4, 2, 3]),
        ("set(hdr.h.a);", [1, 2, 3], [1, 2, 6]),
        ("hash(hdr.h.a, HashAlgorithm.identity, 8w0, { hdr.s[hdr.h.a].x.a }, 8w255);", [1, 2, 3], [3, 2, 3]),
    ],
)
def test_a_header_union_at_a_computed_index(
    build: Build, apply: str, packet: list[int], sent: list[int]
) -> None:
    declared = "header x_t { bit<8> a; } header y_t { bit<16> b; } header_union u_t { x_t x; y_t y; }"
    compiled = build(
        declarations=f"{declared} struct headers {{ x_t h; u_t[2] s; }}",
        parser="""state start { packet.extract(hdr.h); packet.extract(hdr.s[0].x); packet.extract(hdr.s[1].x);
            transition accept; }""",
        locals="""action four() { hdr.h.a = 4; } action set(bit<8> i) { hdr.s[i].x.a = 6; }
            table t { key = { hdr.s[hdr.h.a].x.a: exact; } actions = { four; NoAction; }
                const entries = { 3: four(); } }""",
        apply=f"{apply} standard_metadata.egress_spec = 1;",
    )
    assert Engine.load(compiled.device_config()).process(0, bytes(packet)) == [(1, bytes(sent))]


def test_a_header_union_at_a_computed_index_in_a_deparser_is_an_error(complain: Complain) -> None:
    declared = "header x_t { bit<8> a; } header y_t { bit<16> b; } header_union u_t { x_t x; y_t y; }"
    found = complain(
        declarations=f"{declared} struct headers {{ x_t h; u_t[2] s; }}",
        update="update_checksum(hdr.s[hdr.h.a].x.isValid(), { hdr.h.a }, hdr.h.a, HashAlgorithm.csum16);",
    )
    assert "error: BMv2 cannot find a header union in a stack by a computed index\n" in found


def test_a_value_set_that_no_select_names_is_left_out(build: Build) -> None:
    parser = """value_set<bit<8>>(4) forgotten; value_set<bit<8>>(4) unreached; value_set<bit<8>>(2) kinds;
        state start { packet.extract(hdr.h); transition select(hdr.h.a) { kinds: accept; } }
        state nowhere { transition select(hdr.h.a) { unreached: accept; } }"""
    compiled = build(parser=parser)
    assert [v["name"] for v in compiled.json["parse_vsets"]] == ["P.kinds"]
    assert [v.preamble.name for v in compiled.p4info.value_sets] == ["P.kinds"]


SETS = """value_set<bit<8>>(4) kinds; value_set<bit<16>>(4) ports;
    state start {{ packet.extract(hdr.h); meta.y = 9; transition select(hdr.h.a, hdr.h.b) {{ {cases} }} }}
    state one {{ meta.y = 1; transition accept; }}
    state two {{ meta.y = 2; transition accept; }}
    state three {{ meta.y = 3; transition accept; }}"""


@pytest.mark.parametrize(
    ("cases", "ways"),
    [
        ("(kinds, 5): one; (1, _): two; _: three;", {(7, 5): 1, (7, 6): 3, (1, 5): 2, (2, 5): 3}),
        (
            "(1, 5): one; (kinds, ports): two; (kinds, _): three;",
            {(1, 5): 1, (7, 4): 2, (7, 5): 3, (1, 4): 9},
        ),
        ("(kinds, ports): one;", {(7, 4): 1, (7, 5): 9, (1, 4): 9}),
        ("(_, ports): one; (kinds, 8 .. 9): two; _: three;", {(1, 4): 1, (7, 8): 2, (1, 8): 3, (7, 10): 3}),
    ],
)
def test_a_value_set_beside_other_keys(build: Build, cases: str, ways: dict[tuple[int, int], int]) -> None:
    apply = "hdr.h.s = (int<8>)meta.y; standard_metadata.egress_spec = 1;"
    engine = Engine.load(build(parser=SETS.format(cases=cases), apply=apply).device_config())
    engine.value_set("P.kinds").write([EntryKey((Exact(7),), 1)])
    if "ports" in cases:
        engine.value_set("P.ports").write([EntryKey((Exact(4),), 1)])
    for (a, b), way in ways.items():
        packet = bytes([a, 0, b, 0, 0, 0, 0, 0])
        assert engine.process(0, packet) == [(1, packet[:3] + bytes([way]) + packet[4:])], (a, b)


def test_a_value_set_of_tuples(build: Build) -> None:
    parser = "value_set<tuple<bit<8>, bit<16>>>(4) pairs;" + SETS.format(cases="pairs: one; _: two;")
    apply = "hdr.h.s = (int<8>)meta.y; standard_metadata.egress_spec = 1;"
    compiled = build(parser=parser, apply=apply)
    [described] = [each for each in compiled.p4info.value_sets if each.preamble.name == "P.pairs"]
    assert [match.bitwidth for match in described.match] == [8, 16]
    engine = Engine.load(compiled.device_config())
    engine.value_set("P.pairs").write([EntryKey((Exact(7), Exact(4)), 1)])
    for a, b, way in ((7, 4, 1), (7, 5, 2), (1, 4, 2)):
        packet = bytes([a, 0, b, 0, 0, 0, 0, 0])
        assert engine.process(0, packet) == [(1, packet[:3] + bytes([way]) + packet[4:])], (a, b)


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        ("(ports, 5): one;", "a value set of bit<16> cannot match bit<8>"),
        ("kinds: one;", "a value set of bit<8> cannot match bit<8>, bit<16>"),
    ],
)
def test_a_value_set_of_another_width(complain: Complain, cases: str, message: str) -> None:
    found = complain(parser=SETS.format(cases=cases))
    assert message in found
    assert "note: the other is here" in found


def test_errors_have_numbers_in_the_order_of_their_declaration(build: Build) -> None:
    declarations = "error { Mine } header h_t { bit<8> a; } struct headers { h_t h; }"
    compiled = build(
        declarations=declarations,
        parser="state start { packet.extract(hdr.h); verify(hdr.h.a != 0, error.Mine); transition accept; }",
    )
    assert compiled.json["errors"] == [
        ["NoError", 0], ["PacketTooShort", 1], ["NoMatch", 2], ["StackOutOfBounds", 3], ["HeaderTooShort", 4],
        ["ParserTimeout", 5], ["ParserInvalidArgument", 6], ["Mine", 7],
    ]  # fmt: skip
    verify = compiled.json["parsers"][0]["parse_states"][0]["parser_ops"][1]
    assert verify["op"] == "verify"
    assert verify["parameters"][1] == {"type": "hexstr", "value": "0x00000007"}


def test_source_info_tells_where_things_stand(build: Build) -> None:
    compiled = build(apply="\n  meta.x = meta.x +\n     1;")
    (action,) = compiled.json["actions"]
    assert action["primitives"][0]["source_info"] == {
        "filename": "test.p4",
        "line": 13,
        "column": 2,
        "source_fragment": "meta.x = meta.x + ...",
    }


def test_a_condition_stands_where_it_is_asked_and_not_where_its_variable_was_declared(build: Build) -> None:
    compiled = build(apply="\n  bool b = meta.x == 1;\n  if (b) { meta.x = 2; }")
    (condition,) = compiled.json["pipelines"][0]["conditionals"]
    assert condition["source_info"]["source_fragment"] == "b"
    assert condition["source_info"]["line"] == 14


def test_a_whole_small_program(build: Build) -> None:
    """Every section of the JSON at once, as p4c 1.2.4 writes it too (but for the compiler's name)."""
    compiled = build(
        locals="""action forward(bit<9> port) { standard_metadata.egress_spec = port; }
    action drop() { mark_to_drop(standard_metadata); }
    table routes { key = { hdr.h.c: lpm; } actions = { forward; drop; } const default_action = drop(); size = 64; }""",
        apply="if (hdr.h.isValid()) { routes.apply(); }",
    )
    golden = Path(__file__).parent / "routes.json"
    assert compiled.json == json.loads(golden.read_text())
