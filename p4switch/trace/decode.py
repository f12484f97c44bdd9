"""Decoding of a traced program's records; codegen/tracing.py defines the kinds of records."""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import PurePath

from fanin.p4switch.bmv2json.expressions import ElementField, Expression, Field
from fanin.p4switch.bmv2json.notation import entry_text, expression_text, number_text, parameter_field
from fanin.p4switch.bmv2json.program import (
    LONGEST_PACKET,
    Action,
    Branch,
    FieldType,
    Header,
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
from fanin.p4switch.codegen.tracing import MOST_VALID, Numbers, RecordKind, condition_fields
from fanin.p4switch.entries import ActionCall, Entry
from fanin.p4switch.trace.constants import constant_names, metadata_names
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
    DirectCount,
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
    UpdateChecksum,
    VerifyChecksum,
)
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

# Requests after which a packet passes through the program again.
_AGAIN = {"resubmit": "resubmitted", "recirculate": "recirculated", "clone": "cloned"}

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
        self.metadata = metadata_names(program)
        self.errors = {number: name for name, number in program.errors.items()}

    def packets(self, data: bytes) -> Iterator[PacketTrace]:
        """Yield the packets in a block of records."""
        port, time = 0, 0
        reading: PacketDecoder | None = None
        for kind, number, words in _records(data):
            if kind is RecordKind.PACKET:
                if reading is not None:
                    yield reading.trace(port, time)
                reading, port, time = PacketDecoder(self), number, words[0]
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
        return NamedValue(name, number, number_text(self.program, field, width, number), constant, width)


_Decode = Callable[["PacketDecoder", int, tuple[int, ...]], None]
_DECODERS: dict[RecordKind, _Decode] = {}


def _decodes(kind: RecordKind) -> Callable[[_Decode], _Decode]:
    """Register a method that takes the number and the words of a record of this kind, and adds its events."""

    def register(method: _Decode) -> _Decode:
        _DECODERS[kind] = method
        return method

    return register


class PacketDecoder:
    """Events of one packet, with a method for each kind of record. Primitives add theirs with the `add_` methods."""

    def __init__(self, decoder: Decoder) -> None:
        self.of = decoder
        self.program = decoder.program
        self.packet = b""
        self.events: list[Event] = []
        self._select: tuple[ParserState, list[int]] | None = None
        self._to_drop: tuple[str, Source | None] = ("", None)  # what last set egress_spec
        self._replica = 0
        self._port_set = False  # whether a statement has set egress_spec
        self._again: tuple[str, Source | None] | None = None  # what last asked for another pass, and where
        self._copies = [Copy(None, "arrival")]
        self._owners: list[int] = []
        self._current = [0]  # copies that began and have not ended, the innermost last
        self._waiting: deque[int] = deque()  # copies that are processed later
        self._entry_index: dict[str, int | None] = {}  # of each table's last lookup; None on a miss

    def add(self, kind: RecordKind, number: int, words: tuple[int, ...]) -> None:
        """Add the events of a record."""
        owner = self._current[-1]
        _DECODERS[kind](self, number, words)
        self._owners += [owner] * (len(self.events) - len(self._owners))

    def trace(self, port: int, time: int) -> PacketTrace:
        """Return the trace of the packet."""
        return PacketTrace(port, time, self.packet, self.events, self._copies, self._owners)

    # Copies

    def _copy(self, cause: str, replica: int | None = None) -> int:
        self._copies.append(Copy(self._current[-1], cause, replica))
        return len(self._copies) - 1

    @_decodes(RecordKind.CLONED)
    def _on_cloned(self, number: int, _words: tuple[int, ...]) -> None:
        self._current.append(self._copy(_instance(number)))

    @_decodes(RecordKind.REPLICA)
    def _on_replica(self, _number: int, words: tuple[int, ...]) -> None:
        self._current.append(self._copy("replication", words[0]))

    @_decodes(RecordKind.COPY_DONE)
    def _on_copy_done(self, _number: int, _words: tuple[int, ...]) -> None:
        self._current.pop()

    @_decodes(RecordKind.LATER)
    def _on_later(self, number: int, _words: tuple[int, ...]) -> None:
        self._waiting.append(self._copy(_instance(number)))

    @_decodes(RecordKind.NEXT)
    def _on_next(self, _number: int, _words: tuple[int, ...]) -> None:
        self._current = [self._waiting.popleft()]
        self._port_set = False

    @_decodes(RecordKind.ARRIVED)
    def _on_arrived(self, _number: int, words: tuple[int, ...]) -> None:
        self.packet = _bytes(words)

    # The parser

    @_decodes(RecordKind.PARSE)
    def _on_parse(self, _number: int, _words: tuple[int, ...]) -> None:
        self.events.append(Parse())

    @_decodes(RecordKind.STATE)
    def _on_state(self, number: int, _words: tuple[int, ...]) -> None:
        name = self.of.numbers.states[number].name
        self._selected(name)
        self.events.append(State(name))

    @_decodes(RecordKind.SELECT)
    def _on_select(self, number: int, words: tuple[int, ...]) -> None:
        state = self.of.numbers.states[number]
        self._select = state, list(_numbers(words, state.key_widths))

    @_decodes(RecordKind.PARSED)
    def _on_parsed(self, number: int, _words: tuple[int, ...]) -> None:
        self._selected(None)
        self.events.append(Parsed(self.of.errors.get(number, f"error {number}" if number else "NoError")))

    def _selected(self, following: str | None) -> None:
        """Add the event of a select, whose result is known when the next state begins."""
        if self._select is None:
            return
        state, key = self._select
        self._select = None
        names = map(self._text, state.key)
        values = tuple(
            self.of.value(name, width, number, part if isinstance(part, Field) else None)
            for part, name, width, number in zip(state.key, names, state.key_widths, key, strict=True)
        )
        taken = (t for t in state.transitions if t.next_state == following and _may_meet(t, key))
        case = next((_case_text(t, values) for t in taken), "no case matches")
        self.events.append(Select(values, case, following or "accept"))

    @_decodes(RecordKind.EXTRACT)
    def _on_extract(self, number: int, words: tuple[int, ...]) -> None:
        header = self.of.headers[number]
        self.events.append(Extract(header.name, self._header(header, _bytes(words))))

    @_decodes(RecordKind.DEPARSE)
    def _on_deparse(self, number: int, words: tuple[int, ...]) -> None:
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

    @_decodes(RecordKind.CHECKSUM)
    def _on_checksum(self, number: int, words: tuple[int, ...]) -> None:
        checksum = self.program.checksums[number]
        name, kind = self._text(checksum.target), self._kind(checksum.target)
        value, computed = (self.of.value(name, kind, word, checksum.target) for word in words)
        self.events.append(VerifyChecksum(checksum.name, words[0] == words[1], name, value, computed))

    @_decodes(RecordKind.UPDATED)
    def _on_updated(self, number: int, words: tuple[int, ...]) -> None:
        checksum = self.program.checksums[number]
        name = self._text(checksum.target)
        value = self.of.value(name, self._kind(checksum.target), words[0], checksum.target)
        self.events.append(UpdateChecksum(checksum.name, name, value))

    # The pipelines

    @_decodes(RecordKind.INGRESS)
    def _on_ingress(self, _number: int, words: tuple[int, ...]) -> None:
        self.events.append(Ingress(_instance(words[0])))

    @_decodes(RecordKind.EGRESS)
    def _on_egress(self, number: int, words: tuple[int, ...]) -> None:
        self._replica = words[0]
        self.events.append(Egress(number, words[0], _instance(words[1])))

    @_decodes(RecordKind.BRANCH)
    def _on_branch(self, number: int, words: tuple[int, ...]) -> None:
        branch: Branch = self.of.numbers.branches[number]
        fields = condition_fields(self.program, branch.condition)
        text = branch.source.fragment if branch.source else self._text(branch.condition)
        values = self._values([(self._text(f), self._kind(f), f) for f in fields], words[2:])
        there = [place >= MOST_VALID or bool(words[1] >> place & 1) for place in range(len(fields))]
        invalid = dict.fromkeys(f.header for f, valid in zip(fields, there, strict=True) if not valid)
        known = tuple(value for value, valid in zip(values, there, strict=True) if valid)
        self.events.append(Condition(branch.name, text, bool(words[0]), known, [*invalid], branch.source))

    @_decodes(RecordKind.TABLE)
    def _on_table(self, number: int, words: tuple[int, ...]) -> None:
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

    @_decodes(RecordKind.CHOICE)
    def _on_choice(self, number: int, words: tuple[int, ...]) -> None:
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
            action = self.program.tables[table].action(call.name)
            assert action is not None
            arguments = tuple(
                self.of.value(parameter.name, parameter.width, value, parameter_field(action, index))
                for index, (parameter, value) in enumerate(zip(action.parameters, call.args, strict=True))
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

    @_decodes(RecordKind.COUNTED)
    def _on_counted(self, number: int, words: tuple[int, ...]) -> None:
        table = self.of.numbers.tables[number]
        counter = next(c for c in self.program.counters.values() if c.table == table.name)
        self.events.append(DirectCount(counter.name, *words))

    @_decodes(RecordKind.COLOUR)
    def _on_colour(self, number: int, words: tuple[int, ...]) -> None:
        table = self.of.numbers.tables[number]
        meter = next(m for m in self.program.meters.values() if m.table == table.name)
        colour = self.of.value("colour", 64, words[0])
        self.events.append(Access("meter", meter.name, 0, True, colour, None))

    @_decodes(RecordKind.ACTION)
    def _on_action(self, number: int, words: tuple[int, ...]) -> None:
        action: Action = self.of.numbers.actions[number]
        parameters = [
            (p.name, p.width, parameter_field(action, index)) for index, p in enumerate(action.parameters)
        ]
        self.events.append(ActionRun(action.name, self._values(parameters, words), _is_implied(action)))

    @_decodes(RecordKind.STATEMENT)
    def _on_statement(self, number: int, words: tuple[int, ...]) -> None:
        statement = self.of.numbers.statements[number]
        if isinstance(statement, Set):
            self._assign(statement.target, words, None)
            return
        if statement.kind.request in _AGAIN:
            self._again = f"{_AGAIN[statement.kind.request]}{self._caller()}", statement.source
        match statement.arguments:
            case _ if statement.kind.trace is not None:
                statement.kind.trace(self, statement, words)
            case (Field() | ElementField() as target, *_) if words:
                self._assign(target, words, statement.source)
            case _:
                self.add_call(statement)

    # What the kinds of primitives add

    def add_message(self, call: Primitive, words: tuple[int, ...]) -> None:
        """Add the message of a primitive for the switch's log."""
        assert call.kind.message is not None
        self.events.append(call.kind.message(call, words))

    def add_call(self, call: Primitive) -> None:
        """Add the event of a primitive that has only a name to show."""
        self.events.append(Call(call.op.lstrip("_"), call.source))

    def add_access(
        self,
        operation: str,
        name: str,
        index: int,
        size: int,
        value: NamedValue | None,
        source: Source | None,
        constant: str = "",
    ) -> None:
        """Add an access to a cell of a register, counter or meter.

        Args:
            operation: read, write, count or meter.
            name: The register, counter or meter.
            index: The index of the cell.
            size: The number of cells.
            value: The value there, or None.
            source: The place in the P4 source, or None.
            constant: The name of the constant that is the index; empty if there is none.
        """
        self.events.append(Access(operation, name, index, index < size, value, source, constant))

    def add_jump(self, condition: Expression, value: bool, source: Source | None) -> None:
        """Add an if in an action, with the value of its condition."""
        text = source.fragment if source else self._text(condition)
        self.events.append(Jump(text, value, source))

    def set_port(self, cause: str, source: Source | None) -> None:
        """Remember what has set the port that the packet leaves by, in case that it is the drop port."""
        self._port_set = True
        self._to_drop = cause, source

    def value(self, name: str, width: int, words: tuple[int, ...]) -> NamedValue:
        """Return the value of `width` bits in words."""
        (number,) = _numbers(words, (width,))
        return self.of.value(name, width, number)

    def _text(self, expression: Expression) -> str:
        return expression_text(expression, self.of.metadata)

    def constant(self, field: Field, number: int) -> str:
        """Return the name of the constant that a field with this value was assigned or compared with, or ""."""
        return self.of.constants.get(field, {}).get(number, "")

    def _assign(self, target: Expression, words: tuple[int, ...], source: Source | None) -> None:
        name = self._text(target)
        field = target if isinstance(target, Field) else None
        width = self._kind(target)
        ((value,)) = self._values([(name, width, field)], words) or (NamedValue(name, 0, ""),)
        if field is not None and field.name == "egress_spec":
            self.set_port("egress_spec is the drop port", source)
        self.events.append(Assign(name, value, source))

    @_decodes(RecordKind.FAILED)
    def _on_failed(self, number: int, _words: tuple[int, ...]) -> None:
        statement = self.of.numbers.statements[number]
        assert isinstance(statement, Primitive)
        self.add_call(statement)
        self.add_message(statement, ())
        self.events.append(Drop("an assertion failed", statement.source))

    @_decodes(RecordKind.LOOPING)
    def _on_looping(self, number: int, _words: tuple[int, ...]) -> None:
        statement = self.of.numbers.statements[number]
        source = statement.source if isinstance(statement, Primitive) else None
        self.events.append(Drop("its action jumps back too often", source))

    # The packet's fate

    @_decodes(RecordKind.TOO_OFTEN)
    def _on_too_often(self, _number: int, _words: tuple[int, ...]) -> None:
        reason, source = "it and its copies have passed through the program too often", None
        if self._again is not None:
            how, source = self._again
            reason += f": it is {how} each time"
        self.events.append(Drop(reason, source))

    def _caller(self) -> str:
        """Name the action that runs, and the table that it was called by; empty if the compiler made the action."""
        at = next(
            (n for n in reversed(range(len(self.events))) if isinstance(self.events[n], ActionRun)), None
        )
        action = None if at is None else self.events[at]
        if not isinstance(action, ActionRun) or action.implied:
            return ""
        before = self.events[at - 1] if at else None
        return f" by action {action.name}" + (
            f" of table {before.table}" if isinstance(before, Lookup) else ""
        )

    @_decodes(RecordKind.TOO_LONG)
    def _on_too_long(self, number: int, _words: tuple[int, ...]) -> None:
        self.events.append(
            Drop(f"it has grown to {number} bytes, at most {LONGEST_PACKET} are possible", None)
        )

    @_decodes(RecordKind.CLONE)
    def _on_clone(self, number: int, words: tuple[int, ...]) -> None:
        self.events.append(Request("clone", number, words[0]))

    @_decodes(RecordKind.MULTICAST)
    def _on_multicast(self, number: int, words: tuple[int, ...]) -> None:
        self.events.append(Request("multicast", number, words[0]))
        if not words[0]:
            self.events.append(Drop(f"multicast group {number} has no replicas", None))

    @_decodes(RecordKind.DIGEST)
    def _on_digest(self, number: int, _words: tuple[int, ...]) -> None:
        self.events.append(Request("digest", number, None))

    @_decodes(RecordKind.RESUBMIT)
    def _on_resubmit(self, number: int, _words: tuple[int, ...]) -> None:
        self.events.append(Request("resubmit", number, None))

    @_decodes(RecordKind.RECIRCULATE)
    def _on_recirculate(self, number: int, _words: tuple[int, ...]) -> None:
        self.events.append(Request("recirculate", number, None))

    @_decodes(RecordKind.PRIORITY)
    def _on_priority(self, number: int, _words: tuple[int, ...]) -> None:
        self.events.append(Drop(f"priority {number}: a port has no such queue (--priority-queues)", None))

    @_decodes(RecordKind.QUEUE)
    def _on_queue(self, number: int, words: tuple[int, ...]) -> None:
        waits, dropped = words
        if waits:
            self.events.append(Enqueue(number))
        elif dropped:
            self.events.append(Drop(f"the queue of port {number} is full", None))

    @_decodes(RecordKind.DEQUEUED)
    def _on_dequeued(self, number: int, words: tuple[int, ...]) -> None:
        self.events.append(Dequeue(number, words[0]))

    @_decodes(RecordKind.INGRESS_DONE)
    def _on_ingress_done(self, number: int, words: tuple[int, ...]) -> None:
        if number == words[0]:
            self.events.append(Drop(*self._to_drop))
        elif not self._port_set and not number:
            self.events.append(PortNotSet())

    @_decodes(RecordKind.EGRESS_DONE)
    def _on_egress_done(self, number: int, words: tuple[int, ...]) -> None:
        if number == words[0]:
            self.events.append(Drop(*self._to_drop))

    @_decodes(RecordKind.INVALID)
    def _on_invalid(self, number: int, _words: tuple[int, ...]) -> None:
        self.events.append(Invalid(self.of.headers[number].name))

    @_decodes(RecordKind.NOT_EMITTED)
    def _on_not_emitted(self, number: int, _words: tuple[int, ...]) -> None:
        self.events.append(NotEmitted(self.of.headers[number].name))

    @_decodes(RecordKind.OUTPUT)
    def _on_output(self, number: int, words: tuple[int, ...]) -> None:
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
