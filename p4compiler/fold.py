"""Constant folding: functions that build expressions, and return a Constant where all operands are known.

Arithmetic is P4's (specification, chapter 8): bit<W> wraps, int<W> is two's complement, literals have no width.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from fanin.p4compiler import ir, types
from fanin.p4compiler.source import Span, error

_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "|+|": operator.add,
    "|-|": operator.sub,
}
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MAX_BITS = 14_000  # of an int; messages could not write larger ones
MAX_SHIFT = 4096  # a larger shift of a literal is a mistake, and would fill the memory


def wrap(value: int, type_: types.Type) -> int:
    """Reduce a value to the range of a type: modulo 2^width, two's complement if signed."""
    bits = types.scalar(type_)
    if not isinstance(bits, types.Bits):
        return value
    value &= (1 << bits.width) - 1
    return value - (1 << bits.width) if bits.signed and value >> (bits.width - 1) else value


def limits(bits: types.Bits) -> tuple[int, int]:
    """Return the smallest and the largest value of a type."""
    return (
        (-(1 << (bits.width - 1)), (1 << (bits.width - 1)) - 1) if bits.signed else (0, (1 << bits.width) - 1)
    )


def unary(span: Span, op: str, operand: ir.Expr) -> ir.Expr:
    """Build `op operand`."""
    if isinstance(operand, ir.Constant):
        value = {"-": -operand.value, "~": ~operand.value, "!": 1 - operand.value}[op]
        return ir.Constant(operand.type, span, wrap(value, operand.type), operand.base)
    return ir.Unary(operand.type, span, op, operand)


def binary(span: Span, type_: types.Type, op: str, left: ir.Expr, right: ir.Expr) -> ir.Expr:
    """Build `left op right` of the given type. The operands are already converted.

    Raises:
        CompileError: For a division by zero, a shift by a negative or too large number, or a result that is too large.
    """
    if isinstance(right, ir.Constant) and op in ("/", "%") and right.value == 0:
        raise error(right.span, "division by zero")
    if isinstance(right, ir.Constant) and op in ("<<", ">>"):
        if right.value < 0:
            raise error(right.span, "a shift by a negative number")
        if isinstance(type_, types.Int) and right.value > MAX_SHIFT:
            raise error(right.span, f"a shift by more than {MAX_SHIFT}")
    if isinstance(left, ir.Constant) and isinstance(right, ir.Constant):
        value = _compute(type_, op, left, right)
        if isinstance(type_, types.Int) and value.bit_length() > MAX_BITS:
            raise error(span, f"the result has more than {MAX_BITS} bits")
        return ir.Constant(type_, span, value, left.base)
    if op in ("&&", "||") and isinstance(left, ir.Constant):
        return right if bool(left.value) == (op == "&&") else left
    if op in ("&&", "||") and isinstance(right, ir.Constant) and bool(right.value) == (op == "&&"):
        return left
    return ir.Binary(type_, span, op, left, right)


def _compute(type_: types.Type, op: str, left: ir.Constant, right: ir.Constant) -> int:
    a, b = left.value, right.value
    if op in _COMPARISONS:
        return int(_COMPARISONS[op](a, b))
    match op:
        case "&&":
            return a & b
        case "||":
            return a | b
        case "/":
            return wrap(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1), type_)
        case "%":
            return wrap(a % b, type_)
        case "<<":
            return wrap(a << min(b, MAX_SHIFT), type_)
        case ">>":
            return wrap(a >> b, type_)
        case "++":
            width = types.width(right.type) or 0
            return wrap(a << width | b & ((1 << width) - 1), type_)
    result = _ARITHMETIC[op](a, b)
    if op in ("|+|", "|-|") and isinstance(type_, types.Bits):
        low, high = limits(type_)
        return min(max(result, low), high)
    return wrap(result, type_)


def slice_(span: Span, base: ir.Expr, high: int, low: int) -> ir.Expr:
    """Build `base[high:low]`."""
    result = types.Bits(high - low + 1)
    if isinstance(base, ir.Constant):
        return ir.Constant(result, span, wrap(base.value >> low, result), base.base)
    return ir.Slice(result, span, base, high, low)


def cast(span: Span, target: types.Type, operand: ir.Expr) -> ir.Expr:
    """Build `(target)operand`. The conversion must be allowed."""
    if operand.type == target:
        return operand
    if isinstance(operand, ir.Constant):
        return ir.Constant(target, span, wrap(operand.value, target), operand.base)
    return ir.Cast(target, span, operand)


def mux(span: Span, condition: ir.Expr, chosen: ir.Expr, other: ir.Expr) -> ir.Expr:
    """Build `condition ? chosen : other`."""
    if isinstance(condition, ir.Constant):
        return chosen if condition.value else other
    return ir.Mux(chosen.type, span, condition, chosen, other)
