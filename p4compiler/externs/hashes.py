"""Hashes. The JSON lists what each call hashes as a calculation (emit/lists.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4compiler import ir
from fanin.p4compiler.externs.extern_kind import ExternKind
from fanin.p4compiler.source import error

if TYPE_CHECKING:
    from fanin.p4compiler.emit.actions import ActionWriter
    from fanin.p4compiler.emit.expressions import Json


def _emit(writer: ActionWriter, s: ir.CallExtern) -> tuple[str, list[Json]]:
    _, algorithm, base, _, limit = s.arguments
    if not isinstance(algorithm, ir.Constant):
        raise error(algorithm.span, "the hash algorithm must be known when compiling")
    calculation: Json = {"type": "calculation", "value": writer.numbers.calculations[s]}
    value = writer.expressions.argument
    parameters = [writer.target(s, 0), value(base), calculation, value(limit)]
    return "modify_field_with_hash_based_offset", parameters


EXTERNS = (ExternKind("hash", _emit),)
