"""Assertions: assert() and assume()."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4switch.bmv2json.expressions import Expression
from fanin.p4switch.bmv2json.primitive_kind import PrimitiveKind

if TYPE_CHECKING:
    from fanin.p4switch.codegen.actions import PrimitiveWriter
    from fanin.p4switch.codegen.writer import Writer


def _write(writer: PrimitiveWriter, out: Writer, condition: Expression) -> None:
    """Write an assertion. If it fails, the packet is dropped at once and counted; BMv2 would end its process."""
    with out.block(f"if (!{writer.expressions.condition(condition)})"):
        out.line("s->base.failures++;")
        out.line("p->failed = p->exit = true;")
        writer.trace_failure(out)
        place = writer.source or writer.where
        out.line(f"fputs({writer.quoted(f'assertion failed: {place}' + chr(10))}, stderr);")
        out.line(writer.abandon)


KINDS = tuple(
    PrimitiveKind(name, ("value",), _write, may_end=True, may_fail=True) for name in ("assert", "assume")
)
