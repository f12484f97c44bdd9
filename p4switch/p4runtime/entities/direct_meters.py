"""Direct meters, read and written without their table entries (P4Runtime specification, "DirectMeterEntry")."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.p4switch.entries import EntryKey
from fanin.p4switch.p4runtime.codec.meters import (
    decode_meter,
    decode_meter_counters,
    encode_meter,
    encode_meter_counters,
    require_zero,
)
from fanin.p4switch.p4runtime.codec.tables import P4InfoTable
from fanin.p4switch.p4runtime.entities.kind import StaticKind
from fanin.p4switch.p4runtime.objects import PipelineObjects
from fanin.p4switch.p4runtime.proto import p4r


class DirectMeters(StaticKind[p4r.DirectMeterEntry]):
    """Meters of table entries, and of each table's default entry."""

    field = "direct_meter_entry"
    id_field = "table_entry.table_id"

    def __init__(self, objects: PipelineObjects) -> None:
        self._tables = objects.tables

    def check(self, message: p4r.DirectMeterEntry) -> None:
        """Check that counters by colour are cleared, which is all that a write can do."""
        if message.HasField("counter_data"):
            require_zero(message.counter_data)

    def modify(self, message: p4r.DirectMeterEntry) -> None:
        """Set the meter of the entry with a key. It is reset without a config; counters that are not given stay."""
        table = self._tables.find(message.table_entry.table_id)
        kind = table.require_meter()
        key = table.key_of(message.table_entry)
        config = decode_meter(message.config, kind) if message.HasField("config") else None
        table.installed.configure_meter(key, config)
        if message.HasField("counter_data"):
            table.installed.set_meter_counters(key, decode_meter_counters(message.counter_data))

    def read(self, query: p4r.DirectMeterEntry) -> Iterator[p4r.DirectMeterEntry]:
        """Yield the meter of the entry with the query's key, or raise NOT_FOUND; all of them without a key."""
        wanted = query.table_entry
        for _, table in self._tables.select(wanted.table_id):
            if not wanted.table_id and table.meter is None:
                continue
            table.require_meter()
            for key in table.keys_of(wanted):
                message = _encode(table, key)
                if query.HasField("counter_data"):
                    counters = table.installed.meter_counters(key)
                    message.counter_data.CopyFrom(encode_meter_counters(counters))
                yield message

    def present(self, message: p4r.DirectMeterEntry) -> Iterator[p4r.DirectMeterEntry]:
        """Yield the meters with their counters."""
        query = p4r.DirectMeterEntry()
        query.CopyFrom(message)
        query.counter_data.SetInParent()
        return self.read(query)

    def export(self) -> Iterator[tuple[p4r.Update.Type.ValueType, p4r.DirectMeterEntry]]:
        """Yield the meters of entries that table entries do not export: the program's own, and the default ones."""
        for table in self._tables.values():
            if table.meter is not None:
                for entry in table.installed.entries():
                    if entry.is_const and table.installed.meter_config(entry.key) is not None:
                        yield p4r.Update.MODIFY, _encode(table, entry.key)
                yield p4r.Update.MODIFY, _encode(table, None)


def _encode(table: P4InfoTable, key: EntryKey | None) -> p4r.DirectMeterEntry:
    config = table.installed.meter_config(key)
    return p4r.DirectMeterEntry(
        table_entry=table.encode_key(key), config=None if config is None else encode_meter(config)
    )
