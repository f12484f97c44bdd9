"""Registers (P4Runtime specification, "RegisterEntry"). BMv2's server does not have them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fanin.p4switch.engine.arrays import RegisterCells
from fanin.p4switch.p4runtime.codec.data import DataType, data_type
from fanin.p4switch.p4runtime.codec.values import decode_indices
from fanin.p4switch.p4runtime.entities.kind import StaticKind
from fanin.p4switch.p4runtime.objects import PipelineObjects
from fanin.p4switch.p4runtime.proto import p4i, p4r


class Registers(StaticKind[p4r.RegisterEntry]):
    """Cells of registers, read and written by index, or all at once."""

    field = "register_entry"
    id_field = "register_id"

    def __init__(self, objects: PipelineObjects) -> None:
        self._registers = objects.by_id(
            "register",
            objects.p4info.registers,
            objects.engine.program.registers,
            partial(_register, objects),
        )

    def modify(self, message: p4r.RegisterEntry) -> None:
        """Set one cell, or every cell if no index is given."""
        cells, value_type = self._registers.find(message.register_id)
        indices = decode_indices(message, cells.size, cells.name)
        value = value_type.decode(message.data, cells.width)
        for index in indices:
            cells.write(index, value)

    def read(self, query: p4r.RegisterEntry) -> Iterator[p4r.RegisterEntry]:
        """Yield one cell, or every cell if no index is given."""
        for number, (cells, value_type) in self._registers.select(query.register_id):
            indices = decode_indices(query, cells.size, cells.name)
            values = cells.read(indices.start, len(indices))
            for index, value in zip(indices, values, strict=True):
                yield p4r.RegisterEntry(
                    register_id=number, index=p4r.Index(index=index), data=value_type.encode(iter([value]))
                )


def _register(objects: PipelineObjects, info: p4i.Register) -> tuple[RegisterCells, DataType]:
    """Return the cells of a register, and the type of their values."""
    name, types = info.preamble.name, objects.p4info.type_info
    kind = data_type(info.type_spec, types, objects.translations, f"register {name}")
    return objects.engine.register(name), kind
