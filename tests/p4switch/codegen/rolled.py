"""Programs whose actions are loops over registers side by side."""

from __future__ import annotations

from typing import Any

from tests.p4switch.documents import assign, document, field, number, operation

CELLS = 16

COUNT = 24

VALUES = [[f"v{n}", 32, True] for n in range(COUNT)]

SMALL = [[f"b{n}", 8, False] for n in range(COUNT)]

INDEX: list[list[Any]] = [["at", 32, False], ["seen", 32, False]]

HEADERS = {"index": INDEX, "values": VALUES, "small": SMALL}

METADATA = [["old", 32, True], ["sum", 32, True], ["overflow", 32, False]] + [
    [f"tmp{n}", 32, True] for n in range(COUNT)
]

ALL_ONES = number(0xFFFFFFFF)


def register(name: str, width: int = 32, size: int = CELLS) -> dict[str, Any]:
    return {"name": name, "id": 0, "size": size, "bitwidth": width}


def read(target: dict[str, Any], name: str, index: dict[str, Any]) -> dict[str, Any]:
    return {"op": "register_read", "parameters": [target, {"type": "register_array", "value": name}, index]}


def write(name: str, index: dict[str, Any], source: dict[str, Any]) -> dict[str, Any]:
    return {"op": "register_write", "parameters": [{"type": "register_array", "value": name}, index, source]}


def add(n: int, order: list[int], index: dict[str, Any]) -> list[dict[str, Any]]:
    """One value of an aggregation: read, add with saturation, note an overflow, write, take along."""
    value, old, total = field("values", f"v{n}"), field("meta", "old"), field("meta", "sum")
    name = f"r{order[n]}"
    wrapped = operation("two_comp_mod", operation("+", old, value), number(32))
    difference = operation("^", operation("&", total, ALL_ONES), operation("&", wrapped, ALL_ONES))
    return [
        read(old, name, index),
        assign(total, operation("sat_cast", operation("+", old, value), number(32))),
        assign(field("meta", "overflow"), operation("|", field("meta", "overflow"), difference)),
        write(name, index, total),
        assign(value, total),
    ]


def aggregation(order: list[int], index: dict[str, Any]) -> bytes:
    primitives = [p for n in range(COUNT) for p in add(n, order, index)]
    primitives.append(assign(field("index", "seen"), field("meta", "overflow")))
    registers = [register(f"r{n}") for n in range(COUNT)]
    return document(HEADERS, primitives, metadata=METADATA, register_arrays=registers)


STRAIGHT = list(range(COUNT))
