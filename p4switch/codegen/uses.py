"""The uses of fields in a program, which also show which metadata are only local variables of an action."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, is_dataclass
from typing import Any

from fanin.p4switch.bmv2json.expressions import Constant, Field, HeaderName
from fanin.p4switch.bmv2json.program import (
    Action,
    ActionNode,
    Branch,
    Pipeline,
    Primitive,
    Program,
    Table,
)


class Uses:
    """Number of uses of every field in the program, and their places."""

    def __init__(self, program: Program) -> None:
        self._of: dict[int, list[Field]] = {}
        self.total: Counter[Field] = Counter()
        self._program = program
        for action in program.actions.values():
            for primitive in action.primitives:
                self.total.update(self.fields(primitive))
        steps = [n for p in (program.ingress, program.egress) for n in p.nodes.values()]
        self.total.update(fields_in(tuple(program.parser.states.values())))
        self.total.update(fields_in(tuple(n.condition for n in steps if isinstance(n, Branch))))
        self.total.update(fields_in(tuple(n.keys for n in steps if isinstance(n, Table))))
        self.total.update(fields_in((tuple(program.calculations.values()), program.checksums)))
        kept = (*program.field_lists.values(), *program.digests.values(), *program.meters.values())
        self.total.update(fields_in((kept, program.deparser.primitives)))
        self.locals = {a.id: self._locals(a.primitives) for a in program.actions.values()}

    def fields(self, primitive: Primitive) -> list[Field]:
        """Return the fields in a primitive, repeated as often as they occur."""
        found = self._of.get(id(primitive))
        if found is None:
            found = fields_in(primitive.arguments)
            if primitive.kind.sets_fields:
                metadata, *_ = primitive.arguments
                assert isinstance(metadata, HeaderName)
                found += [Field(metadata.name, name) for name in primitive.kind.sets_fields]
            self._of[id(primitive)] = found
        return found

    def sets(self, primitive: Primitive, field: Field) -> bool:
        """Return whether a primitive sets a field without reading it."""
        first = primitive.kind.sets_local and primitive.arguments[0] == field
        return first and self.fields(primitive).count(field) == 1

    def _locals(self, primitives: tuple[Primitive, ...]) -> frozenset[Field]:
        """Return the metadata that one action sets before reading it and that nothing else uses."""
        inside: Counter[Field] = Counter()
        set_first: set[Field] = set()
        for primitive in primitives:
            if primitive.kind.jumps:
                return frozenset()
            for field in self.fields(primitive):
                if field not in inside and self.sets(primitive, field):
                    set_first.add(field)
            inside.update(self.fields(primitive))
        whole = {h.name for h in self._program.headers.values() if not h.is_metadata}
        whole |= {"standard_metadata"}
        aliased = set(self._program.aliases.values())
        return frozenset(
            f for f in set_first - aliased if f.header not in whole and inside[f] == self.total[f]
        )


def jumps_back(primitives: tuple[Primitive, ...]) -> bool:
    """Return whether a jump leads to itself or to an earlier primitive."""
    return any(
        isinstance(p.arguments[-1], Constant) and p.arguments[-1].value <= number
        for number, p in enumerate(primitives)
        if p.kind.jumps
    )


def pipeline_actions(pipeline: Pipeline) -> list[Action]:
    """Return every action that a pipeline may run."""
    found: list[Action] = []
    for node in pipeline.nodes.values():
        match node:
            case Table():
                found += node.actions
            case ActionNode():
                found.append(node.action)
    return found


def headers_written(program: Program) -> set[str] | None:
    """Return the headers whose fields egress or a checksum may write; None if headers may change in other ways."""
    if program.deparser.primitives:
        return None
    targets: list[Any] = [c.target for c in program.checksums if c.update]
    for action in pipeline_actions(program.egress):
        for primitive in action.primitives:
            kinds = primitive.kind.parameters
            if primitive.op == "assign_VL" or {"element", "stack", "union"} & set(kinds):
                return None
            targets += [a for a, kind in zip(primitive.arguments, kinds, strict=True) if kind == "target"]
    if any(not isinstance(t, Field) or t.name == "$valid$" for t in targets):
        return None
    return {t.header for t in targets if not program.headers[t.header].is_metadata}


def fields_in(node: Any) -> list[Field]:
    """Return every field inside a node, from left to right."""
    if isinstance(node, Field):
        return [node]
    if isinstance(node, tuple):
        return [field for item in node for field in fields_in(item)]
    if is_dataclass(node):
        return [field for part in fields(node) for field in fields_in(getattr(node, part.name))]
    return []
