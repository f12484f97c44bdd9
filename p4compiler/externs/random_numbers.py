"""Random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4compiler import ir
from fanin.p4compiler.externs.extern_kind import ExternKind

if TYPE_CHECKING:
    from fanin.p4compiler.emit.actions import ActionWriter
    from fanin.p4compiler.emit.expressions import Json


def _emit(writer: ActionWriter, s: ir.CallExtern) -> tuple[str, list[Json]]:
    bounds = map(writer.expressions.argument, s.arguments[1:])
    return "modify_field_rng_uniform", [writer.target(s, 0), *bounds]


EXTERNS = (ExternKind("random", _emit),)
