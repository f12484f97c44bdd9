"""Meters: execute_meter. Direct meters belong to their table's entries (codegen/tables.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4switch.bmv2json.expressions import Expression
from fanin.p4switch.bmv2json.primitive_kind import PrimitiveKind
from fanin.p4switch.bmv2json.program import Named

if TYPE_CHECKING:
    from fanin.p4switch.bmv2json.program import Primitive
    from fanin.p4switch.codegen.actions import PrimitiveWriter
    from fanin.p4switch.codegen.writer import Writer
    from fanin.p4switch.trace.decode import PacketDecoder


def _write(writer: PrimitiveWriter, out: Writer, meter: Named, index: Expression, target: Expression) -> None:
    """Write a meter execution. If the index is out of range, nothing is metered and the target keeps its value."""
    member = writer.state.meter(meter.name, writer.where)
    array = writer.layout.program.meters[meter.name]
    at = writer.index(out, index)
    with out.block(f"if ({at} < {array.size})"):
        amount = "p->ingress_length" if array.by_bytes else "1"
        writer.assign_number(
            out, target, f"meter_execute(&s->{member}[{at}], {amount}, p->ingress_length, p->now)"
        )
    writer.trace_words(out, at, *writer.recorded(target))


def _trace(packet: PacketDecoder, call: Primitive, words: tuple[int, ...]) -> None:
    meter, _, _ = call.arguments
    assert isinstance(meter, Named)
    size = packet.program.meters[meter.name].size
    colour = packet.value("colour", 64, words[1:]) if words[0] < size and len(words) > 1 else None
    packet.add_access("meter", meter.name, words[0], size, colour, call.source)


KINDS = (
    PrimitiveKind(
        "execute_meter", ("meter_array", "value", "target"), _write, trace=_trace, traces_itself=True
    ),
)
