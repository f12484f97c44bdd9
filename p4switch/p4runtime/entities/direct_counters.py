"""Direct counters, read and written without their table entries (P4Runtime specification, "DirectCounterEntry")."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.p4switch.p4runtime.codec.counters import decode_counter, encode_counter
from fanin.p4switch.p4runtime.entities.kind import StaticKind
from fanin.p4switch.p4runtime.objects import PipelineObjects
from fanin.p4switch.p4runtime.proto import p4r


class DirectCounters(StaticKind[p4r.DirectCounterEntry]):
    """Counters of table entries, and of each table's default entry."""

    field = "direct_counter_entry"
    id_field = "table_entry.table_id"

    def __init__(self, objects: PipelineObjects) -> None:
        self._tables = objects.tables

    def modify(self, message: p4r.DirectCounterEntry) -> None:
        """Set the counter of the entry with a key. Without data nothing changes."""
        table = self._tables.find(message.table_entry.table_id)
        table.require_counter()
        key = table.key_of(message.table_entry)
        if message.HasField("data"):
            table.installed.write_counter(key, decode_counter(message.data))

    def read(self, query: p4r.DirectCounterEntry) -> Iterator[p4r.DirectCounterEntry]:
        """Yield the counter of the entry with the query's key, or raise NOT_FOUND; all of them without a key."""
        wanted = query.table_entry
        for _, table in self._tables.select(wanted.table_id):
            if not wanted.table_id and not table.is_counted:
                continue
            table.require_counter()
            for key in table.keys_of(wanted):
                yield p4r.DirectCounterEntry(
                    table_entry=table.encode_key(key), data=encode_counter(table.installed.counter(key))
                )
