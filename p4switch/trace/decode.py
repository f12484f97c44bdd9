"""Decoding of a traced program's records; codegen/tracing.py defines the kinds of records."""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import PurePath

from fanin.p4switch.bmv2json.expressions import ElementField, Expression, Field
from fanin.p4switch.bmv2json.program import (
    LONGEST_PACKET,
    Action,
    Branch,
    FieldType,
    Header,
    Named,
    ParserState,
    Primitive,
    Program,
    Set,
    Source,
    Table,
    Transition,
)
from fanin.p4switch.codegen.keys import KeyLayout
from fanin.p4switch.codegen.layout import packet_headers
from fanin.p4switch.codegen.tracing import Numbers, RecordKind, condition_fields
from fanin.p4switch.entries import ActionCall, Entry
from fanin.p4switch.trace.constants import constant_names, counted_name
from fanin.p4switch.trace.events import (
    Access,
    ActionRun,
    Alternative,
    Assign,
    Call,
    Choice,
    Condition,
    Copy,
    Deparse,
    Dequeue,
    Drop,
    Egress,
    Enqueue,
    Event,
    Extract,
    HitEntry,
    Ingress,
    Invalid,
    Jump,
    Lookup,
    NamedValue,
    NamedValues,
    NotEmitted,
    Output,
    PacketTrace,
    Parse,
    Parsed,
    PortNotSet,
    Request,
    Select,
    State,
    VerifyChecksum,
)
from fanin.p4switch.trace.notation import entry_text, expression_text, number_text
from fanin.p4switch.word_packing import from_words, word_count

# simple_switch's PKT_INSTANCE_TYPE_*
INSTANCES = (
    "normal",
    "ingress clone",
    "egress clone",
    "coalesced",
    "recirculated",
    "replication",
    "resubmitted",
)

FindEntry = Callable[[str, int], Entry | None]  # of a table, by its index
Choices = tuple[str, int | None, Sequence[tuple[int | None, ActionCall, int]]]
FindChoices = Callable[[str, int | None], Choices | None]
"""Return what an entry of a table, by its index (None: the default entry), chooses from: member, group or action set,
its number, and for each action the member, the call and the weight. None if it has an action of its own."""


class Decoder:
    """Decoder for the records of one program; `ports` are those of a running switch."""

    def __init__(
        self,
        program: Program,
        find_entry: FindEntry,
        find_choices: FindChoices,
        ports: Collection[int] | None = None,
    ) -> None:
        self.program = program
        self.find_entry = find_entry
        self.find_choices = find_choices
        self.ports = ports
        self.numbers = Numbers(program)
        self.headers = packet_headers(program)
        self.constants = constant_names(program)
        self.errors = {number: name for name, number in program.errors.items()}

    def packets(self, data: bytes) -> Iterator[PacketTrace]:
        """Yield the packets in a block of records."""
        port, time = 0, 0
        reading: _Packet | None = None
        for kind, number, words in _records(data):
            if kind is RecordKind.PACKET:
                if reading is not None:
                    yield reading.trace(port, time)
                reading, port, time = _Packet(self), number, words[0]
            elif reading is not None:
                reading.add(kind, number, words)
        if reading is not None:
            yield reading.trace(port, time)

    def value(self, name: str, width: int, number: int, field: Field | None = None) -> NamedValue:
        """Return a value that was recorded in whole words, reduced to its width."""
        number &= (1 << width) - 1
        if field is not None and field.header and self.program.field_type(field).signed:
            number -= (number >> (width - 1)) << width
        constant = self.constants.get(field, {}).get(number, "") if field is not None else ""
        return NamedValue(name, number, number_text(self.program, field, width, number), constant)


class _Packet:
    """Events of one packet, with a method for each kind of record."""

    def __init__(self, decoder: Decoder) -> None:
        self.of = decoder
        self.program = decoder.program
        self.packet = b""
        self.events: list[Event] = []
        self._select: tuple[ParserState, list[int]] | None = None
        self._to_drop: tuple[str, Source | None] = ("", None)  # what last set egress_spec
        self._replica = 0
        self._port_set = False  # whether a statement has set egress_spec
        self._copies = [Copy(None, "arrival")]
        self._owners: list[int] = []
        self._current = [0]  # copies that began and have not ended, the innermost last
        self._waiting: deque[int] = deque()  # copies that are processed later
        self._entry_index: dict[str, int | None] = {}  # of each table's last lookup; None on a miss

    def add(self, kind: RecordKind, number: int, words: tuple[int, ...]) -> None:
        """Add the events of a record."""
        owner = self._current[-1]
        getattr(self, kind.name.lower())(number, words)
        self._owners += [owner] * (len(self.events) - len(self._owners))

    def trace(self, port: int, time: int) -> PacketTrace:
        """Return the trace of the packet."""
        return PacketTrace(port, time, self.packet, self.events, self._copies, self._owners)

    # Copies

    def _copy(self, cause: str, replica: int | None = None) -> int:
        self._copies.append(Copy(self._current[-1], cause, replica))
        return len(self._copies) - 1

    def cloned(self, number: int, _words: tuple[int, ...]) -> None:
        self._current.append(self._copy(_instance(number)))

    def replica(self, _number: int, words: tuple[int, ...]) -> None:
        self._current.append(self._copy("replication", words[0]))

    def copy_done(self, _number: int, _words: tuple[int, ...]) -> None:
        self._current.pop()

    def later(self, number: int, _words: tuple[int, ...]) -> None:
        self._waiting.append(self._copy(_instance(number)))

    def next(self, _number: int, _words: tuple[int, ...]) -> None:
        self._current = [self._waiting.popleft()]
        self._port_set = False

    def arrived(self, _number: int, words: tuple[int, ...]) -> None:
        self.packet = _bytes(words)

    # The parser

    def parse(self, _number: int, _words: tuple[int, ...]) -> None:
        self.events.append(Parse())

    def state(self, number: int, _words: tuple[int, ...]) -> None:
        name = self.of.numbers.states[number].name
        self._selected(name)
        self.events.append(State(name))

    def select(self, number: int, words: tuple[int, ...]) -> None:
        state = self.of.numbers.states[number]
        self._select = state, list(_numbers(words, state.key_widths))

    def parsed(self, number: int, _words: tuple[int, ...]) -> None:
        self._selected(None)
        self.events.append(Parsed(self.of.errors.get(number, f"error {number}" if number else "NoError")))

    def _selected(self, following: str | None) -> None:
        """Add the event of a select, whose result is known when the next state begins."""
        if self._select is None:
            return
        state, key = self._select
        self._select = None
        names = map(expression_text, state.key)
        values = tuple(
            self.of.value(name, width, number, part if isinstance(part, Field) else None)
            for part, name, width, number in zip(state.key, names, state.key_widths, key, strict=True)
        )
        taken = (t for t in state.transitions if t.next_state == following and _may_meet(t, key))
        case = next((_case_text(t, values) for t in taken), "no case matches")
        self.events.append(Select(values, case, following or "accept"))

    def extract(self, number: int, words: tuple[int, ...]) -> None:
        header = self.of.headers[number]
        self.events.append(Extract(header.name, self._header(header, _bytes(words))))

    def deparse(self, number: int, words: tuple[int, ...]) -> None:
        header = self.of.headers[number]
        self.events.append(Deparse(header.name, self._header(header, _bytes(words))))

    def _header(self, header: Header, data: bytes) -> NamedValues:
        whole, bits = int.from_bytes(data, "big"), 8 * len(data)
        varying = bits - 8 * header.type.fixed_bytes
        values = []
        for kind in header.type.fields:
            width = varying if kind.varying else kind.width
            if width:
                number = whole >> (bits - kind.offset - varying * kind.behind_varbit - width)
                reference = None if kind.varying else Field(header.name, kind.name)
                values.append(self.of.value(kind.name, width, number, reference))
        return tuple(values)

    def checksum(self, number: int, words: tuple[int, ...]) -> None:
        self.events.append(VerifyChecksum(self.program.checksums[number].name, not words[0]))

    # The pipelines

    def ingress(self, _number: int, words: tuple[int, ...]) -> None:
        self.events.append(Ingress(_instance(words[0])))

    def egress(self, number: int, words: tuple[int, ...]) -> None:
        self._replica = words[0]
        self.events.append(Egress(number, words[0], _instance(words[1])))

    def branch(self, number: int, words: tuple[int, ...]) -> None:
        branch: Branch = self.of.numbers.branches[number]
        fields = condition_fields(self.program, branch.condition)
        text = branch.source.fragment if branch.source else expression_text(branch.condition)
        values = self._values([(expression_text(f), self._kind(f), f) for f in fields], words[1:])
        self.events.append(Condition(text, bool(words[0]), values, branch.source))

    def table(self, number: int, words: tuple[int, ...]) -> None:
        table = self.of.numbers.tables[number]
        hit, index, key = bool(words[0]), words[1], words[2:]
        values = tuple(
            self.of.value(
                field.name,
                field.width,
                from_words(key[place.word : place.word + word_count(place.width)]) >> place.shift,
                None if field.target.name == "$valid$" else field.target,
            )
            for field, place in zip(table.keys, KeyLayout(table).places, strict=True)
        )
        entry = self._entry(table, index, key) if hit else None
        self.events.append(Lookup(table.name, values, hit, entry, table.source))
        self._entry_index[table.name] = index if hit else None
        if table.profile is not None and (entry is not None or not hit):
            self._choose(table.name, {"member"}, 0)

    def choice(self, number: int, words: tuple[int, ...]) -> None:
        chosen, count = words
        self._choose(self.of.numbers.tables[number].name, {"group", "action set"}, chosen if count else None)

    def _choose(self, table: str, kinds: Collection[str], chosen: int | None) -> None:
        """Add the event of a choice. `chosen` counts each action as often as its weight."""
        found = self.of.find_choices(table, self._entry_index[table])
        if found is None or found[0] not in kinds:
            return
        kind, number, calls = found
        alternatives: list[Alternative] = []
        position, at = None, 0
        for place, (member, call, weight) in enumerate(calls):
            if chosen is not None and at <= chosen < at + weight:
                position = place
            at += weight
            parameters = self.program.tables[table].action(call.name)
            assert parameters is not None
            arguments = tuple(
                self.of.value(parameter.name, parameter.width, value)
                for parameter, value in zip(parameters.parameters, call.args, strict=True)
            )
            alternatives.append(Alternative(member, weight, call.name, arguments))
        self.events.append(Choice(table, kind, number, position, alternatives))

    def _entry(self, table: Table, index: int, key: tuple[int, ...]) -> HitEntry | None:
        """Return the entry at that index, or None if another one has taken its place: the key does not match that."""
        layout = KeyLayout(table)
        entry = self.of.find_entry(table.name, index)
        if entry is None or not layout.matches(layout.pack(entry.key), key):
            return None
        priority = entry.key.priority if layout.has_priority else None
        return HitEntry(index, entry_text(self.program, table, entry.key), priority)

    def colour(self, number: int, words: tuple[int, ...]) -> None:
        table = self.of.numbers.tables[number]
        meter = next(m for m in self.program.meters.values() if m.table == table.name)
        colour = self.of.value("colour", 64, words[0])
        self.events.append(Access("meter", meter.name, 0, True, colour, None))

    def action(self, number: int, words: tuple[int, ...]) -> None:
        action: Action = self.of.numbers.actions[number]
        parameters = [(p.name, p.width, None) for p in action.parameters]
        self.events.append(ActionRun(action.name, self._values(parameters, words), _is_implied(action)))

    def statement(self, number: int, words: tuple[int, ...]) -> None:
        statement = self.of.numbers.statements[number]
        if isinstance(statement, Set):
            self._assign(statement.target, words, None)
            return
        arguments, source = statement.arguments, statement.source
        match statement.op.lstrip("_"), arguments:
            case "register_read", (_, Named(_, name), _):
                self._register("read", name, words, source)
            case "register_write", (Named(_, name), _, _):
                self._register("write", name, words, source)
            case "count", (Named(_, name), index):
                in_range = words[0] < self.program.counters[name].size
                constant = counted_name(source.fragment) if source else ""
                if isinstance(index, Field):
                    constant = constant or self.of.constants.get(index, {}).get(words[0], "")
                self.events.append(Access("count", name, words[0], in_range, None, source, constant))
            case "execute_meter", (Named(_, name), _, _):
                in_range = words[0] < self.program.meters[name].size
                colour = self.of.value("colour", 64, words[1]) if in_range and len(words) > 1 else None
                self.events.append(Access("meter", name, words[0], in_range, colour, source))
            case "jump_if_zero", (condition, _):
                assert not isinstance(condition, Named)
                text = source.fragment if source else expression_text(condition)  # type: ignore[arg-type]
                self.events.append(Jump(text, bool(words[0]), source))
            case _, (Field() | ElementField() as target, *_) if words:
                self._assign(target, words, source)
            case op, _:
                if op in ("mark_to_drop", "drop"):
                    self._port_set = True
                    self._to_drop = "mark_to_drop", source
                self.events.append(Call(op, source))

    def _register(self, operation: str, name: str, words: tuple[int, ...], source: Source | None) -> None:
        register = self.program.registers[name]
        in_range = words[0] < register.size
        (number,) = _numbers(words[1:], (register.width,))
        value = self.of.value(name, register.width, number) if in_range else None
        self.events.append(Access(operation, name, words[0], in_range, value, source))

    def _assign(self, target: Expression, words: tuple[int, ...], source: Source | None) -> None:
        name = expression_text(target)
        field = target if isinstance(target, Field) else None
        width = self._kind(target)
        ((value,)) = self._values([(name, width, field)], words) or (NamedValue(name, 0, ""),)
        if field is not None and field.name == "egress_spec":
            self._port_set = True
            self._to_drop = "egress_spec is the drop port", source
        self.events.append(Assign(name, value, source))

    def failed(self, number: int, _words: tuple[int, ...]) -> None:
        statement = self.of.numbers.statements[number]
        source = statement.source if isinstance(statement, Primitive) else None
        self.events.append(Drop("an assertion failed", source))

    def looping(self, number: int, _words: tuple[int, ...]) -> None:
        statement = self.of.numbers.statements[number]
        source = statement.source if isinstance(statement, Primitive) else None
        self.events.append(Drop("its action jumps back too often", source))

    # The packet's fate

    def too_often(self, _number: int, _words: tuple[int, ...]) -> None:
        self.events.append(Drop("it and its copies have passed through the program too often", None))

    def too_long(self, number: int, _words: tuple[int, ...]) -> None:
        self.events.append(
            Drop(f"it has grown to {number} bytes, at most {LONGEST_PACKET} are possible", None)
        )

    def clone(self, number: int, words: tuple[int, ...]) -> None:
        self.events.append(Request("clone", number, words[0]))

    def multicast(self, number: int, words: tuple[int, ...]) -> None:
        self.events.append(Request("multicast", number, words[0]))
        if not words[0]:
            self.events.append(Drop(f"multicast group {number} has no replicas", None))

    def digest(self, number: int, _words: tuple[int, ...]) -> None:
        self.events.append(Request("digest", number, None))

    def resubmit(self, number: int, _words: tuple[int, ...]) -> None:
        self.events.append(Request("resubmit", number, None))

    def recirculate(self, number: int, _words: tuple[int, ...]) -> None:
        self.events.append(Request("recirculate", number, None))

    def priority(self, number: int, _words: tuple[int, ...]) -> None:
        self.events.append(Drop(f"priority {number}: a port has no such queue (--priority-queues)", None))

    def queue(self, number: int, words: tuple[int, ...]) -> None:
        waits, dropped = words
        if waits:
            self.events.append(Enqueue(number))
        elif dropped:
            self.events.append(Drop(f"the queue of port {number} is full", None))

    def dequeued(self, number: int, words: tuple[int, ...]) -> None:
        self.events.append(Dequeue(number, words[0]))

    def ingress_done(self, number: int, words: tuple[int, ...]) -> None:
        if number == words[0]:
            self.events.append(Drop(*self._to_drop))
        elif not self._port_set and not number:
            self.events.append(PortNotSet())

    def egress_done(self, number: int, words: tuple[int, ...]) -> None:
        if number == words[0]:
            self.events.append(Drop(*self._to_drop))

    def invalid(self, number: int, _words: tuple[int, ...]) -> None:
        self.events.append(Invalid(self.of.headers[number].name))

    def not_emitted(self, number: int, _words: tuple[int, ...]) -> None:
        self.events.append(NotEmitted(self.of.headers[number].name))

    def output(self, number: int, words: tuple[int, ...]) -> None:
        attached = self.of.ports is None or number in self.of.ports
        self.events.append(Output(number, self._replica, _bytes(words), attached))

    def _kind(self, target: Expression) -> int:
        """Return the width of the target of an assignment."""
        kind: FieldType
        if isinstance(target, ElementField):
            stack = self.program.stacks[target.element.stack]
            kind = self.program.headers[stack.headers[target.element.member]].type.fields[target.offset]
        else:
            assert isinstance(target, Field)
            kind = self.program.field_type(target)
        return kind.width

    def _values(self, wanted: Sequence[tuple[str, int, Field | None]], words: tuple[int, ...]) -> NamedValues:
        numbers = _numbers(words, [width for _, width, _ in wanted])
        return tuple(
            self.of.value(name, width, number, field)
            for (name, width, field), number in zip(wanted, numbers, strict=True)
        )


def _records(data: bytes) -> Iterator[tuple[RecordKind, int, tuple[int, ...]]]:
    at = 0
    while at < len(data):
        kind, count, number = struct.unpack_from("=HHI", data, at)
        yield RecordKind(kind), number, struct.unpack_from(f"={count}Q", data, at + 8)
        at += 8 + 8 * count


def _bytes(words: tuple[int, ...]) -> bytes:
    return struct.pack(f"={len(words) - 1}Q", *words[1:])[: words[0]]


def _numbers(words: tuple[int, ...], widths: Collection[int]) -> Iterator[int]:
    """Yield numbers of these widths, each from as many words as it takes."""
    at = 0
    for width in widths:
        yield from_words(words[at : at + word_count(width)])
        at += word_count(width)


def _is_implied(action: Action) -> bool:
    """Return whether p4c created the action: it is named after the file and line of its first statement."""
    source = next((p.source for p in action.primitives if p.source), None)
    if source is None:
        return False
    made = re.sub(r"\W", "_", PurePath(source.file).stem) + str(source.line)
    return re.fullmatch(rf"{made}(_\d+)?", action.name) is not None


def _instance(number: int) -> str:
    return INSTANCES[number] if number < len(INSTANCES) else f"instance type {number}"


def _may_meet(transition: Transition, key: list[int]) -> bool:
    """Return whether a key may meet a transition. The contents of value sets are not known here."""
    if transition.values is None or transition.masks is None:
        return True
    return all(
        (number ^ value) & (-1 if mask is None else mask) == 0
        for number, value, mask in zip(key, transition.values, transition.masks, strict=True)
    )


def _case_text(transition: Transition, key: NamedValues) -> str:
    if transition.value_set is not None:
        return f"value set {transition.value_set}"
    if transition.values is None or transition.masks is None:
        return "default"
    parts = [
        part.text if mask is None else f"{value:#x} &&& {mask:#x}"
        for part, value, mask in zip(key, transition.values, transition.masks, strict=True)
    ]
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
