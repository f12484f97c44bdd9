"""Drops and truncation: mark_to_drop() and truncate()."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4compiler import ir
from fanin.p4compiler.externs.extern_kind import ExternKind
from fanin.p4compiler.source import error

if TYPE_CHECKING:
    from fanin.p4compiler.emit.actions import ActionWriter
    from fanin.p4compiler.emit.expressions import Json


def _emit_drop(writer: ActionWriter, s: ir.CallExtern) -> tuple[str, list[Json]]:
    metadata = s.arguments[0]
    given = writer.expressions.standard_metadata
    if not isinstance(metadata, ir.Ref) or metadata.variable is not given:
        raise error(
            metadata.span,
            f"mark_to_drop() of a copy of {given.name} is not supported",
            f"write mark_to_drop({given.name}); a copy drops nothing",
        )
    return "mark_to_drop", [writer.expressions.left(metadata)]


def _emit_truncate(writer: ActionWriter, s: ir.CallExtern) -> tuple[str, list[Json]]:
    return "truncate", [writer.expressions.argument(s.arguments[0])]


EXTERNS = (ExternKind("mark_to_drop", _emit_drop), ExternKind("truncate", _emit_truncate))
