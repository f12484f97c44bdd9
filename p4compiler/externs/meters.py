"""Meters. Tables execute direct meters by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4compiler import ir
from fanin.p4compiler.externs.extern_kind import ExternKind

if TYPE_CHECKING:
    from fanin.p4compiler.emit.actions import ActionWriter
    from fanin.p4compiler.emit.expressions import Json


def _emit(writer: ActionWriter, s: ir.CallExtern) -> tuple[str, list[Json]]:
    index = writer.expressions.argument(s.arguments[0])
    return "execute_meter", [writer.instance("meter_array", s), index, writer.target(s, 1)]


EXTERNS = (
    ExternKind("meter.execute_meter", _emit, index=0),
    ExternKind("direct_meter.read", lambda *_: None),
)
