"""Assignments to fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4switch.bmv2json.expressions import Expression, Field
from fanin.p4switch.bmv2json.primitive_kind import PrimitiveKind

if TYPE_CHECKING:
    from fanin.p4switch.codegen.actions import PrimitiveWriter
    from fanin.p4switch.codegen.writer import Writer


def _write(writer: PrimitiveWriter, out: Writer, target: Expression, source: Expression) -> None:
    writer.assign(out, target, source)


def _write_varbit(writer: PrimitiveWriter, out: Writer, target: Expression, source: Expression) -> None:
    """Write an assignment of a varbit, including its length."""
    if not isinstance(target, Field) or not isinstance(source, Field):
        raise writer.unsupported("assign_VL needs two fields")
    kinds = [writer.layout.program.field_type(f) for f in (target, source)]
    if not all(k.varying for k in kinds) or kinds[0].width < kinds[1].width:
        raise writer.unsupported("assign_VL needs two varbits of one width")
    for field in (target, source):
        writer.layout.check_varbit(field.header, writer.where)
    headers = f"{writer.layout.header_index(target.header)}, {writer.layout.header_index(source.header)}"
    out.line(f"copy_varbit(p, {headers});")


KINDS = (
    *(
        PrimitiveKind(name, ("target", "value"), _write, overwrites=True, sets_local=True, repeatable=True)
        for name in ("assign", "modify_field")
    ),
    PrimitiveKind("assign_VL", ("target", "value"), _write_varbit),
)
