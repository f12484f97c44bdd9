"""Counters. Tables count for direct counters by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4compiler import ir
from fanin.p4compiler.externs.extern_kind import ExternKind

if TYPE_CHECKING:
    from fanin.p4compiler.emit.actions import ActionWriter
    from fanin.p4compiler.emit.expressions import Json


def _emit(writer: ActionWriter, s: ir.CallExtern) -> tuple[str, list[Json]]:
    index = writer.expressions.argument(s.arguments[0])
    return "count", [writer.instance("counter_array", s), index]


EXTERNS = (ExternKind("counter.count", _emit, index=0), ExternKind("direct_counter.count", lambda *_: None))
