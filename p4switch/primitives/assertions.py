"""Assertions: assert() and assume()."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.native.text import printable
from fanin.p4switch.bmv2json.expressions import Expression
from fanin.p4switch.bmv2json.primitive_kind import Message, PrimitiveKind

if TYPE_CHECKING:
    from fanin.p4switch.bmv2json.program import Primitive
    from fanin.p4switch.codegen.actions import PrimitiveWriter
    from fanin.p4switch.codegen.writer import Writer


def _write(writer: PrimitiveWriter, out: Writer, condition: Expression) -> None:
    """Write an assertion. If it fails, the packet is dropped at once and counted; BMv2 would end its process."""
    with out.block(f"if (!{writer.expressions.condition(condition)})"):
        out.line("p->failed = p->exit = true;")
        why = writer.quoted(f"assertion failed: {writer.source or writer.where}")
        out.line(f"report_failure(&s->base, {writer.number}, {why});")
        writer.trace_failure(out)
        out.line(writer.abandon)


def _message(call: Primitive, _words: tuple[int, ...]) -> Message:
    """Return what BMv2 logs before it ends."""
    text = f"{call.op.capitalize()} error"
    if source := call.source:
        text += f": {source.fragment} failed, file {source.file}, line {source.line}"
    return Message("error", printable(text))


KINDS = tuple(
    PrimitiveKind(name, ("value",), _write, may_end=True, may_fail=True, message=_message)
    for name in ("assert", "assume")
)
