"""Registers (P4Runtime specification, "RegisterEntry"). BMv2's server does not have them."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.p4switch.p4runtime.codec.data import data_type
from fanin.p4switch.p4runtime.codec.values import decode_indices
from fanin.p4switch.p4runtime.entities.kind import StaticKind
from fanin.p4switch.p4runtime.objects import ById, PipelineObjects
from fanin.p4switch.p4runtime.proto import p4r


class Registers(StaticKind[p4r.RegisterEntry]):
    """Cells of registers, read and written by index, or all at once."""

    field = "register_entry"

    def __init__(self, objects: PipelineObjects) -> None:
        self._registers = ById(
            "register",
            (
                (
                    info.preamble,
                    (
                        objects.engine.register(info.preamble.name),
                        data_type(
                            info.type_spec,
                            objects.p4info.type_info,
                            objects.translations,
                            f"register {info.preamble.name}",
                        ),
                    ),
                )
                for info in objects.p4info.registers
                if info.preamble.name in objects.engine.program.registers
            ),
        )

    def p4_id(self, message: p4r.RegisterEntry) -> int:
        """Return the id of the register."""
        return message.register_id

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
