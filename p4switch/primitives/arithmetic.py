"""Arithmetic of two operands, as P4_14 programs use it: p4c's JSON has expressions instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4switch.bmv2json.expressions import Binary, Expression
from fanin.p4switch.bmv2json.primitive_kind import PrimitiveKind

if TYPE_CHECKING:
    from fanin.p4switch.codegen.actions import PrimitiveWriter
    from fanin.p4switch.codegen.writer import Writer

_OPERATORS = {
    "add": "+",
    "subtract": "-",
    "bit_xor": "^",
    "bit_or": "|",
    "bit_and": "&",
    "shift_left": "<<",
    "shift_right": ">>",
}
_IN_PLACE = {"add_to_field": "+", "subtract_from_field": "-"}


def _kind(name: str, operator: str) -> PrimitiveKind:
    def write(
        writer: PrimitiveWriter, out: Writer, target: Expression, left: Expression, right: Expression
    ) -> None:
        writer.assign(out, target, Binary(operator, left, right))

    return PrimitiveKind(name, ("target", "value", "value"), write, repeatable=True)


def _kind_in_place(name: str, operator: str) -> PrimitiveKind:
    def write(writer: PrimitiveWriter, out: Writer, target: Expression, operand: Expression) -> None:
        writer.assign(out, target, Binary(operator, target, operand))

    return PrimitiveKind(name, ("target", "value"), write, repeatable=True)


KINDS = (
    *(_kind(name, operator) for name, operator in _OPERATORS.items()),
    *(_kind_in_place(name, operator) for name, operator in _IN_PLACE.items()),
)
