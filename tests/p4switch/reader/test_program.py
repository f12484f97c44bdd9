"""A BMv2 JSON that is not allowed is refused at load, with the element's name; it never causes a wrong packet."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanin.p4compiler import compile_once
from fanin.p4switch.bmv2json.program import ProgramError
from fanin.p4switch.codegen.translate import translate
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.reader import read_program
from tests.p4switch.documents import assign, document, field, number, operation
from tests.sizes import sized

GOOD = document({"h": [["a", 8, False], ["b", 24, False]]}, [assign(field("h", "a"), number(1))])


def altered(change: Callable[[dict[str, Any]], None]) -> bytes:
    parsed = json.loads(GOOD)
    change(parsed)
    return json.dumps(parsed).encode()


def primitive(op: str, *parameters: dict[str, Any]) -> bytes:
    return document({"h": [["a", 8, False]]}, [{"op": op, "parameters": list(parameters)}])


def first_table(parsed: dict[str, Any]) -> dict[str, Any]:
    table: dict[str, Any] = parsed["pipelines"][0]["tables"][0]
    return table


RANGE = {
    "name": "call",
    "id": 0,
    "match_type": "range",
    "key": [{"match_type": "range", "target": ["h", "a"], "mask": None}],
}
REFUSED = {
    "not a JSON document": b"{",
    "top level is not an object": b"[]",
    "version 2.x is needed": b"{}",
    "one of parsers is needed, not 0": altered(lambda d: d["parsers"].clear()),
    "pipeline ingress is missing": altered(lambda d: d["pipelines"].pop(0)),
    "extern u is not supported": altered(lambda d: d.update(extern_instances=[{"name": "u"}])),
    "field h_t.b: a header has one varbit, and other fields of whole bytes together": altered(
        lambda d: d["header_types"][2].update(fields=[["a", "*"], ["b", "*"]], max_length=8)
    ),
    "field h_t.a: 2 fields have this name": altered(
        lambda d: d["header_types"][2].update(fields=[["a", 8, False], ["b", 8, False], ["a", 8, False]])
    ),
    "field h_t.c: a header has one varbit, and other fields of whole bytes together": altered(
        lambda d: d["header_types"][2].update(
            fields=[["a", 4, False], ["c", "*"], ["b", 8, False]], max_length=8
        )
    ),
    "calculation c: h.v is a varbit that is not aligned to bytes": altered(
        lambda d: (
            d["header_types"][2].update(fields=[["a", 4, False], ["v", "*"], ["b", 4, False]], max_length=8),
            d.update(
                calculations=[
                    {
                        "name": "c",
                        "id": 0,
                        "algo": "crc16",
                        "input": [{"type": "field", "value": ["h", "v"]}],
                    }
                ]
            ),
        )
    ),
    "table call: its range keys are over 4096 bits together": document(
        {"h": [["a", 4097, False], ["b", 7, False]]},
        [],
        pipelines=[{"name": "ingress", "id": 0, "init_table": None, "conditionals": [], "tables": [RANGE]}],
    ),
    "header h: 31 bits are not a whole number of bytes": altered(
        lambda d: d["header_types"][2]["fields"][1].__setitem__(1, 23)
    ),
    "table call: action profile p does not exist": altered(
        lambda d: first_table(d).update(type="indirect", action_profile="p")
    ),
    "table call: action id 9 does not exist": altered(lambda d: first_table(d).update(action_ids=[9])),
    "call: next node nowhere does not exist": altered(
        lambda d: first_table(d).update(next_tables={"act": "nowhere"})
    ),
    "pipeline ingress: a loop through call": altered(
        lambda d: first_table(d).update(next_tables={"act": "call"})
    ),
    "match kind selector is not supported": altered(
        lambda d: first_table(d).update(key=[{"match_type": "selector", "target": ["h", "a"], "mask": None}])
    ),
    "field h.c does not exist": document({"h": [["a", 8, False]]}, [assign(field("h", "c"), number(1))]),
    "header x does not exist": document({"h": [["a", 8, False]]}, [assign(field("x", "a"), number(1))]),
    "action act: operator @ is not supported": document(
        {"h": [["a", 8, False]]}, [assign(field("h", "a"), operation("@", number(1), number(2)))]
    ),
    "action act: primitive teleport is not supported": primitive("teleport"),
    "action act: digest 1 does not exist": primitive("generate_digest", number(1), number(1)),
    "action act: register r does not exist": primitive(
        "register_read", field("h", "a"), {"type": "register_array", "value": "r"}, number(0)
    ),
    "action act: counter c does not exist": primitive(
        "count", {"type": "counter_array", "value": "c"}, number(0)
    ),
    "calculation c does not exist": primitive(
        "modify_field_with_hash_based_offset",
        field("h", "a"),
        number(0),
        {"type": "calculation", "value": "c"},
        number(1),
    ),
    "calculation c: algorithm rot13 is not supported": altered(
        lambda d: d.update(calculations=[{"name": "c", "id": 0, "algo": "rot13", "input": []}])
    ),
    "parser state start: parser operation teleport is not supported": altered(
        lambda d: d["parsers"][0]["parse_states"][0]["parser_ops"].append(
            {"op": "teleport", "parameters": []}
        )
    ),
    "next state nowhere does not exist": altered(
        lambda d: d["parsers"][0]["parse_states"][0]["transitions"][0].update(next_state="nowhere")
    ),
}

MALFORMED = {
    "actions[0].primitives[1] (KeyError: 'op')": altered(
        lambda d: d["actions"][0]["primitives"][1].pop("op")
    ),
    "pipelines[0].tables[0] (KeyError: 'key')": altered(lambda d: first_table(d).pop("key")),
    "headers[1] (KeyError: 'header_type')": altered(lambda d: d["headers"][1].pop("header_type")),
    "header_types[2] (TypeError: 'NoneType' object is not iterable)": altered(
        lambda d: d["header_types"][2].update(fields=None)
    ),
    "parsers[0].parse_states[0].parser_ops[0] (KeyError: 'op')": altered(
        lambda d: d["parsers"][0]["parse_states"][0]["parser_ops"][0].pop("op")
    ),
    "the top level": altered(lambda d: d["errors"].append(3)),
}
REFUSED |= {f"malformed BMv2 JSON at {place}": config for place, config in MALFORMED.items()}


def nested(depth: int) -> bytes:
    return GOOD.replace(b'"a"', b"[" * depth + b"]" * depth, 1)


REFUSED["the JSON document is nested too deeply"] = nested(10_000)


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message: str) -> None:
    with pytest.raises(ProgramError) as caught:
        translate(read_program(REFUSED[message]))
    assert message in str(caught.value)


def paths(node: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value inside a document."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [p for key, value in items for p in ((*prefix, key), *paths(value, (*prefix, key)))]


TESTS = Path(__file__).parents[1]
RICH = [TESTS / "programs/entities.p4", *sorted((TESTS / "stf").glob("*.p4"))]


@cache
def rich_documents() -> list[bytes]:
    """Programs with every kind of element: unions, varbits, field lists, meters, profiles, value sets, digests."""
    return [GOOD, *(compile_once(path).device_config() for path in RICH)]


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=sized(100, 500))
@given(st.data())
def test_damaged_documents(data: st.DataObject) -> None:
    """Whatever is replaced in a document: it is translated, or refused by a ProgramError, and nothing else happens."""
    parsed = json.loads(data.draw(st.sampled_from(rich_documents())))
    *way, last = data.draw(st.sampled_from(paths(parsed)))
    node = parsed
    for key in way:
        node = node[key]
    node[last] = data.draw(
        st.sampled_from([None, -1, 0, 10**9, "", "x", [], {}, [[]], {"type": "field"}, True])
    )
    with contextlib.suppress(ProgramError):
        translate(read_program(json.dumps(parsed).encode()))


def test_the_c_is_readable(config: Callable[[str], bytes]) -> None:
    """P4 names, the source lines, and the statement as one would write it."""
    source = translate(read_program(config("router")))
    assert (
        "INLINE void action_ingress_forward(struct state *s, struct packet *p, struct ingress_metadata *m, "
        "const uint64_t *data) {" in source
    )
    assert "hdr.ipv4.ttl = hdr.ipv4.ttl - 1 */" in source
    assert (
        "put32(p->header[H_ipv4], ipv4_t_ttl, (get32(p->header[H_ipv4], ipv4_t_ttl) - (uint32_t)1));"
        in source
    )


def test_names_never_clash() -> None:
    """Fields called like C keywords, like our own variables, and like each other once dots are gone."""
    names = ["int", "p", "s", "t1", "data", "a.b", "a_b", "register", "i", "9lives", "$x$", "count"]
    program = document(
        {"h": [[name, 8, False] for name in names]},
        [assign(field("meta", name), operation("+", field("h", name), number(1))) for name in names]
        + [assign(field("h", name), field("meta", name)) for name in names[::-1]],
        metadata=[[name, 8, False] for name in names],
    )
    assert Engine.load(program).process(1, bytes(range(12))) == [(1, bytes(range(1, 13)))]


def chain_of_states(length: int, last: str | None) -> bytes:
    """A parser of that many states, of which one leads to the next and the last one to `last`."""

    def change(parsed: dict[str, Any]) -> None:
        (first,) = parsed["parsers"][0]["parse_states"]
        names = [first["name"], *(f"s{n}" for n in range(1, length))]
        parsed["parsers"][0]["parse_states"] = [
            {
                "name": name,
                "id": n,
                "parser_ops": first["parser_ops"] if n == 0 else [],
                "transition_key": [],
                "transitions": [{"value": "default", "mask": None, "next_state": following}],
            }
            for n, (name, following) in enumerate(zip(names, [*names[1:], last], strict=True))
        ]

    return altered(change)


@pytest.mark.parametrize(("last", "guarded"), [(None, False), ("s1", True)])
def test_only_parsers_that_may_go_round_count_their_states(last: str | None, guarded: bool) -> None:
    """Also where there are hundreds of states."""
    assert ("PARSER_STATES" in translate(read_program(chain_of_states(500, last)))) == guarded
