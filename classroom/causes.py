"""Likely causes of a failure: what a student's program did with the packet for which a test failed, from its trace.

A cause is one sentence with a place in the student's file. It states what the program did or left out, and not what a
solution would do: the hints of the lab are for that.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal, TypeVar

from fanin.classroom.story import Row
from fanin.native.text import counted
from fanin.p4switch.bmv2json.expressions import Field
from fanin.p4switch.bmv2json.program import Checksum, ExtractHeader, ExtractNext, Primitive, Program, Source
from fanin.p4switch.trace.events import (
    Access,
    ActionRun,
    Assign,
    Condition,
    Copy,
    Drop,
    Event,
    Extract,
    HitEntry,
    Invalid,
    Lookup,
    NamedValue,
    NotEmitted,
    Output,
    PacketTrace,
    Parsed,
    PortNotSet,
    Request,
    Select,
    State,
    UpdateChecksum,
)

_Kind = TypeVar("_Kind", bound=Event)
MOST_DECISIONS, LAST_DECISIONS = 3, 20  # named, and looked at
MOST = 2  # causes of one failure: the later ones tend to follow from the first
_PORT, _GROUP = "egress_spec", "mcast_grp"  # of standard metadata, which a program may call as it likes


@dataclass(frozen=True, slots=True)
class Deviation:
    """Difference between the outcome and the expected one.

    Attributes:
        kind: The packet did not leave by the expected port, it left although it should be dropped, it left with other
            fields, a register or counter has another value, or something else.
        port: The port by which the packet with other fields left. None: it did not leave.
        rows: The fields that differ.
        state: The register or counter with another value.
    """

    kind: Literal["lost", "not dropped", "fields", "state", "other"] = "other"
    port: int | None = None
    rows: Sequence[Row] = ()
    state: str = ""


def causes(traces: Sequence[PacketTrace], program: Program, deviation: Deviation) -> tuple[str, ...]:
    """Return likely causes of a failure, the most likely one first.

    Args:
        traces: The traces of the packet: one, and another for each time it has left a queue.
        program: The student's program.
        deviation: What the test has found.
    """
    found = _Path(_events(traces, deviation.port), program)
    sentences: dict[str, None] = {}
    for sentence in itertools.chain(found.never_right(), found.explanations(deviation)):
        sentences[sentence] = None
        if len(sentences) == MOST:  # a packet that is sent round may have many thousand events
            break
    return tuple(sentences)


def _events(traces: Sequence[PacketTrace], port: int | None) -> list[Event]:
    """Return the events of a packet; of the copies that a switch makes only those of the one that left by a port."""
    events: list[Event] = []
    for trace in traces:
        pairs = [*zip(trace.events, trace.owners, strict=True)]
        left = [owner for event, owner in pairs if isinstance(event, Output) and event.port == port]
        kept = _ancestors(trace.copies, left[0]) if left else {owner for _, owner in pairs}
        events += [event for event, owner in pairs if owner in kept]
    return events


def _ancestors(copies: Sequence[Copy], number: int) -> set[int]:
    found = {number}
    while (parent := copies[number].parent) is not None:
        found.add(number := parent)
    return found


def _at(source: Source | None) -> str:
    return "" if source is None else f" ({PurePath(source.file).name}:{source.line})"


class _Path:
    """The path of one packet through a program."""

    def __init__(self, events: Sequence[Event], program: Program) -> None:
        self._events = events
        self._program = program
        self._assigned = {event.target: event for event in self._all(Assign)}
        sending = [event for target, event in self._assigned.items() if target.endswith(f".{_PORT}")]
        self._sending = sending[-1] if sending else None

    def _all(self, kind: type[_Kind]) -> list[_Kind]:
        return [event for event in self._events if isinstance(event, kind)]

    # -- what is wrong in every program ---------------------------------------------------------------------------

    def never_right(self) -> Iterator[str]:
        """Yield what is a mistake whatever the program is for."""
        yield from self._errors_of_the_parser()
        for number, event in enumerate(self._events):
            match event:
                case Invalid(header):
                    yield self._use_of_invalid(number, header)
                case Access(in_range=False):
                    yield (
                        f"{_cell(event)} is out of range, so nothing happens{_at(event.source)}: "
                        f"the last cell is {self._last_cell(event.name)}"
                    )
                case Request(what, group, 0):
                    yield f"{what} to {group} makes no copy: the controller has put nobody into it"
                case NotEmitted(header):
                    yield f"{header} is valid, but the deparser does not emit it"
        yield from self._two_cells()
        yield from self._never_written()

    def _errors_of_the_parser(self) -> Iterator[str]:
        states = self._all(State)
        handled = any("parser_error" in each.text for each in self._all(Condition))
        for event in self._all(Parsed):
            if event.error != "NoError" and not handled:
                yield f"the parser stops in state {states[-1].name} with error.{event.error}"
        extracted: set[str] = set()
        for each in self._events:
            if isinstance(each, Extract):
                extracted.add(each.header)
            elif isinstance(each, Select):
                early = [
                    v for v in each.key if self._is_header(v) and v.name.rpartition(".")[0] not in extracted
                ]
                for value in early:
                    header = value.name.rpartition(".")[0]
                    yield f"the parser selects on {value.name} before it has extracted {header}"

    def _is_header(self, value: NamedValue) -> bool:
        header = self._program.headers.get(value.name.rpartition(".")[0])
        return header is not None and not header.is_metadata

    def _use_of_invalid(self, number: int, header: str) -> str:
        """Return what uses a field of a header that is not valid, after the event of this number."""
        using = next((event for event in self._events[number + 1 :] if not isinstance(event, Invalid)), None)
        source = getattr(using, "source", None)
        what = "the program" if source is None else f"`{source.fragment}`{_at(source)}"
        if isinstance(using, Assign) and using.target.startswith(f"{header}."):
            return f"{what} sets a field of {header}, which is not valid: call its setValid() first"
        if isinstance(using, Lookup):
            what = f"the key of table {using.table}{_at(source)}"
        return f"{what} uses {header}, which is not valid: {self._why_invalid(header)}"

    def _why_invalid(self, header: str) -> str:
        """Return why the parser has not extracted a header."""
        if not self._extracts(header):
            return "no state that the parser can reach extracts it"
        states = self._all(State)
        selects = self._all(Select)
        if not selects:
            return f"the parser ends in state {states[-1].name}"
        key = ", ".join(f"{value.name}={value}" for value in selects[-1].key)
        return f"the parser ends in state {states[-1].name}, after a select on {key} that led to {selects[-1].next}"

    def _extracts(self, header: str) -> bool:
        """Return whether a state of the parser extracts a header."""
        return any(
            (isinstance(operation, ExtractHeader) and operation.header == header)
            or (
                isinstance(operation, ExtractNext) and header in self._program.stacks[operation.stack].headers
            )
            for state in self._program.parser.states.values()
            for operation in state.operations
        )

    def _last_cell(self, name: str) -> int:
        program = self._program
        sizes = {each.name: each.size for of in (program.registers, program.counters) for each in of.values()}
        return (sizes | {each.name: each.size for each in program.meters.values()})[name] - 1

    def _two_cells(self) -> Iterator[str]:
        """Yield registers of which the packet reads one cell and writes another one."""
        read: dict[str, Access] = {}
        for access in self._all(Access):
            if access.operation == "read":
                read[access.name] = access
            elif access.operation == "write" and access.name in read:
                before = read[access.name]
                if before.index != access.index:
                    yield (
                        f"{access.name} is read in cell {before.index}{_at(before.source)} "
                        f"and written in cell {access.index}{_at(access.source)}"
                    )

    def _never_written(self) -> Iterator[str]:
        """Yield registers that the packet reads, if the program has no statement that writes them."""
        for name in dict.fromkeys(access.name for access in self._all(Access) if access.operation == "read"):
            if not self._changes(name):
                yield f"the program reads register {name}, but no statement writes it"

    # -- what explains a deviation --------------------------------------------------------------------------------

    def explanations(self, deviation: Deviation) -> Iterator[str]:
        """Yield what explains a deviation."""
        never, perhaps = self._not_parsed()
        yield from never
        match deviation.kind:
            case "lost":
                yield from self._why_lost(deviation.port)
            case "not dropped":
                yield from self._why_sent(deviation.port)
            case "state":
                yield from self._why_state(deviation.state)
        if not self._all(NotEmitted):  # without it all fields behind the header differ
            yield from self._why_rows(deviation.rows)
            yield from perhaps

    def _not_parsed(self) -> tuple[list[str], list[str]]:
        """Explain headers that a condition found invalid.

        Returns:
            Those that the parser can never extract, and those for which the last select met no case.
        """
        extracted = {event.header for event in self._all(Extract)}
        names = {
            name: None
            for condition in self._all(Condition)
            for negated, name in re.findall(r"(!?)\bhdr\.([\w.\[\]]+)\.isValid\(\)", condition.text)
            if condition.outcome == bool(negated) and name in self._program.headers and name not in extracted
        }
        no_case = any(each.case in ("default", "no case matches") for each in self._all(Select)[-1:])
        texts = {name: f"{name} is not valid: {self._why_invalid(name)}" for name in names}
        never = [text for name, text in texts.items() if not self._extracts(name)]
        return never, [*texts.values()] if no_case else []

    def _why_lost(self, port: int | None) -> Iterator[str]:
        drops, requests = self._all(Drop), self._multicasts()
        if self._all(PortNotSet):
            yield (
                f"nothing on the path of this packet sets {_PORT} or {_GROUP}, so it goes to port 0"
                f"{self._elsewhere(_PORT) or self._elsewhere(_GROUP)}"
            )
        elif drops:
            yield f"{drops[-1].reason} drops the packet{_at(drops[-1].source)}: {self._decisions(drops[-1])}"
        elif requests:
            yield f"{_request(requests[-1])}, and none for port {port}: {self._decisions(requests[-1])}"
        elif self._sending is not None:
            yield self._sends(self._sending)

    def _why_sent(self, port: int | None) -> Iterator[str]:
        requests = self._multicasts()
        if self._all(PortNotSet):
            yield f"nothing drops this packet, and {_PORT} stays 0, which is a port: {self._decisions()}"
        elif requests:
            yield f"{_request(requests[-1])}, one of them for port {port}: {self._decisions(requests[-1])}"
        elif self._sending is not None:
            yield self._sends(self._sending)

    def _multicasts(self) -> list[Request]:
        return [request for request in self._all(Request) if request.what == "multicast"]

    def _sends(self, port: Assign) -> str:
        return (
            f"`{_fragment(port)}` sends it to port {port.value.number}{_at(port.source)}: {self._decisions()}"
        )

    def _decisions(self, before: Event | None = None) -> str:
        """Return the last decisions, before an event if there is one: tables with keys, and conditions."""
        events = self._events if before is None else self._events[: self._events.index(before)]
        found = [each for each in events if isinstance(each, Condition) or _has_key(each)]
        # A control that is applied several times repeats its decisions.
        texts = dict.fromkeys(map(self._decision, found[-LAST_DECISIONS:]))
        return "; ".join([*texts][-MOST_DECISIONS:]) or "no table and no condition decides it"

    def _decision(self, event: Event) -> str:
        match event:
            case Lookup(table, key, hit, entry, source):
                keys = ", ".join(f"{value.name}={value}" for value in key)
                found = _entry(entry) if hit and entry else "no entry matches"
                return f"table {table}, {keys}: {found}, so {self._action_after(event)} runs{_at(source)}"
            case Condition(_, text, outcome, values, _, source):
                because = ", ".join(f"{value.name}={value}" for value in values)
                truth = f"is {'true' if outcome else 'false'}" + (f" with {because}" if because else "")
                return f"`{text}` {truth}{_at(source)}"
        raise AssertionError(event)

    def _action_after(self, lookup: Event) -> str:
        following = self._events[self._events.index(lookup) + 1 :]
        ran = next((event for event in following if isinstance(event, ActionRun)), None)
        return "no action" if ran is None else ran.name

    def _refusal(self) -> str:
        """Return the last decision if it was against something: a condition that is false, or a miss."""
        last = next((e for e in reversed(self._events) if isinstance(e, Condition) or _has_key(e)), None)
        if (isinstance(last, Condition) and not last.outcome) or (isinstance(last, Lookup) and not last.hit):
            return f": {self._decision(last)}"
        return ""

    def _why_state(self, name: str) -> Iterator[str]:
        accesses = [each for each in self._all(Access) if each.name == name and each.operation != "read"]
        if accesses:
            last = accesses[-1]
            value = "" if last.value is None else f" = {last.value}"
            yield f"the last packet did this: {_cell(last)}{value}{_at(last.source)}"
        elif self._changes(name):
            yield f"the last packet did not change {name}: {self._decisions()}"
        else:
            yield f"no statement of the program changes {name}"

    def _changes(self, name: str) -> bool:
        """Return whether the program has a statement that changes a register or counter."""
        return any(
            getattr(argument, "name", "") == name
            for primitive in self._primitives()
            if not primitive.op.endswith("read")
            for argument in primitive.arguments
        )

    def _primitives(self) -> Iterator[Primitive]:
        for action in self._program.actions.values():
            yield from action.primitives

    def _why_rows(self, rows: Sequence[Row]) -> Iterator[str]:
        checksums = {_name(each.target): each for each in self._program.checksums if each.update}
        wrong = [row for row in rows if row.name not in checksums and not row.name.endswith(".checksum")]
        places = set()  # of statements that are named already: a loop over values has one
        for row in wrong or rows:
            assigned = self._assigned.get(row.name)
            if row.name.endswith(".checksum") or row.name in checksums:
                yield self._why_checksum(row.name, checksums.get(row.name))
            elif assigned is not None and assigned.source not in places:
                places.add(assigned.source)
                yield (
                    f"`{_fragment(assigned)}` sets {row.name} to {row.actual}{_at(assigned.source)}"
                    f"{self._read_before(assigned)}"
                )
            elif assigned is None and row.name.rpartition(".")[0] in self._program.headers:
                yield f"nothing on the path of this packet sets {row.name}{self._elsewhere(row.name)}"

    def _why_checksum(self, name: str, checksum: Checksum | None) -> str:
        if any(event.target == name for event in self._all(UpdateChecksum)):
            return f"update_checksum computes {name} from other values than those that the packet leaves with"
        if checksum is None:
            return f"the program has no update_checksum for {name}, so it keeps the old one"
        return f"the condition of update_checksum is false, so {name} keeps the old one"

    def _read_before(self, assigned: Assign) -> str:
        """Return what was read from a register before an assignment, since a sum may come from there."""
        before = self._events[: self._events.index(assigned)]
        read = [e for e in before if isinstance(e, Access) and e.operation == "read"]
        return "" if not read else f", after {_cell(read[-1])} = {read[-1].value}{_at(read[-1].source)}"

    def _elsewhere(self, name: str) -> str:
        """Return which statement of the program sets a field, although it did not run."""
        for primitive in self._primitives():
            target = primitive.arguments[0] if primitive.arguments else None
            if primitive.op == "assign" and isinstance(target, Field) and _named(target, name):
                return f"; `{_fragment(primitive)}` does{_at(primitive.source)}, but did not run{self._refusal()}"
        return ""


def _request(request: Request) -> str:
    copies = "" if request.copies is None else f" makes {counted(request.copies, 'copy', 'copies')}"
    return f"{request.what} to {request.number}{copies}"


def _has_key(event: Event) -> bool:
    return isinstance(event, Lookup) and bool(event.key)


def _cell(access: Access) -> str:
    return f"{access.operation} {access.name}[{access.index}]"


def _entry(entry: HitEntry) -> str:
    matches = ", ".join(f"{name}={text}" for name, text in entry.match.items())
    return f"entry {entry.index} matches ({matches})"


def _fragment(of: Assign | Primitive) -> str:
    return "an assignment" if of.source is None else of.source.fragment


def _name(field: Field) -> str:
    return f"{field.header}.{field.name}"


def _named(field: Field, name: str) -> bool:
    return _name(field) == name or field == Field("standard_metadata", name)
