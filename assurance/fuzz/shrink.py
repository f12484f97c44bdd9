"""Makes a failing case smaller: removes packets, frames and statements while it still fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from fanin.assurance.fuzz.case import FuzzCase

MAX_TRIALS = 80
Item = TypeVar("Item")


def shrink(case: FuzzCase, fails: Callable[[FuzzCase], bool]) -> FuzzCase:
    """Return the smallest failing case found in MAX_TRIALS trials."""
    trials = 0

    def still_fails(smaller: FuzzCase) -> bool:
        nonlocal trials
        trials += 1
        return trials <= MAX_TRIALS and fails(smaller)

    case = replace(
        case, packets=tuple(_least(case.packets, lambda p: still_fails(replace(case, packets=tuple(p)))))
    )
    case = replace(
        case, frames=tuple(_least(case.frames, lambda f: still_fails(replace(case, frames=tuple(f)))))
    )
    for way in _statements(json.loads(case.program)):
        document = json.loads(case.program)
        node, key = _at(document, way)

        def without(kept: Sequence[Any], node: Any = node, key: Any = key, document: Any = document) -> bool:
            node[key] = list(kept)
            return still_fails(replace(case, program=json.dumps(document).encode()))  # noqa: B023

        node[key] = list(_least(node[key], without))
        case = replace(case, program=json.dumps(document).encode())
    return case


def _least(items: Sequence[Item], fails: Callable[[Sequence[Item]], bool]) -> Sequence[Item]:
    """Remove ever smaller parts of a sequence (Zeller and Hildebrandt's ddmin, without its complements)."""
    size = len(items)
    while size > 0:
        at = 0
        while at < len(items):
            fewer = [*items[:at], *items[at + size :]]
            if fails(fewer):
                items = fewer
            else:
                at += size
        size //= 2
    return items


def _statements(document: Any) -> list[tuple[Any, ...]]:
    """Return the path to each list of statements."""
    ways: list[tuple[Any, ...]] = [("actions", n, "primitives") for n in range(len(document["actions"]))]
    states = document["parsers"][0]["parse_states"]
    return [
        *ways,
        *(("parsers", 0, "parse_states", n, "parser_ops") for n in range(len(states))),
        ("checksums",),
    ]


def _at(document: Any, way: tuple[Any, ...]) -> tuple[Any, Any]:
    for key in way[:-1]:
        document = document[key]
    return document, way[-1]
