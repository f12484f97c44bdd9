"""Direct resources over P4Runtime: the counter and the meter of each table entry, and of the default one.

P4Runtime specification, "Direct Resources" and "Default Entry". An entry's key is None for the default entry here.
"""

from __future__ import annotations

from p4switch.engine.engine import Engine
from p4switch.engine.entries import EntryKey
from p4switch.p4runtime.entities.externs import (
    decode_counter,
    decode_meter,
    decode_meter_counters,
    encode_counter,
    encode_meter,
    encode_meter_counters,
)
from p4switch.p4runtime.errors import invalid
from p4switch.p4runtime.proto import p4i, p4r


class DirectResources:
    """Those of one table: `counted` says whether its entries have counters, `meter` what meters they have."""

    def __init__(self, table: str, engine: Engine) -> None:
        self._table = table
        self._engine = engine
        self.counted = False
        self.meter: p4i.MeterSpec.Type.ValueType | None = None

    def require_counter(self) -> None:
        """INVALID_ARGUMENT if there are none."""
        if not self.counted:
            raise invalid(f"table {self._table} has no direct counter")

    def require_meter(self) -> p4i.MeterSpec.Type.ValueType:
        """INVALID_ARGUMENT if there are none."""
        if self.meter is None:
            raise invalid(f"table {self._table} has no direct meter")
        return self.meter

    # As parts of entries

    def check(self, entry: p4r.TableEntry) -> None:
        """Refuses an entry with what the table does not have, or with what a counter or a meter cannot be."""
        if entry.HasField("counter_data"):
            self.require_counter()
            decode_counter(entry.counter_data)
        if entry.HasField("meter_config"):
            decode_meter(entry.meter_config, self.require_meter())
        if entry.HasField("meter_counter_data"):
            self.require_meter()
            decode_meter_counters(entry.meter_counter_data)

    def write(self, key: EntryKey | None, entry: p4r.TableEntry) -> None:
        """As the entry has them: a config that is left out is reset, counters that are left out stay."""
        if entry.HasField("counter_data"):
            self.write_counter(key, entry.counter_data)
        if self.meter is not None:
            self.write_meter(key, entry.meter_config if entry.HasField("meter_config") else None)
            if entry.HasField("meter_counter_data"):
                self.write_meter_counters(key, entry.meter_counter_data)

    def read(self, key: EntryKey | None, query: p4r.TableEntry, entry: p4r.TableEntry) -> None:
        """Adds those to the entry that the query has set."""
        if query.HasField("counter_data") and self.counted:
            entry.counter_data.CopyFrom(self.counter(key))
        if self.meter is not None:
            config = self.meter_config(key) if query.HasField("meter_config") else None
            if config is not None:
                entry.meter_config.CopyFrom(config)
            if query.HasField("meter_counter_data"):
                entry.meter_counter_data.CopyFrom(self.meter_counters(key))

    # By themselves

    def counter(self, key: EntryKey | None) -> p4r.CounterData:
        """An entry's counter."""
        return encode_counter(self._engine.table(self._table).counter(key))

    def write_counter(self, key: EntryKey | None, data: p4r.CounterData) -> None:
        """Sets an entry's counter."""
        self._engine.table(self._table).write_counter(key, decode_counter(data))

    def meter_config(self, key: EntryKey | None) -> p4r.MeterConfig | None:
        """The rates of an entry's meter; None: everything is green."""
        config = self._engine.table(self._table).meter_config(key)
        return None if config is None else encode_meter(config)

    def write_meter(self, key: EntryKey | None, config: p4r.MeterConfig | None) -> None:
        """Sets the rates of an entry's meter."""
        decoded = None if config is None else decode_meter(config, self.require_meter())
        self._engine.table(self._table).configure_meter(key, decoded)

    def meter_counters(self, key: EntryKey | None) -> p4r.MeterCounterData:
        """What an entry's meter has counted by colour."""
        return encode_meter_counters(self._engine.table(self._table).meter_counters(key))

    def write_meter_counters(self, key: EntryKey | None, data: p4r.MeterCounterData) -> None:
        """Sets what an entry's meter has counted."""
        self._engine.table(self._table).set_meter_counters(key, decode_meter_counters(data))
