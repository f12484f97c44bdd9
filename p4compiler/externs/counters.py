"""Counters. Tables count for direct counters by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4compiler import ir
from fanin.p4compiler.externs.extern import Extern

if TYPE_CHECKING:
    from fanin.p4compiler.emit.actions import ActionWriter
    from fanin.p4compiler.emit.expressions import Json


def _emit(writer: ActionWriter, s: ir.CallExtern) -> tuple[str, list[Json]]:
    index = writer.expressions.argument(s.arguments[0])
    return "count", [writer.instance("counter_array", s), index]


EXTERNS = (Extern("counter.count", _emit, index=0), Extern("direct_counter.count", lambda *_: None))
