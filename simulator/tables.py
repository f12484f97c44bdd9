"""Installation of the controller's plans into the tables of switches in virtual time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network

from fanin.controller.plan import MulticastGroup, TableEntry, Value
from fanin.p4switch.bmv2json.program import Program
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import ActionCall, Entry, EntryKey, Exact, Lpm, Match, Replica


def install(engine: Engine, items: Iterable[MulticastGroup | TableEntry]) -> None:
    """Put a switch's part of a plan into its tables, as the controller does over P4Runtime."""
    for item in items:
        if isinstance(item, MulticastGroup):
            replicas = tuple(Replica(port, instance) for port, instance in item.replicas)
            engine.multicast.insert(item.group, replicas)
        else:
            engine.table(item.table).insert(_entry(engine.program, item))


def remove(engine: Engine, items: Sequence[MulticastGroup | TableEntry]) -> None:
    """Remove a switch's part of a plan, in the opposite order."""
    for item in reversed(items):
        if isinstance(item, MulticastGroup):
            engine.multicast.delete(item.group)
        else:
            engine.table(item.table).delete(_entry(engine.program, item).key)


def _entry(program: Program, item: TableEntry) -> Entry:
    table = program.tables[item.table]
    action = table.action(item.action)
    if action is None:
        raise KeyError(f"{item.table} has no action {item.action}")
    key = EntryKey(tuple(_match(item.match[key.name]) for key in table.keys))
    return Entry(
        key, ActionCall(item.action, tuple(_integer(item.params[p.name]) for p in action.parameters))
    )


def _match(value: Value) -> Match:
    if isinstance(value, IPv4Network):
        return Lpm(int(value.network_address), value.prefixlen)
    return Exact(_integer(value))


def _integer(value: Value) -> int:
    return int(value.replace(":", ""), 16) if isinstance(value, str) else int(value)  # type: ignore[arg-type]
