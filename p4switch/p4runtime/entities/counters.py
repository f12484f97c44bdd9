"""Indirect counters (P4Runtime specification, "CounterEntry")."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.p4switch.p4runtime.codec.counters import decode_counter, encode_counter
from fanin.p4switch.p4runtime.codec.values import decode_indices
from fanin.p4switch.p4runtime.entities.kind import StaticKind
from fanin.p4switch.p4runtime.objects import PipelineObjects
from fanin.p4switch.p4runtime.proto import p4r


class Counters(StaticKind[p4r.CounterEntry]):
    """Cells of counters, read and written by index, or all at once."""

    field = "counter_entry"
    id_field = "counter_id"

    def __init__(self, objects: PipelineObjects) -> None:
        engine = objects.engine
        self._counters = objects.by_id(
            "counter",
            objects.p4info.counters,
            engine.program.counters,
            lambda info: engine.counter(info.preamble.name),
        )

    def modify(self, message: p4r.CounterEntry) -> None:
        """Set one cell, or every cell if no index is given. Without data nothing changes."""
        cells = self._counters.find(message.counter_id)
        indices = decode_indices(message, cells.size, cells.name)
        if message.HasField("data"):
            value = decode_counter(message.data)
            for index in indices:
                cells.write(index, value)

    def read(self, query: p4r.CounterEntry) -> Iterator[p4r.CounterEntry]:
        """Yield one cell, or every cell if no index is given."""
        for number, cells in self._counters.select(query.counter_id):
            indices = decode_indices(query, cells.size, cells.name)
            values = [cells.read(indices.start)] if query.HasField("index") else cells.read_all()
            for index, value in zip(indices, values, strict=True):
                yield p4r.CounterEntry(
                    counter_id=number, index=p4r.Index(index=index), data=encode_counter(value)
                )
