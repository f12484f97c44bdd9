"""Assertions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4compiler import ir
from fanin.p4compiler.externs.extern_kind import ExternKind

if TYPE_CHECKING:
    from fanin.p4compiler.emit.actions import ActionWriter
    from fanin.p4compiler.emit.expressions import Json


def _emit(writer: ActionWriter, s: ir.CallExtern) -> tuple[str, list[Json]]:
    return s.name, [writer.expressions.argument(s.arguments[0])]


EXTERNS = tuple(
    ExternKind(name, _emit, in_parser=True, takes_expressions=True) for name in ("assert", "assume")
)
