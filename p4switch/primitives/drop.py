"""Drops and truncation: mark_to_drop() and truncate()."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4switch.bmv2json.expressions import Expression, HeaderName
from fanin.p4switch.bmv2json.primitive_kind import PrimitiveKind

if TYPE_CHECKING:
    from fanin.p4switch.bmv2json.program import Primitive
    from fanin.p4switch.codegen.actions import PrimitiveWriter
    from fanin.p4switch.codegen.writer import Writer
    from fanin.p4switch.trace.decode import PacketDecoder


def _write_drop(writer: PrimitiveWriter, out: Writer, metadata: HeaderName | None = None) -> None:
    """Write mark_to_drop() for standard_metadata or a copy: egress_spec = the drop port, mcast_grp = 0."""
    of = metadata.name if metadata is not None else "standard_metadata"
    spec, group = writer.layout.standard("egress_spec", of), writer.layout.standard("mcast_grp", of)
    if spec is None:
        raise writer.unsupported(f"mark_to_drop needs {of}.egress_spec")
    writer.store(out, spec, "s->base.drop_port")
    if group is not None:
        writer.store(out, group, "0")


def _trace_drop(packet: PacketDecoder, call: Primitive, _words: tuple[int, ...]) -> None:
    packet.set_port("mark_to_drop", call.source)
    packet.add_call(call)


def _write_truncate(writer: PrimitiveWriter, out: Writer, length: Expression) -> None:
    """Write truncate(), which limits the number of bytes that leave."""
    amount = writer.temporary(out, "uint64_t", writer.expressions.value(length).cast("uint64_t"))
    out.line(f"if ({amount} < p->truncate_to)")
    out.line(f"    p->truncate_to = (uint32_t){amount};")


KINDS = (
    PrimitiveKind(
        "mark_to_drop",
        ("header",),
        _write_drop,
        trace=_trace_drop,
        sets_fields=("egress_spec", "mcast_grp"),
        repeatable=True,
    ),
    PrimitiveKind("drop", (), _write_drop, trace=_trace_drop, repeatable=True),
    PrimitiveKind("truncate", ("value",), _write_truncate),
)
