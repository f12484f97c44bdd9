"""A P4Runtime session that treats a refusal as an answer, and reads what a switch has counted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from finsy.proto import p4i, p4r

from fanin.controller.connection import Connection
from fanin.controller.errors import ControllerError, UnavailableError
from fanin.controller.schema import schema_of
from fanin.experiments.scenario.compilers import CompiledProgram

DEVICE_ID = 1
_PATIENCE = 6.0  # BMv2 is slow

Counts = Mapping[str, tuple[int, int]]  # by counter and cell: packets and bytes, where they are not both 0


class SwitchError(RuntimeError):
    """A switch does not do what a comparison needs. The message has its answer."""


@dataclass(slots=True)
class _Server:
    grpc_port: int
    name: str = "the switch"
    device_id: int = DEVICE_ID


class Session:
    """A session with a switch that runs a program with this P4Info, made by `session`."""

    def __init__(self, connection: Connection, p4info: p4i.P4Info) -> None:
        self._connection = connection
        self._p4info = p4info

    async def insert(self, entity: p4r.Entity) -> bool:
        """Insert an entity and return whether the switch accepted it.

        Raises:
            SwitchError: The switch has ended.
        """
        try:
            await self._connection.write(p4r.Update.INSERT, [entity], ["it"])
        except UnavailableError as error:
            raise SwitchError(str(error)) from None
        except ControllerError:
            return False
        return True

    async def counts(self, entities: Sequence[p4r.Entity]) -> Counts:
        """Return all counters, and the direct counters of these table entries.

        Raises:
            SwitchError: The switch does not send them.
        """
        found = {}
        try:
            for counter in self._p4info.counters:
                wanted = p4r.CounterEntry(counter_id=counter.preamble.id)
                for entity in await self._connection.read([p4r.Entity(counter_entry=wanted)]):
                    cell = entity.counter_entry
                    found[f"{counter.preamble.name}[{cell.index.index}]"] = cell.data
            for name, entry in self._direct(entities):
                for entity in await self._connection.read([p4r.Entity(direct_counter_entry=entry)]):
                    found[name] = entity.direct_counter_entry.data
        except ControllerError as error:
            raise SwitchError(f"does not send its counters: {error}") from None
        counted = {name: (data.packet_count, data.byte_count) for name, data in found.items()}
        return {name: both for name, both in counted.items() if any(both)}

    def _direct(self, entities: Sequence[p4r.Entity]) -> Iterator[tuple[str, p4r.DirectCounterEntry]]:
        tables = {counter.direct_table_id for counter in self._p4info.direct_counters}
        names = {table.preamble.id: table.preamble.name for table in self._p4info.tables}
        for index, entity in enumerate(entities):
            entry = entity.table_entry
            if entity.HasField("table_entry") and entry.table_id in tables:
                key = p4r.TableEntry(table_id=entry.table_id, match=entry.match, priority=entry.priority)
                name = f"{names[entry.table_id]}, direct counter of entry {index}"
                yield name, p4r.DirectCounterEntry(table_entry=key)


@asynccontextmanager
async def session(port: int, program: CompiledProgram) -> AsyncIterator[Session]:
    """Open a session with the switch whose P4Runtime server is on this port of the loopback, running `program`.

    Raises:
        SwitchError: There is no answer, or the switch refuses the program.
    """
    connection = Connection(_Server(port), schema_of(program.p4info, program.device_config), _PATIENCE)
    try:
        try:
            await connection.open()
            await connection.push_pipeline()
        except ControllerError as error:
            raise SwitchError(str(error)) from None
        yield Session(connection, program.p4info)
    finally:
        await connection.close()
