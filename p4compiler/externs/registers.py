"""Registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4compiler import ir
from fanin.p4compiler.externs.extern_kind import ExternKind

if TYPE_CHECKING:
    from fanin.p4compiler.emit.actions import ActionWriter
    from fanin.p4compiler.emit.expressions import Json


def _emit_read(writer: ActionWriter, s: ir.CallExtern) -> tuple[str, list[Json]]:
    index = writer.expressions.argument(s.arguments[1])
    return "register_read", [writer.target(s, 0), writer.instance("register_array", s), index]


def _emit_write(writer: ActionWriter, s: ir.CallExtern) -> tuple[str, list[Json]]:
    values = map(writer.expressions.argument, s.arguments)
    return "register_write", [writer.instance("register_array", s), *values]


EXTERNS = (
    ExternKind("register.read", _emit_read, index=1),
    ExternKind("register.write", _emit_write, index=0),
)
