"""Indirect meters (P4Runtime specification, "MeterEntry")."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.p4switch.p4runtime.codec.meters import (
    decode_meter,
    decode_meter_counters,
    encode_meter,
    encode_meter_counters,
    meter_type,
    require_zero,
)
from fanin.p4switch.p4runtime.codec.values import decode_indices
from fanin.p4switch.p4runtime.entities.kind import StaticKind
from fanin.p4switch.p4runtime.objects import PipelineObjects
from fanin.p4switch.p4runtime.proto import p4r


class Meters(StaticKind[p4r.MeterEntry]):
    """Cells of meters, configured and read by index, or all at once."""

    field = "meter_entry"
    id_field = "meter_id"

    def __init__(self, objects: PipelineObjects) -> None:
        engine = objects.engine
        self._meters = objects.by_id(
            "meter",
            objects.p4info.meters,
            engine.program.meters,
            lambda info: (engine.meter(info.preamble.name), meter_type(info)),
        )

    def check(self, message: p4r.MeterEntry) -> None:
        """Check that counters by colour are cleared, which is all that a write can do."""
        if message.HasField("counter_data"):
            require_zero(message.counter_data)

    def modify(self, message: p4r.MeterEntry) -> None:
        """Configure one cell, or every cell if no index is given. It is reset without a config."""
        cells, kind = self._meters.find(message.meter_id)
        config = decode_meter(message.config, kind) if message.HasField("config") else None
        for index in decode_indices(message, cells.size, cells.name):
            cells.configure(index, config)
            if message.HasField("counter_data"):
                cells.set_counters(index, decode_meter_counters(message.counter_data))

    def read(self, query: p4r.MeterEntry) -> Iterator[p4r.MeterEntry]:
        """Yield one cell, or every cell if no index is given, with its counters if the query contains them."""
        for number, (cells, _) in self._meters.select(query.meter_id):
            for index in decode_indices(query, cells.size, cells.name):
                message = p4r.MeterEntry(meter_id=number, index=p4r.Index(index=index))
                config = cells.config(index)
                if config is not None:
                    message.config.CopyFrom(encode_meter(config))
                if query.HasField("counter_data"):
                    message.counter_data.CopyFrom(encode_meter_counters(cells.counters(index)))
                yield message

    def present(self, message: p4r.MeterEntry) -> Iterator[p4r.MeterEntry]:
        """Yield the cells with their counters."""
        query = p4r.MeterEntry()
        query.CopyFrom(message)
        query.counter_data.SetInParent()
        return self.read(query)

    def export(self) -> Iterator[tuple[p4r.Update.Type.ValueType, p4r.MeterEntry]]:
        """Yield the rates of all configured cells."""
        for message in self.read(p4r.MeterEntry()):
            if message.HasField("config"):
                yield p4r.Update.MODIFY, message
