"""The uses of fields in a program, which also show which metadata are only local variables of an action."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

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

Part = TypeVar("Part")

SWITCHS_OWN = ("standard_metadata", "intrinsic_metadata", "queueing_metadata")
"""Metadata that the switch sets and reads."""

INLINED = 4
"""Calls of an action, above which it is not inlined, so that a program's C does not become much larger."""


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
        self.inlined = self._inlined()
        self.in_ingress = self._in_ingress()

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
        return frozenset(f for f in set_first if inside[f] == self.total[f] and self._is_own(f))

    def _inlined(self) -> frozenset[int]:
        """Return the actions that only a few nodes of ingress call, and nothing else."""
        calls = Counter(action.id for action in pipeline_actions(self._program.ingress))
        elsewhere = {action.id for action in pipeline_actions(self._program.egress)}
        return frozenset(
            number for number, count in calls.items() if count <= INLINED and number not in elsewhere
        )

    def _in_ingress(self) -> frozenset[Field]:
        """Return the metadata that only ingress and its inlined actions use. They are 0 when it begins."""
        program = self._program
        nodes = program.ingress.nodes.values()
        inside = Counter(fields_in(tuple(n.condition for n in nodes if isinstance(n, Branch))))
        inside.update(fields_in(tuple(n.keys for n in nodes if isinstance(n, Table))))
        for number in self.inlined:
            for primitive in program.actions[number].primitives:
                inside.update(self.fields(primitive))
        named = (tuple(program.actions.values()), tuple(program.calculations.values()))
        whole = {name.name for name in _parts(named, HeaderName)}
        return frozenset(
            f
            for f, uses in inside.items()
            if uses == self.total[f] and f.header not in whole and self._is_own(f)
        )

    def _is_own(self, field: Field) -> bool:
        """Return whether a field is metadata of the program, and not of the switch."""
        own = self._program.headers[field.header].is_metadata and field.header not in SWITCHS_OWN
        return own and field not in self._program.aliases.values()


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
    return _parts(node, Field)


def _parts(node: Any, kind: type[Part]) -> list[Part]:
    """Return everything of a kind inside a node, from left to right."""
    if isinstance(node, kind):
        return [node]
    if isinstance(node, tuple):
        return [part for item in node for part in _parts(item, kind)]
    if is_dataclass(node):
        return [part for field in fields(node) for part in _parts(getattr(node, field.name), kind)]
    return []
