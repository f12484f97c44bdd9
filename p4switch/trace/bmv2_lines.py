"""Lines of BMv2's log about a packet, made from its trace. Course texts quote them, so the wording is BMv2's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fanin.p4switch.bmv2json.expressions import Constant
from fanin.p4switch.bmv2json.primitive_kind import Message
from fanin.p4switch.bmv2json.program import Advance, ExtractHeader, Source, Table, TableKey
from fanin.p4switch.entries import (
    ActionCall,
    Entry,
    Exact,
    GroupReference,
    Lpm,
    Match,
    MemberReference,
    Optional_,
    Range,
    Ternary,
)
from fanin.p4switch.trace.events import (
    Access,
    ActionRun,
    Assign,
    Call,
    Choice,
    Condition,
    Deparse,
    Drop,
    Egress,
    Event,
    Extract,
    Ingress,
    Lookup,
    NamedValue,
    Output,
    PacketTrace,
    Parse,
    Parsed,
    Request,
    Select,
    State,
    UpdateChecksum,
    VerifyChecksum,
)
from fanin.p4switch.trace.tracer import Tracer

_NAME_WIDTH = 20  # of a field in a key
_AFTER_DEPARSER = {"recirculate": "Recirculating packet"}
_AFTER_PIPELINE = {
    "multicast": ("D", "Multicast requested for packet"),
    "resubmit": ("D", "Resubmitting packet"),
    "digest": ("T", "Learning sample for list id {number}"),
    "clone": ("D", "Cloning packet at {pipeline}"),
}

# By the operation of an access: what was attempted, the arrays of the program, and what stays as it is.
_OUT_OF_BOUNDS = {
    "read": ("read register", "registers", "Dest field was not updated"),
    "write": ("write register", "registers", "No register array elements were updated"),
    "count": ("update counter", "counters", "No counters were updated"),
    "meter": ("update meter", "meters", "No meters were updated, and neither was dest field"),
}

Line = tuple[str, int | None, str]
"""Level (T, D, I or E), number of the copy that the line names (None: it names none), and text."""


def log_lines(packet: PacketTrace, tracer: Tracer, bytes_shown: int = 0) -> Iterator[Line]:
    """Yield what BMv2 logs about a packet.

    Args:
        packet: The packet and what happened to it.
        tracer: What has traced it.
        bytes_shown: The bytes of each packet that arrives or leaves to be logged.
    """
    copies = [_Copy(tracer, packet.port, copy.cause) for copy in packet.copies]
    if bytes_shown:
        yield "I", None, _content("Received", packet.packet, packet.port, bytes_shown)
    yield "D", 0, f"Processing packet received on port {packet.port}"
    for event, owner in zip(packet.events, packet.owners, strict=True):
        if isinstance(event, Egress) and (parent := packet.copies[owner].parent) is not None:
            cause = packet.copies[owner].cause
            for level, text in copies[parent].parser_ends():  # a clone that has replicas
                yield level, parent, text
            if cause == "replication":
                yield "D", parent, f"Replicating packet on port {event.port}"
            elif cause in ("ingress clone", "egress clone"):
                yield "D", parent, f"Cloning packet to egress port {event.port}"
        for level, text in copies[owner].lines(event):
            yield level, None if isinstance(event, Message) else owner, text
        if isinstance(event, Output) and bytes_shown:
            yield "I", None, _content("Sending", event.packet, event.port, bytes_shown)


@dataclass(slots=True)
class _Copy:
    """One copy of a packet, and the place in the program that it has reached."""

    tracer: Tracer
    arrived_on: int
    cause: str
    pipeline: str = ""  # that the copy is in
    parsing: bool = False
    state: str = ""  # of the parser; empty once its select was logged
    extracted: list[str] = field(default_factory=list)  # headers of this state
    parsed: int | None = 0  # bytes; None if the program advances by a number that is known only to the packet
    present: set[str] = field(default_factory=set)  # headers
    verified: set[str] = field(default_factory=set)  # checksums
    updated: set[str] = field(default_factory=set)
    deparsing: bool = False
    looked_up: bool = False  # whether the table of the next action was logged

    def lines(self, event: Event) -> Iterator[tuple[str, str]]:
        """Yield the level and text of the lines about an event."""
        yield from self._ends(event)
        match event:
            case Parse():
                self.parsing, self.parsed = True, 0
                if self.cause in ("resubmitted", "recirculated"):
                    yield "D", f"Processing packet received on port {self.arrived_on}"
                yield "D", "Parser 'parser': start"
            case State(name):
                yield from self._state_ends()
                self.state, self.extracted = name, []
                yield "D", f"Parser 'parser' entering state '{name}'"
            case Extract(header, values):
                self._extracts(header, sum(value.width for value in values))
                yield "D", self._extraction(header)
            case Select(key):
                yield "D", f"Parser state '{self.state}': key is {''.join(map(_value, key))}"
                yield from self._position()
            case Parsed(error):
                yield from self._parsed(error)
            case VerifyChecksum(name, correct, _, value, computed):
                self.verified.add(name)
                yield "D", f"Checksum '{name}': computed {computed.number:#x} - actual {value.number:#x}"
                yield "D", f"Verified checksum '{name}': {'passed' if correct else 'failed'}"
                if not correct:
                    yield "E", f"Checksum '{name}' is not correct"
            case Ingress():
                self.pipeline = "ingress"
                yield "D", "Pipeline 'ingress': start"
            case Egress(port):
                if self.cause in ("arrival", "resubmitted", "recirculated"):
                    yield "D", f"Egress port is {port}"
                self.pipeline = "egress"
                yield "D", "Pipeline 'egress': start"
            case UpdateChecksum(name):
                self.updated.add(name)
            case Deparse(header):
                yield "D", f"Deparsing header '{header}'"
            case Output(port, _, content):
                yield "D", f"Transmitting packet of size {len(content)} out of port {port}"
            case Lookup():
                yield from self._lookup(event)
            case Choice(_, "group", number, chosen, alternatives) if chosen is not None:
                yield "D", f"Choosing member {alternatives[chosen].member} from group {number}"
            case ActionRun(name, arguments):
                yield from self._action(name, arguments)
            case Call(operation) if self.parsing:
                yield "D", f"Executing method {operation}"
                yield "T", f"Action {operation}"
                yield from _statement(event)
            case Access():
                yield from _statement(event)
                yield from self._access(event)
            case Message(level, text):
                yield level[0].upper(), text
            case _:
                yield from _statement(event)

    def _ends(self, event: Event) -> Iterator[tuple[str, str]]:
        """Yield what ends before an event: the parser, a pipeline, the deparser."""
        if isinstance(event, (Ingress, Egress)):
            yield from self.parser_ends()
        at = self.pipeline
        if isinstance(event, (Ingress, Egress, Deparse, Output, Drop)):
            yield from self._pipeline_ends()
        match event:
            case Drop():
                if at == "ingress":
                    yield "D", f"Egress port is {self.tracer.drop_port}"
                yield "D", f"Dropping packet at the end of {at}" if at else f"Dropping packet: {event.reason}"
            case Request(what, number) if what in _AFTER_PIPELINE:
                yield from self._pipeline_ends()
                level, text = _AFTER_PIPELINE[what]
                yield level, text.format(number=number, pipeline=at)
            case Deparse() if not self.deparsing:
                yield from self._deparser_starts()
            case Output() | Request("recirculate"):
                if not self.deparsing:
                    yield from self._deparser_starts()
                self.deparsing = False
                yield "D", "Deparser 'deparser': end"
                if isinstance(event, Request):
                    yield "D", _AFTER_DEPARSER[event.what]

    def parser_ends(self) -> Iterator[tuple[str, str]]:
        """Yield the lines about the end of the parser, if the copy is in it."""
        if self.parsing:
            self.parsing = False
            yield from self._checksums_skipped()
            yield "D", "Parser 'parser': end"

    def _pipeline_ends(self) -> Iterator[tuple[str, str]]:
        if self.pipeline:
            yield "D", f"Pipeline '{self.pipeline}': end"
            self.pipeline = ""

    def _extracts(self, header: str, bits: int) -> None:
        self.extracted.append(header)
        self.present.add(header)
        if self.parsed is not None:
            self.parsed += bits // 8

    def _extraction(self, header: str) -> str:
        kind = " variable-sized" if self.tracer.program.headers[header].type.varbit else ""
        return f"Extracting{kind} header '{header}'"

    def _position(self) -> Iterator[tuple[str, str]]:
        """Yield the number of bytes parsed, at the end of a state."""
        for operation in self.tracer.program.parser.states[self.state].operations:
            if isinstance(operation, Advance) and self.parsed is not None:
                known = operation.bits.value if isinstance(operation.bits, Constant) else None
                self.parsed = None if known is None else self.parsed + known // 8
        self.state = ""
        if self.parsed is not None:
            yield "T", f"Bytes parsed: {self.parsed}"

    def _state_ends(self) -> Iterator[tuple[str, str]]:
        if self.state:
            yield "D", f"Parser state '{self.state}' has no switch, going to default next state"
            yield from self._position()

    def _parsed(self, error: str) -> Iterator[tuple[str, str]]:
        if error == "NoError":
            yield from self._state_ends()
            return
        if error == "PacketTooShort" and self.state:
            operations = self.tracer.program.parser.states[self.state].operations
            headers = [o.header for o in operations if isinstance(o, ExtractHeader)]
            for header in headers[len(self.extracted) : len(self.extracted) + 1]:
                yield "D", self._extraction(header)
        self.state = ""
        yield "E", f"Exception while parsing: {error}"

    def _checksums_skipped(self) -> Iterator[tuple[str, str]]:
        for checksum in self.tracer.program.checksums:
            if checksum.verify and checksum.name not in self.verified:
                reason = (
                    "condition not met" if checksum.target.header in self.present else "target field invalid"
                )
                yield "T", f"Skipping checksum '{checksum.name}' verification because {reason}"

    def _deparser_starts(self) -> Iterator[tuple[str, str]]:
        self.deparsing = True
        yield "D", "Deparser 'deparser': start"
        for checksum in self.tracer.program.checksums:
            if checksum.name in self.updated:
                yield "D", f"Updating checksum '{checksum.name}'"
            elif checksum.update:
                yield "T", f"Skipping checksum '{checksum.name}' update because condition not met"

    def _lookup(self, lookup: Lookup) -> Iterator[tuple[str, str]]:
        self.looked_up = True
        names = max([_NAME_WIDTH, *(len(value.name) for value in lookup.key)])
        key = "".join(f"* {value.name:{names}}: {_value(value)}\n" for value in lookup.key)
        yield "T", f"Applying table '{lookup.table}'"
        yield "D", f"Looking up key:\n{key}"
        if not lookup.hit:
            yield "D", f"Table '{lookup.table}': miss"
            return
        if lookup.entry is None:
            yield "D", f"Table '{lookup.table}': hit"
            return
        index = lookup.entry.index
        yield "D", f"Table '{lookup.table}': hit with handle {index}"
        if entry := self.tracer.find_entry(lookup.table, index):
            table = self.tracer.program.tables[lookup.table]
            yield "D", f"Dumping entry {index}\n{_entry(table, entry, lookup.entry.priority)}"

    def _access(self, access: Access) -> Iterator[tuple[str, str]]:
        """Yield what happened to a cell of an array. A direct meter has no cells."""
        program, name = self.tracer.program, access.name
        if access.operation == "meter" and program.meters[name].table is not None:
            return
        place = f"'{name}' at index {access.index}"
        value = access.value.number if access.value is not None else None
        match access.operation:
            case _ if not access.in_range:
                what, arrays, kept = _OUT_OF_BOUNDS[access.operation]
                size = getattr(program, arrays)[name].size
                at = f"'{name}' with size {size} at out-of-bounds index {access.index}"
                yield "E", f"Attempted to {what} {at}.  {kept}."
            case "read":
                yield "T", f"Read register {place} read value {value}"
            case "write":
                yield "T", f"Wrote register {place} with value {value}"
            case "count":
                yield "T", f"Updated counter {place}"
            case "meter":
                yield "D", f"Executing meter {name}[{access.index}]"
                yield "T", f"Updated meter {place}, assigning dest field the color result {value}"

    def _action(self, name: str, arguments: tuple[NamedValue, ...]) -> Iterator[tuple[str, str]]:
        if not self.looked_up:
            table = next(
                (t for t in self.tracer.program.tables.values() if t.is_call and t.action(name)), None
            )
            if table is not None:
                yield from self._lookup(Lookup(table.name, (), False, None, None))
        self.looked_up = False
        yield "D", f"Action entry is {_call(name, [value.number for value in arguments])}"
        yield "T", f"Action {name}"


def _statement(event: Event) -> Iterator[tuple[str, str]]:
    """Yield the line of a statement of an action, or of a condition between tables."""
    match event:
        case Condition(node, text, outcome, _, _, source):
            yield "T", f'{_at(source)}Condition "{text}" ({node}) is {str(outcome).lower()}'
        case Assign(target, _, source):
            yield "T", f"{_at(source)}Primitive {source.fragment if source else target}"
        case Access(operation, name, index, _, _, source):
            done = source.fragment if source else f"{operation} {name}[{index}]"
            yield "T", f"{_at(source)}Primitive {done}"
        case Call(operation, source):
            yield "T", f"{_at(source)}Primitive {source.fragment if source else operation}"


def _entry(table: Table, entry: Entry, priority: int | None) -> str:
    names = max([_NAME_WIDTH, *(len(key.name) for key in table.keys)])
    parts = zip(table.keys, entry.key.match, strict=True)
    lines = ["Match key:", *(f"* {key.name:{names}}: {_match(key, match)}" for key, match in parts)]
    if priority is not None:
        lines.append(f"Priority: {priority}")
    match entry.action:
        case ActionCall(name, arguments):
            lines.append(f"Action entry: {_call(name, arguments)}")
        case MemberReference(number):
            lines.append(f"Index: member({number})")
        case GroupReference(number):
            lines.append(f"Index: group({number})")
    return "\n".join([*lines, ""])


def _match(key: TableKey, match: Match) -> str:
    def number(value: int) -> str:
        return _hex(value, key.width)

    everything = (1 << key.width) - 1
    match match:
        case Exact(value):
            return f"{'EXACT':10}{number(value)}"
        case Lpm(value, length):
            return f"{'LPM':10}{number(value)}/{length}"
        case Ternary(value, mask):
            return f"{'TERNARY':10}{number(value)} &&& {number(mask)}"
        case Range(low, high):
            return f"{'RANGE':10}{number(low)} -> {number(high)}"
        case Optional_(wanted):
            mask = 0 if wanted is None else everything
            return f"{'TERNARY':10}{number(wanted or 0)} &&& {number(mask)}"


def _call(name: str, arguments: list[int] | tuple[int, ...]) -> str:
    return f"{name} - " + "".join(f"{argument:x}," for argument in arguments)


def _value(value: NamedValue) -> str:
    return _hex(value.number, value.width)


def _hex(number: int, width: int) -> str:
    """Return a number in hexadecimal, with the zeros of whole bytes."""
    size = (width + 7) // 8
    return f"{number & ((1 << 8 * size) - 1):0{2 * size}x}"


def _at(source: Source | None) -> str:
    return f"{source.file}({source.line}) " if source else ""


def _content(what: str, packet: bytes, port: int, shown: int) -> str:
    return f"{what} packet of length {len(packet)} on port {port}: {packet[:shown].hex()}"
