"""Names in a program's source: of constants, and of metadata. BMv2 JSON has only pieces of the source."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from fanin.p4switch.bmv2json.expressions import Binary, Constant, Field
from fanin.p4switch.bmv2json.program import Branch, Program
from fanin.p4switch.codegen.uses import fields_in

_NAME = r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"  # REASON_NO_ROUTE, or of an enum: Reason.NO_ROUTE
_ASSIGNED = re.compile(rf"[^=]+[^=!<>]=\s*{_NAME};?")
_COMPARED = re.compile(rf"[^=!&|]+[=!]=\s*{_NAME}")
_LITERALS = {"true", "false"}
_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?!\w*\()")  # meta.count, but not meta.count.read(


def constant_names(program: Program) -> Mapping[Field, Mapping[int, str]]:
    """Return the names of constants assigned to a field or compared with it, by number, where they are unambiguous."""
    found: dict[Field, dict[int, set[str]]] = {}
    uses = [use for use in _uses(program) if use[2] not in _LITERALS]
    numbers_of: dict[str, set[int]] = defaultdict(set)
    for _, number, name in uses:
        numbers_of[name].add(number)
    for field, number, name in uses:
        if len(numbers_of[name]) == 1:  # or it is a parameter, whose action is called with several constants
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


def metadata_names(program: Program) -> Mapping[Field, str]:
    """Return the names of the fields of metadata in the source: of `metadata_t.count` in the JSON `meta.count`.

    The JSON has the name of the metadata's type, and of `standard_metadata`, instead of the parameter's. If controls
    give them different names, the most frequent is taken.
    """
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    found: dict[Field, str] = {}
    for text, fields in _texts(program):
        paths = [path.partition(".") for path in _PATH.findall(text)]
        for field in fields:
            owner, member = _owner(field)
            # Of nested structs, p4c joins the names: a.b, the third member, is _a_b2.
            called = {rest.replace(".", "_"): (root, rest) for root, _, rest in paths}
            nested = re.fullmatch(r"_(\w*?)\d+", member)
            if owner and (one := called.get(member) or (nested and called.get(nested[1]))):
                votes[owner][one[0]] += 1
                found[field] = one[1]
    roots = {owner: counted.most_common(1)[0][0] for owner, counted in votes.items()}
    metadata = [header for header in program.headers.values() if header.is_metadata]
    names = {}
    for field in (Field(header.name, each.name) for header in metadata for each in header.type.fields):
        owner, member = _owner(field)
        if owner in roots:
            names[field] = f"{roots[owner]}.{found.get(field, member)}"
    return names


def _owner(field: Field) -> tuple[str, str]:
    """Return the struct that a field of metadata belongs to, and its name there."""
    if field.header == "scalars":
        owner, _, member = field.name.rpartition(".")
        return owner, member
    return ("", "") if field.header != "standard_metadata" else (field.header, field.name)


def _texts(program: Program) -> Iterator[tuple[str, list[Field]]]:
    """Yield pieces of the source, each with the fields that it is about."""
    for action in program.actions.values():
        for primitive in action.primitives:
            if primitive.source:
                yield primitive.source.fragment, [f for each in primitive.arguments for f in fields_in(each)]
    for pipeline in (program.ingress, program.egress):
        for node in pipeline.nodes.values():
            if isinstance(node, Branch) and node.source:
                yield node.source.fragment, fields_in(node.condition)
    for table in program.tables.values():
        for key in table.keys:
            if isinstance(key.target, Field):
                yield key.name, [key.target]
