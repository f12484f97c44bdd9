"""A switch process, and its program and entries over P4Runtime: the same for p4switch and BMv2."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from finsy import P4Schema
from finsy.proto import p4r

from fanin.controller.connection import Connection
from fanin.p4compiler import Compiled
from fanin.p4switch.entries import ActionCall, Entry, Lpm, Ternary
from fanin.testbed.switch_processes import SwitchLauncher, SwitchProcess
from fanin.topologies.model import Switch
from fanin.topologies.shapes import leaf_spine

_PATIENCE = 6.0  # BMv2 is slow with a million entries


def fill(switch: Switch, program: Compiled, table: str, entries: Sequence[Entry]) -> float:
    """Load a program into the switch and insert entries, and return the seconds that the inserts took.

    Raises:
        ControllerError: The switch refuses.
    """

    async def fill() -> float:
        schema = P4Schema(program.p4info, program.device_config())
        connection = Connection(switch, schema, _PATIENCE)
        seconds = 0.0
        try:
            await connection.open()
            await connection.push_pipeline()
            for request in connection.requests(p4r.Update.INSERT, encoded(program, table, entries)):
                began = time.perf_counter()
                await connection.send(request, range(len(request.updates)))
                seconds += time.perf_counter() - began
        finally:
            await connection.close()
        return seconds

    return asyncio.run(fill())


def encoded(program: Compiled, table: str, entries: Sequence[Entry]) -> Iterator[p4r.Entity]:
    """Yield entries of a table as P4Runtime entities."""
    [known] = [t for t in program.p4info.tables if t.preamble.name == table]
    actions = {a.preamble.name: a.preamble.id for a in program.p4info.actions}
    for entry in entries:
        entity = p4r.Entity()
        _encode(entity.table_entry, known.preamble.id, entry, actions)
        yield entity


def _encode(message: p4r.TableEntry, table: int, entry: Entry, actions: Mapping[str, int]) -> None:
    message.table_id = table
    message.priority = entry.key.priority
    for number, match in enumerate(entry.key.match, start=1):
        field = message.match.add(field_id=number)
        match match:
            case Lpm(value, length):
                field.lpm.value, field.lpm.prefix_len = _octets(value), length
            case Ternary(value, mask):
                field.ternary.value, field.ternary.mask = _octets(value), _octets(mask)
            case _:
                field.exact.value = _octets(match.value)  # type: ignore[union-attr, arg-type]
    assert isinstance(entry.action, ActionCall)
    action = message.action.action
    action.action_id = actions[entry.action.name]
    for number, argument in enumerate(entry.action.args, start=1):
        action.params.add(param_id=number, value=_octets(argument))


def _octets(value: int) -> bytes:
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8))


@contextmanager
def running(launcher: SwitchLauncher, interfaces: Sequence[str], log: Path) -> Iterator[Switch]:
    """Run a switch on the interfaces, as ports 1, 2 and so on.

    Raises:
        NetworkError: It does not start.
    """
    [switch] = leaf_spine(0, 1, len(interfaces)).switches
    process = SwitchProcess(switch, launcher.command(switch, dict(enumerate(interfaces, start=1))), log)
    process.start()
    try:
        process.wait_ready()
        yield switch
    finally:
        process.stop()
