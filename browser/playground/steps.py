"""A trace as the page plays it: for each step its text, line, node in a graph, and the values that it changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fanin.p4compiler.source import Span
from fanin.p4switch.bmv2json.expressions import HeaderName
from fanin.p4switch.bmv2json.primitive_kind import Message
from fanin.p4switch.bmv2json.program import Branch, Pipeline, Primitive, Program, Source, Table
from fanin.p4switch.trace.events import (
    Access,
    ActionRun,
    Assign,
    Call,
    Choice,
    Condition,
    Deparse,
    DirectCount,
    Drop,
    Egress,
    Event,
    Extract,
    Ingress,
    Lookup,
    NotEmitted,
    Output,
    PacketTrace,
    Parse,
    Parsed,
    PortNotSet,
    Select,
    State,
    UpdateChecksum,
)
from fanin.p4switch.trace.text import call_text, event_lines, verdict

MOST_STEPS = 5000  # of one packet; what resubmits itself again and again takes more

Json = dict[str, Any]
_Place = tuple[str, int]  # file and line


def outputs_of(trace: PacketTrace) -> list[tuple[int, str]]:
    """Return what left the switch because of a packet: ports, and bytes in hexadecimal."""
    return [(each.port, each.packet.hex()) for each in trace.events if isinstance(each, Output)]


class StepMaker:
    """Maker of steps from traces of one program."""

    def __init__(self, program: Program, states: Mapping[str, tuple[Span, ...]]) -> None:
        self._program = program
        self._states = states
        self._pipelines = {"ingress": program.ingress, "egress": program.egress}
        self._branches: dict[tuple[str, _Place, str], str] = {}
        self._hidden: dict[tuple[str, str], str] = {}
        for name, pipeline in self._pipelines.items():
            self._index(name, pipeline)
        self._actions = {action.name: action for action in program.actions.values()}
        self._calls = {
            (primitive.op, _place(primitive.source)): primitive
            for action in program.actions.values()
            for primitive in action.primitives
        }

    def document(self, trace: PacketTrace) -> Json:
        """Return a packet's way for JSON."""
        return {
            "copies": [
                {"parent": each.parent, "cause": each.cause, "replica": each.replica} for each in trace.copies
            ],
            "steps": list(self._steps(trace)),
            "cut": len(trace.events) > MOST_STEPS,
            "verdict": verdict(trace),
            "outputs": outputs_of(trace),
        }

    def _index(self, name: str, pipeline: Pipeline) -> None:
        for node_name, node in pipeline.nodes.items():
            match node:
                case Branch(source=source) if source is not None:
                    self._branches[name, _place(source), source.fragment] = node_name
                case Table(is_call=True):
                    self._hidden.update({(name, action.name): node_name for action in node.actions})
                case Table() | Branch():
                    pass
                case _:
                    self._hidden[name, node.action.name] = node_name

    def _steps(self, trace: PacketTrace) -> Iterator[Json]:
        places: dict[int, _Where] = {}
        for event, copy in zip(trace.events[:MOST_STEPS], trace.owners[:MOST_STEPS], strict=True):
            where = places.setdefault(copy, _Where())
            self._enter(where, event)
            if isinstance(event, ActionRun) and event.implied:
                continue  # the compiler's: its statements follow
            file, line = self._line(where, event)
            first, *more = event_lines(event)
            first = first.removesuffix(f"  [{file}:{line}]")  # the page shows the line itself
            step: Json = {"copy": copy, "kind": type(event).__name__, "text": [first, *more]}
            if line:
                step |= {"file": file, "line": line}
            if where.graph:
                step |= {"graph": where.graph, "node": where.node}
            yield step | self._changes(event)

    def _enter(self, where: _Where, event: Event) -> None:
        """Note the node that an event belongs to."""
        match event:
            case Parse():
                where.graph, where.node, where.chosen = "parser", "", False
            case State(name):
                where.node = name
                where.statements = iter(self._states.get(name, ())[1:])
            case Parsed():
                where.node = "end"
            case Ingress() | Egress():
                where.graph, where.node, where.chosen = type(event).__name__.lower(), "", False
            case Condition(_, text, _, _, _, source):
                where.chosen = False
                found = self._branches.get((where.graph, _place(source), source.fragment if source else text))
                where.node = found or where.node
            case Lookup(table):
                where.node, where.chosen = table, True
            case ActionRun() if where.chosen:  # by the table; the program may also call it by itself
                where.chosen = False
            case ActionRun(name, _, _) if (where.graph, name) in self._hidden:
                where.node = self._hidden[where.graph, name]
            case UpdateChecksum() | Deparse() | NotEmitted() | Output() | PortNotSet() | Drop():
                where.node = "end" if where.graph == "egress" else where.node

    def _line(self, where: _Where, event: Event) -> _Place:
        match event:
            case State(name) if name in self._states:
                where.place = _of_span(self._states[name][0])
            case Extract() | Assign(source=None) if where.graph == "parser":
                span = next(where.statements, None)
                where.place = _of_span(span) if span else where.place
            case Select():
                pass
            case ActionRun(name) if (action := self._actions.get(name)) and action.primitives:
                where.place = _place(action.primitives[0].source)
            case Condition() | Lookup() | Assign() | Access() | Call() | Drop():
                where.place = _place(event.source) if event.source else where.place
            case Choice() | DirectCount() | Message():
                pass
            case _:
                return "", 0
        return where.place

    def _changes(self, event: Event) -> Json:
        match event:
            case Parse():
                return {"forget": True}
            case Extract(header, fields):
                values = {f"{header}.{each.name}": each.text for each in fields}
                return {"valid": {header: True}, "set": values}
            case Assign(target, value):
                return {"set": {target: value.text}}
            case UpdateChecksum(_, target, value):
                return {"set": {target: value.text}}
            case Choice(_, kind, number, chosen, alternatives):
                return {
                    "choice": {
                        "kind": kind,
                        "number": number,
                        "chosen": chosen,
                        "of": [
                            {"member": each.member, "weight": each.weight, "call": call_text(each)}
                            for each in alternatives
                        ],
                    }
                }
            case Access(_, name, index, in_range, value) if in_range and value is not None:
                return {"cell": [name, index, value.text]}
            case Lookup(entry=entry) if entry is not None:
                return {"entry": entry.index}
            case Call():
                return self._validity(self._calls.get((event.operation, _place(event.source))))
        return {}

    def _validity(self, primitive: Primitive | None) -> Json:
        if primitive is None:
            return {}
        names = [each.name for each in primitive.arguments if isinstance(each, HeaderName)]
        match primitive.op, names:
            case "add_header" | "add_header_fast", [name]:
                return {"valid": {name: True}}
            case "remove_header", [name]:
                return {"valid": {name: False}}
            case "assign_header" | "copy_header", [to, source]:
                return {"assign": [to, source]}
        return {}


class _Where:
    """The place that a copy of a packet has reached."""

    def __init__(self) -> None:
        self.graph = ""
        self.node = ""
        self.chosen = False  # whether the node is a table that has been looked up, and its action comes next
        self.place: _Place = ("", 0)
        self.statements: Iterator[Span] = iter(())


def _place(source: Source | None) -> _Place:
    return (source.file, source.line) if source else ("", 0)


def _of_span(span: Span) -> _Place:
    return span.file.path, span.line
