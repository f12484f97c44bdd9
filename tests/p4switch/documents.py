"""Small BMv2 JSON documents, written by hand: just what p4c would say about a program of one action."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

STANDARD_METADATA = [
    ["ingress_port", 9, False],
    ["egress_spec", 9, False],
    ["egress_port", 9, False],
    ["instance_type", 32, False],
    ["packet_length", 32, False],
    ["ingress_global_timestamp", 48, False],
    ["egress_global_timestamp", 48, False],
    ["mcast_grp", 16, False],
    ["egress_rid", 16, False],
    ["checksum_error", 1, False],
    ["parser_error", 32, False],
    ["_padding", 3, False],
]


def field(header: str, name: str) -> dict[str, Any]:
    return {"type": "field", "value": [header, name]}


def number(value: int) -> dict[str, Any]:
    return {"type": "hexstr", "value": hex(value)}


def operation(op: str, left: Any, right: Any, **more: Any) -> dict[str, Any]:
    return {"type": "expression", "value": {"op": op, "left": left, "right": right, **more}}


def assign(target: dict[str, Any], source: dict[str, Any]) -> dict[str, Any]:
    return {"op": "assign", "parameters": [target, {"type": "expression", "value": source}]}


def document(
    headers: dict[str, list[list[Any]]],
    primitives: list[dict[str, Any]],
    *,
    metadata: list[list[Any]] | None = None,
    **sections: Any,
) -> bytes:
    """A program that extracts every header in order, runs the primitives, and sends the packet back.

    `headers`: fields (name, width, signed) of each; `metadata`: those of an instance `meta`; `sections` replace or add
    top-level items of the document.
    """
    instances: list[dict[str, Any]] = [
        {"name": "standard_metadata", "id": 0, "header_type": "standard_metadata", "metadata": True},
        {"name": "meta", "id": 1, "header_type": "meta_t", "metadata": True},
    ]
    types: list[dict[str, Any]] = [
        {"name": "standard_metadata", "id": 0, "fields": STANDARD_METADATA},
        {"name": "meta_t", "id": 1, "fields": metadata or []},
    ]
    for name, fields in headers.items():
        types.append({"name": f"{name}_t", "id": len(types), "fields": fields})
        instances.append({"name": name, "id": len(instances), "header_type": f"{name}_t", "metadata": False})
    send_back = assign(field("standard_metadata", "egress_spec"), field("standard_metadata", "ingress_port"))
    extracts = [{"op": "extract", "parameters": [{"type": "regular", "value": name}]} for name in headers]
    table = {
        "name": "call",
        "id": 0,
        "key": [],
        "match_type": "exact",
        "type": "simple",
        "max_size": 1024,
        "with_counters": False,
        "support_timeout": False,
        "action_ids": [0],
        "actions": ["act"],
        "base_default_next": None,
        "next_tables": {"act": None},
        "default_entry": {
            "action_id": 0,
            "action_const": True,
            "action_data": [],
            "action_entry_const": True,
        },
    }
    state = {
        "name": "start",
        "id": 0,
        "parser_ops": extracts,
        "transition_key": [],
        "transitions": [{"value": "default", "mask": None, "next_state": None}],
    }
    whole = {
        "__meta__": {"version": [2, 23]},
        "program": "handwritten",
        "header_types": types,
        "headers": instances,
        "errors": [["NoError", 0], ["PacketTooShort", 1], ["NoMatch", 2], ["StackOutOfBounds", 3]],
        "parsers": [{"name": "parser", "id": 0, "init_state": "start", "parse_states": [state]}],
        "deparsers": [{"name": "deparser", "id": 0, "order": list(headers)}],
        "actions": [{"name": "act", "id": 0, "runtime_data": [], "primitives": [*primitives, send_back]}],
        "pipelines": [
            {"name": "ingress", "id": 0, "init_table": "call", "tables": [table], "conditionals": []},
            {"name": "egress", "id": 1, "init_table": None, "tables": [], "conditionals": []},
        ],
    }
    return json.dumps({**whole, **sections}).encode()


def header(name: str) -> dict[str, Any]:
    return {"type": "header", "value": name}


def call(op: str, *parameters: Any) -> dict[str, Any]:
    return {"op": op, "parameters": list(parameters)}


def extract(name: str) -> dict[str, Any]:
    return call("extract", {"type": "regular", "value": name})


def parser(*operations: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The sections of a program that parses so."""
    leave = [{"value": "default", "mask": None, "next_state": None}]
    state = {
        "name": "start",
        "id": 0,
        "parser_ops": list(operations),
        "transition_key": [],
        "transitions": leave,
    }
    state |= more
    return {"parsers": [{"name": "parser", "id": 0, "init_state": "start", "parse_states": [state]}]}


def changed(config: bytes, change: Callable[[Any], object]) -> bytes:
    parsed = json.loads(config)
    change(parsed)
    return json.dumps(parsed).encode()


def in_egress(config: bytes, *primitives: dict[str, Any]) -> bytes:
    """The program with these primitives in its egress."""
    call_it = {"name": "at_egress", "id": 0, "action_id": 1, "next_node": None}
    pipeline = {"name": "egress", "id": 1, "init_table": "at_egress", "tables": [], "conditionals": []}
    action = {"name": "at_egress", "id": 1, "runtime_data": [], "primitives": list(primitives)}

    def change(parsed: Any) -> None:
        parsed["pipelines"][1] = {**pipeline, "action_calls": [call_it]}
        parsed["actions"].append(action)

    return changed(config, change)
