"""Traces of packets through a program: the switch, its tables' contents, and what happens to each packet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fanin.controller.entry_files import Entries, Match, NamedEntry, Profile, require_prefix_length
from fanin.p4switch import entries as p4
from fanin.p4switch.bmv2json.notation import parse_number
from fanin.p4switch.bmv2json.program import Table, TableKey
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.trace.events import PacketTrace
from fanin.p4switch.trace.tracer import traced


def trace(
    config: bytes, entries: Entries, packets: Sequence[tuple[int, bytes]], conditions: str = ""
) -> Iterator[PacketTrace]:
    """Yield the traces of packets that go through a new switch one after the other, a microsecond apart.

    Args:
        config: The compiled program, BMv2 JSON.
        entries: Contents of tables, multicast groups and clone sessions.
        packets: The port and the bytes of each packet.
        conditions: Which packets to trace, in the notation of p4switch/trace/conditions.py.

    Raises:
        ProgramError: If the program cannot be run.
        ToolchainError: If there is no C compiler.
        ConditionError: If the conditions are invalid.
        ValueError: If an entry does not fit the program.
    """
    engine = Engine.load(config)
    fill(engine, entries)
    with traced(engine, conditions) as tracer:
        for time, (port, packet) in enumerate(packets):
            engine.process(port, packet, time)
            yield from tracer.packets()


def fill(engine: Engine, entries: Entries) -> None:
    """Write everything of an entry file with the names of the program alone, without P4Info.

    Raises:
        ValueError: If one of them does not fit the program.
    """
    place = ""
    try:
        for kind, numbered in ((engine.multicast, entries.groups), (engine.sessions, entries.sessions)):
            for number, replicas in numbered.items():
                kind.insert(number, tuple(p4.Replica(port, instance) for port, instance in replicas))
        for name, profile in entries.profiles.items():
            _fill_profile(engine, name, profile)
        for name, default in entries.defaults.items():
            table = _table(engine.program.tables, name, "")
            call = _call(table, default.action, default.params, f"table {name}: default action")
            engine.table(name).set_default(call)
        for entry in entries.entries:
            table = _table(engine.program.tables, entry.table, entry.place)
            place = entry.place
            engine.table(table.name).insert(_entry(table, entry))
    except p4.TableError as error:
        raise ValueError(f"{place}{error}") from None


def _fill_profile(engine: Engine, name: str, profile: Profile) -> None:
    users = [table for table in engine.program.tables.values() if table.profile == name]
    if not users:
        there = ", ".join(engine.program.profiles) or "none"
        raise ValueError(f"no table has an action profile {name}; there are {there}")
    state = engine.profile(name)
    for number, member in profile.members.items():
        where = f"action profile {name}: member {number}"
        state.insert_member(number, _call(users[0], member.action, member.params, where))
    for number, weights in profile.groups.items():
        state.insert_group(number, tuple(weights.items()))


def _table(tables: Mapping[str, Table], name: str, place: str) -> Table:
    if name not in tables:
        there = ", ".join(table.name for table in tables.values() if table.keys)
        raise ValueError(f"{place}table {name} does not exist; there are {there}")
    return tables[name]


def _entry(table: Table, entry: NamedEntry) -> p4.Entry:
    where = f"{entry.place}table {table.name}"
    if unknown := entry.match.keys() - {key.name for key in table.keys}:
        keys = ", ".join(key.name for key in table.keys)
        raise ValueError(f"{where} has no key {', '.join(sorted(unknown))}, only {keys}")
    action: p4.EntryAction
    if entry.action is not None:
        action = _call(table, entry.action, entry.params, where)
    elif entry.one_of is not None:
        choices = tuple((_call(table, one.action, one.params, where), one.weight) for one in entry.one_of)
        action = p4.OneShot(choices, random=entry.random)
    elif entry.member is not None:
        action = p4.MemberReference(entry.member)
    else:
        assert entry.group is not None
        action = p4.GroupReference(entry.group)
    matches = tuple(_match(key, entry.match.get(key.name), f"{where}: {key.name}") for key in table.keys)
    return p4.Entry(p4.EntryKey(matches, entry.priority), action)


def _call(table: Table, name: str, params: Mapping[str, int | str], where: str) -> p4.ActionCall:
    action = table.action_for(name, params, where)
    return p4.ActionCall(
        action.name,
        tuple(_number(params[each.name], f"{where}: {each.name}") for each in action.parameters),
    )


def _match(key: TableKey, match: Match | None, where: str) -> p4.Match:
    everything = (1 << key.width) - 1
    given: Match | None = match
    if key.kind == "lpm" and match is not None:
        require_prefix_length(match, where)
    if isinstance(match, str) and "/" in match:
        prefix = match.partition("/")
        given = prefix[0], prefix[2]
    match key.kind, given:
        case "lpm", None:
            return p4.Lpm(0, 0)
        case "lpm", (value, length):
            return p4.Lpm(_number(value, where), _number(length, where))
        case "ternary", None:
            return p4.Ternary(0, 0)
        case "ternary", (value, mask):
            return p4.Ternary(_number(value, where), _number(mask, where))
        case "ternary", int() | str() as value:
            return p4.Ternary(_number(value, where), everything)
        case "range", None:
            return p4.Range(0, everything)
        case "range", (low, high):
            return p4.Range(_number(low, where), _number(high, where))
        case "optional", None:
            return p4.Optional_(None)
        case "optional", int() | str() as value:
            return p4.Optional_(_number(value, where))
        case "exact" | "valid", int() | str() as value:
            return p4.Exact(_number(value, where))
    raise ValueError(f"{where}: needs a match of kind {key.kind}, not {match}")


def _number(value: int | str, where: str) -> int:
    try:
        return value if isinstance(value, int) else parse_number(value)
    except ValueError:
        raise ValueError(f"{where}: {value} is neither a number nor an address") from None
