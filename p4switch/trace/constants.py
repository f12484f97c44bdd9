"""Names of constants in a program's source. BMv2 JSON has only values, but also pieces of the source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from fanin.p4switch.bmv2json.expressions import Binary, Constant, Field
from fanin.p4switch.bmv2json.program import Branch, Program

_NAME = r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"  # REASON_NO_ROUTE, or of an enum: Reason.NO_ROUTE
_ASSIGNED = re.compile(rf"[^=]+[^=!<>]=\s*{_NAME};?")
_COMPARED = re.compile(rf"[^=!&|]+[=!]=\s*{_NAME}")
_LITERALS = {"true", "false"}


def constant_names(program: Program) -> Mapping[Field, Mapping[int, str]]:
    """Return the names of constants assigned to a field or compared with it, by number, where they are unambiguous."""
    found: dict[Field, dict[int, set[str]]] = {}
    for field, number, name in _uses(program):
        if name not in _LITERALS:
            found.setdefault(field, {}).setdefault(number, set()).add(name)
    names = {
        field: {number: min(names) for number, names in numbers.items() if len(names) == 1}
        for field, numbers in found.items()
    }
    # A count's index is often a widened copy, which has no names itself.
    return {copy: names[field] for copy, field in _copies(program) if field in names} | names


def _copies(program: Program) -> Iterator[tuple[Field, Field]]:
    """Yield the fields that are assigned another one, with or without a cast, as (copy, field)."""
    for action in program.actions.values():
        for primitive in action.primitives:
            match primitive.op, primitive.arguments:
                case "assign", (
                    Field() as copy,
                    (Field() as field) | Binary("&", Field() as field, Constant()),
                ):
                    yield copy, field


def _uses(program: Program) -> Iterator[tuple[Field, int, str]]:
    for action in program.actions.values():
        for primitive in action.primitives:
            match primitive.op, primitive.arguments:
                case "assign", (Field() as field, Constant(number)) if primitive.source:
                    if name := _ASSIGNED.fullmatch(primitive.source.fragment):
                        yield field, number, name[1]
    for pipeline in (program.ingress, program.egress):
        for node in pipeline.nodes.values():
            match node:
                case Branch(condition=Binary("==" | "!=", Field() as field, Constant(number))) if node.source:
                    if name := _COMPARED.fullmatch(node.source.fragment):
                        yield field, number, name[1]
