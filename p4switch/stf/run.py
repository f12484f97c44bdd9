"""Runner for STF tests on the engine: it sends packets, sets tables and state, and compares the packets that leave."""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace

from fanin.native.text import counted
from fanin.p4switch.bmv2json.program import LONGEST_PACKET, Table, TableKey
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import (
    ActionCall,
    CounterValue,
    Entry,
    EntryAction,
    EntryKey,
    Exact,
    GroupReference,
    Lpm,
    Match,
    MemberReference,
    MeterConfig,
    Range,
    Replica,
    TableError,
    Ternary,
)
from fanin.p4switch.stf.syntax import ActionText, Command, StfError, number, parse_stf
from fanin.p4switch.trace.events import Event, Lookup, PacketTrace
from fanin.p4switch.trace.tracer import Tracer, traced

BETWEEN_PACKETS = 1000  # microseconds on the switch's clock
OPERATORS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# Added to the priorities of a test, so that its entries precede the program's own, and those without one come last.
_BASE_PRIORITY = 10000


@dataclass(frozen=True, slots=True)
class _Expected:
    line: int
    data: str


@dataclass(frozen=True, slots=True)
class _Sent:
    packet: bytes
    cause: int  # the line of the packet that arrived


_Run = Callable[["StfRunner", Command], None]
_RUNNERS: dict[str, _Run] = {}


def _runs(verb: str) -> Callable[[_Run], _Run]:
    """Register a method that runs the commands with this verb."""

    def register(method: _Run) -> _Run:
        _RUNNERS[verb] = method
        return method

    return register


class StfRunner:
    """Runner of one test on one switch.

    The switch has the ports that the test names. Packets to other ports are ignored, unless the test has no_packet.

    Attributes:
        differences: The failures.
        notes: The output that was only requested.
        wrong: The lines of the packets that went wrong. For a packet that left, that is the one that caused it. For
            a packet that is missing, it is the last one before the line that expects it.
        traces: For each line with a packet its path through the program, if there is a tracer.
    """

    def __init__(self, engine: Engine, tracer: Tracer | None = None) -> None:
        self.engine = engine
        self.differences: list[str] = []
        self.notes: list[str] = []
        self.wrong: list[int] = []
        self.traces: dict[int, list[PacketTrace]] = {}
        self._tracer = tracer
        self._arrived: list[int] = []  # the lines of packets
        self._now = 0
        self._sent: dict[int, list[_Sent]] = defaultdict(list)
        self._expected: dict[int, list[_Expected]] = defaultdict(list)
        self._ports: set[int] = set()
        self._all_ports = False
        self._nodes: list[tuple[int, tuple[int, ...]]] = []
        self._groups: dict[int, list[int]] = {}
        self._mirrors: dict[int, tuple[int | None, int | None]] = {}
        self._entries: dict[str, tuple[str, EntryKey]] = {}

    def run(self, text: str) -> list[str]:
        """Run the whole test and return the differences.

        Raises:
            StfError: If a line cannot be run.
        """
        for command in parse_stf(text):
            try:
                _RUNNERS[command.verb](self, command)
            except TableError as error:
                raise StfError(f"line {command.line}: {error.message}") from None
        failed = self.engine.failed_assertions()
        if failed:
            verb = "was" if failed == 1 else "were"
            self.differences.append(f"{counted(failed, 'packet')} {verb} dropped by a failed assertion")
        for port in sorted(self._sent.keys() if self._all_ports else self._ports & self._sent.keys()):
            self._expected.setdefault(port, [])
        for port in sorted(self._expected):
            self._compare(port, self._expected[port], self._sent[port])
        return self.differences

    def _compare(self, port: int, expected: list[_Expected], sent: list[_Sent]) -> None:
        if expected and not any(e.data for e in expected):
            if not sent:
                line = expected[0].line
                self._differs(f"port {port}: no packet (line {line} expects some)", self._last_before(line))
            return
        for index in range(max(len(expected), len(sent))):
            where = f"port {port}, packet {index + 1}"
            if index >= len(sent):
                missing = expected[index]
                self._differs(
                    f"{where}: missing\n    line {missing.line} expects {missing.data or 'one'}",
                    self._last_before(missing.line),
                )
                continue
            data, cause = sent[index].packet.hex(), sent[index].cause
            if index >= len(expected):
                self._differs(f"{where}: not expected\n    sent {data}", cause)
            elif not _matches(expected[index].data, data):
                shown = _shown(expected[index].data, data)
                self._differs(f"{where} (line {expected[index].line})\n{shown}", cause)

    def _differs(self, text: str, cause: int | None) -> None:
        self.differences.append(text)
        if cause is not None and cause not in self.wrong:
            self.wrong.append(cause)

    def _last_before(self, line: int) -> int | None:
        """Return the line of the last packet before a line, or of the first one if there is none before it."""
        before = [each for each in self._arrived if each < line]
        return before[-1] if before else next(iter(self._arrived), None)

    # Packets

    @_runs("packet")
    def _packet(self, command: Command) -> None:
        port, data = command.words
        if len(data) // 2 > LONGEST_PACKET:
            length = f"{len(data) // 2} bytes, at most {LONGEST_PACKET} are possible"
            raise StfError(f"line {command.line}: this packet has {length}")
        self._ports.add(int(port))
        self._now += BETWEEN_PACKETS
        self._arrived.append(command.line)
        for to, packet in self.engine.process(int(port), bytes.fromhex(data), self._now):
            self._sent[to].append(_Sent(packet, command.line))
        if self._tracer is not None:
            self.traces[command.line] = [_with_written_priorities(t) for t in self._tracer.packets()]

    @_runs("expect")
    def _expect(self, command: Command) -> None:
        self._expected[int(command.words[0])].append(_Expected(command.line, command.words[1]))

    @_runs("no_packet")
    def _no_packet(self, _command: Command) -> None:
        self._all_ports = True

    @_runs("wait")
    def _wait(self, _command: Command) -> None:
        self._now += 1_000_000

    # Tables

    @_runs("add")
    def _add(self, command: Command) -> None:
        table = self._table(command)
        assert command.action is not None
        self._insert(command, table, _call(table, command.action, command.line))

    @_runs("table_indirect_add")
    def _table_indirect_add(self, command: Command) -> None:
        self._insert(command, self._table(command), MemberReference(number(command.words[1], command.line)))

    @_runs("table_indirect_add_with_group")
    def _table_indirect_add_with_group(self, command: Command) -> None:
        self._insert(command, self._table(command), GroupReference(number(command.words[1], command.line)))

    def _insert(self, command: Command, table: Table, action: EntryAction) -> None:
        matches = self._matches_of(command, table)
        overlapping = any(key.kind in ("ternary", "range", "optional") for key in table.keys)
        priority = _BASE_PRIORITY + (command.priority or 0) if overlapping else 0
        key = EntryKey(matches, priority)
        self.engine.table(table.name).insert(Entry(key, action))
        if command.id is not None:
            self._entries[command.id] = table.name, key

    @_runs("setdefault")
    def _setdefault(self, command: Command) -> None:
        table = self._table(command)
        assert command.action is not None
        self.engine.table(table.name).set_default(_call(table, command.action, command.line))

    @_runs("remove")
    def _remove(self, _command: Command) -> None:
        for table in self.engine.program.tables.values():
            if table.const_entries is None and not table.is_call:
                self.engine.table(table.name).clear()

    def _table(self, command: Command) -> Table:
        tables = {t.name: t for t in self.engine.program.tables.values() if not t.is_call}
        return tables[_pick(tables, command.words[0], f"line {command.line}: table")]

    def _matches_of(self, command: Command, table: Table) -> tuple[Match, ...]:
        given: dict[str, str] = {}
        names = [key.name for key in table.keys]
        for name, value in command.keys:
            given[_key_name(names, name, f"line {command.line}: table {table.name}")] = value
        return tuple(_match(key, given.get(key.name), command.line) for key in table.keys)

    # Action profiles: members and groups are numbered from 0 in each

    @_runs("act_prof_create_member")
    def _act_prof_create_member(self, command: Command) -> None:
        profile = self.engine.profile(self._name("profiles", command.words[0], command))
        users = [t for t in self.engine.program.tables.values() if t.profile == profile.profile.name]
        if not users:
            raise StfError(f"line {command.line}: no table uses action profile {profile.profile.name}")
        assert command.action is not None
        profile.insert_member(len(profile.members), _call(users[0], command.action, command.line))

    @_runs("act_prof_create_group")
    def _act_prof_create_group(self, command: Command) -> None:
        profile = self.engine.profile(self._name("profiles", command.words[0], command))
        profile.insert_group(len(profile.groups), ())

    @_runs("act_prof_add_member_to_group")
    def _act_prof_add_member_to_group(self, command: Command) -> None:
        profile = self.engine.profile(self._name("profiles", command.words[0], command))
        member, group, *weight = (number(word, command.line) for word in command.words[1:])
        profile.group(group)
        profile.modify_group(group, (*profile.groups[group], (member, weight[0] if weight else 1)))

    # Counters, registers, meters

    @_runs("check_counter")
    def _check_counter(self, command: Command) -> None:
        name, index, *check = command.words
        if index.startswith("$") or index in self._entries:
            table, key = self._entry(index, command.line)
            value = self.engine.table(table).counter(key)
        elif not index[:1].isdigit():
            added = ", ".join(self._entries) or "none"
            raise StfError(f"line {command.line}: no entry was added as {index}; IDs are {added}")
        else:
            value = self.engine.counter(self._name("counters", name, command)).read(
                number(index, command.line)
            )
        if not check:
            self.notes.append(f"{name}({index}): {_value_text(value)}")
            return
        what, compare, wanted = check
        actual = value.packets if what == "packets" else value.bytes
        if not OPERATORS[compare](actual, int(wanted)):
            self.differences.append(
                f"counter {name}({index}) (line {command.line}): {actual} {what}, not {compare} {wanted}"
            )

    def _entry(self, name: str, line: int) -> tuple[str, EntryKey]:
        found = self._entries.get(name) or self._entries.get(name.removeprefix("$"))
        if found is None:
            raise StfError(f"line {line}: no entry was added as {name}")
        return found

    @_runs("counter_read")
    def _counter_read(self, command: Command) -> None:
        name = self._name("counters", command.words[0], command)
        value = self.engine.counter(name).read(number(command.words[1], command.line))
        self.notes.append(f"{name}[{command.words[1]}] = {_value_text(value)}")

    @_runs("counter_write")
    def _counter_write(self, command: Command) -> None:
        index, packets, size = (number(w, command.line) for w in command.words[1:])
        name = self._name("counters", command.words[0], command)
        self.engine.counter(name).write(index, CounterValue(packets, size))

    @_runs("register_read")
    def _register_read(self, command: Command) -> None:
        name = self._name("registers", command.words[0], command)
        if len(command.words) == 1:
            values = self.engine.register(name).read()
        else:
            values = self.engine.register(name).read(number(command.words[1], command.line), 1)
        self.notes.append(f"{' '.join(command.words)} = {', '.join(map(str, values))}")

    @_runs("register_write")
    def _register_write(self, command: Command) -> None:
        index, value = (number(w, command.line) for w in command.words[1:])
        self.engine.register(self._name("registers", command.words[0], command)).write(index, value)

    @_runs("register_reset")
    def _register_reset(self, command: Command) -> None:
        name = self._name("registers", command.words[0], command)
        for index in range(self.engine.program.registers[name].size):
            self.engine.register(name).write(index, 0)

    @_runs("meter_get_rates")
    def _meter_get_rates(self, command: Command) -> None:
        name = self._name("meters", command.words[0], command)
        config = self.engine.meter(name).config(number(command.words[1], command.line))
        self.notes.append(f"{name}[{command.words[1]}] = {config}")

    @_runs("meter_set_rates")
    def _meter_set_rates(self, command: Command) -> None:
        name = self._name("meters", command.words[0], command)
        config = _rates(command.words[2:], command.line)
        self.engine.meter(name).configure(number(command.words[1], command.line), config)

    @_runs("meter_array_set_rates")
    def _meter_array_set_rates(self, command: Command) -> None:
        name = self._name("meters", command.words[0], command)
        for index in range(self.engine.program.meters[name].size):
            self.engine.meter(name).configure(index, _rates(command.words[1:], command.line))

    def _name(self, kind: str, name: str, command: Command) -> str:
        return _pick(
            getattr(self.engine.program, kind), name, f"line {command.line}: {kind.removesuffix('s')}"
        )

    # Multicast and mirroring

    @_runs("mc_mgrp_create")
    def _mc_mgrp_create(self, command: Command) -> None:
        group = number(command.words[0], command.line)
        self.engine.multicast.insert(group, ())
        self._groups[group] = []

    @_runs("mc_node_create")
    def _mc_node_create(self, command: Command) -> None:
        instance, *ports = (number(w, command.line) for w in command.words)
        self._nodes.append((instance, tuple(ports)))

    @_runs("mc_node_update")
    def _mc_node_update(self, command: Command) -> None:
        handle, *ports = (number(w, command.line) for w in command.words)
        if not 0 <= handle < len(self._nodes):
            raise StfError(f"line {command.line}: node {handle} does not exist")
        self._nodes[handle] = self._nodes[handle][0], tuple(ports)
        self._replicate()

    @_runs("mc_node_associate")
    def _mc_node_associate(self, command: Command) -> None:
        group, handle = (number(w, command.line) for w in command.words)
        if group not in self._groups or not 0 <= handle < len(self._nodes):
            raise StfError(f"line {command.line}: group {group} or node {handle} does not exist")
        self._groups[group].append(handle)
        self._replicate()

    @_runs("mirroring_add")
    def _mirroring_add(self, command: Command) -> None:
        session, port = (number(w, command.line) for w in command.words)
        self._mirrors[session] = port, None
        self._replicate()

    @_runs("mirroring_add_mc")
    def _mirroring_add_mc(self, command: Command) -> None:
        session, group = (number(w, command.line) for w in command.words)
        self._mirrors[session] = None, group
        self._replicate()

    @_runs("mirroring_delete")
    def _mirroring_delete(self, command: Command) -> None:
        session = number(command.words[0], command.line)
        self.engine.sessions.delete(session)
        self._mirrors.pop(session, None)

    @_runs("mirroring_get")
    def _mirroring_get(self, command: Command) -> None:
        session = number(command.words[0], command.line)
        self.notes.append(f"mirroring session {session}: {self.engine.sessions.all().get(session)}")

    def _replicate(self) -> None:
        """Give the switch the present groups and sessions."""
        replicas = {group: self._replicas(handles) for group, handles in self._groups.items()}
        for group, members in replicas.items():
            self.engine.multicast.modify(group, members)
        present = self.engine.sessions.all()
        for session, (port, mirrored) in self._mirrors.items():
            members = (Replica(port, 0),) if port is not None else replicas.get(mirrored or 0, ())
            change = self.engine.sessions.modify if session in present else self.engine.sessions.insert
            change(session, members)

    def _replicas(self, handles: list[int]) -> tuple[Replica, ...]:
        return tuple(
            Replica(port, self._nodes[handle][0])
            for handle in handles
            for port in sorted(self._nodes[handle][1])
        )


def _with_written_priorities(trace: PacketTrace) -> PacketTrace:
    """Return a trace in which entries have the priorities that the test gives them."""

    def written(event: Event) -> Event:
        if not isinstance(event, Lookup) or event.entry is None or event.entry.priority is None:
            return event
        priority = event.entry.priority
        # The program's own entries have lower ones.
        if priority < _BASE_PRIORITY:
            return event
        return replace(event, entry=replace(event.entry, priority=priority - _BASE_PRIORITY or None))

    return replace(trace, events=[written(event) for event in trace.events])


def _value_text(value: CounterValue) -> str:
    return f"{counted(value.packets, 'packet')}, {counted(value.bytes, 'byte')}"


def _matches(expected: str, sent: str) -> bool:
    exact, expected = expected.endswith("$"), expected.rstrip("$")
    if len(sent) < len(expected) or (exact and len(sent) != len(expected)):
        return False
    return all(e in ("*", s) for e, s in zip(expected, sent, strict=False))


def _shown(expected: str, sent: str) -> str:
    """Format both packets one below the other, with marks where they differ."""
    plain = expected.rstrip("$")
    length = max(len(plain), len(sent)) if expected.endswith("$") else len(plain)
    marks = "".join(
        " " if i < min(len(plain), len(sent)) and plain[i] in ("*", sent[i]) else "^" for i in range(length)
    )
    return f"    expected {expected}\n    sent     {sent}\n             {marks}"


def _pick(names: Iterable[str], name: str, what: str) -> str:
    """Return the name that equals `name`, or the only one that ends with it."""
    known = list(names)
    if name in known:
        return name
    found = [n for n in known if n.endswith("." + name)] or [n for n in known if n.endswith(name)]
    if len(found) != 1:
        problem = "is ambiguous" if found else "does not exist"
        raise StfError(f"{what} {name} {problem}; there are {', '.join(known) or 'none'}")
    return found[0]


def _key_name(names: list[str], name: str, what: str) -> str:
    """Return the name of a key. STF writes `$0` for `[0]`, and may omit the part before the last dots."""
    name = re.sub(r"\$(\d+)", r"[\1]", name)
    for candidate in (name, name + "$", f"{name}.$valid$", re.sub(r"valid$", "$valid$", name)):
        if candidate in names:
            return candidate
    found = [n for n in names if n.endswith((f".{name}", f".{name}$")) or name.endswith(f".{n}")]
    if not found and name == "valid":
        found = [n for n in names if n.endswith("$valid$")]
    return found[-1] if found else _pick(names, name, f"{what}: key")


def _match(key: TableKey, value: str | None, line: int) -> Match:
    full = (1 << key.width) - 1
    match key.kind:
        case "lpm":
            if value is None:
                return Lpm(0, 0)
            if "/" in value:
                first, _, length = value.partition("/")
                return Lpm(number(first, line), number(length, line))
            digits, mask = _masked(value, key.width, line)
            return Lpm(digits, mask.bit_count())
        case "ternary" | "optional":
            if value is None:
                return Ternary(0, 0)
            wanted, mask = _masked(value, key.width, line)
            return Ternary(wanted & mask & full, mask & full)
        case "range":
            if value is None:
                return Range(0, full)
            low, _, high = value.partition("->")
            return Range(number(low, line), number(high or low, line))
    return Exact(number(value or "0", line))


def _masked(value: str, width: int, line: int) -> tuple[int, int]:
    """Return value and mask of a value with `*` for digits that do not matter, or with a mask after `&&&`."""
    if "&&&" in value:
        first, _, mask = value.partition("&&&")
        return number(first, line), number(mask, line)
    if "*" not in value:
        return number(value, line), (1 << width) - 1
    ones = {"0x": "f", "0b": "1", "0o": "7"}.get(value[:2].lower(), "9")
    mask = value[:2] + "".join("0" if digit == "*" else ones for digit in value[2:])
    return number(value.replace("*", "0"), line), number(mask, line) & ((1 << width) - 1)


def _call(table: Table, action: ActionText, line: int) -> ActionCall:
    actions = {a.name: a for a in table.actions}
    found = actions[_pick(actions, action.name, f"line {line}: table {table.name}: action")]
    names = [p.name for p in found.parameters]
    if set(names) != set(action.arguments):
        raise StfError(f"line {line}: action {found.name} takes ({', '.join(names)})")
    return ActionCall(found.name, tuple(action.arguments[name] for name in names))


def _rates(words: tuple[str, ...], line: int) -> MeterConfig:
    """Parse RATE:BURST, once or twice. As in simple_switch_CLI, a rate is in packets or bytes per microsecond."""
    pairs = []
    for word in words:
        rate, _, burst = word.partition(":")
        try:
            pairs.append((round(float(rate) * 1e6), int(burst)))
        except ValueError:
            raise StfError(f"line {line}: {word!r} is not RATE:BURST") from None
    return MeterConfig(*pairs[0], *pairs[-1])


def run_stf(config: bytes, text: str, *, trace: bool = False) -> StfRunner:
    """Run an STF test on a new switch with this BMv2 JSON, and return the runner.

    Args:
        config: The compiled program, BMv2 JSON.
        text: The test.
        trace: Also trace each packet, for which there is a second program to compile to machine code.

    Raises:
        ProgramError: If the program is not supported.
        ToolchainError: If there is no C compiler.
        StfError: If a line cannot be run.
    """
    engine = Engine.load(config)
    with traced(engine) if trace else nullcontext() as tracer:
        runner = StfRunner(engine, tracer)
        runner.run(text)
    return runner
