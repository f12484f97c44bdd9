"""Evaluation of compile-time constants: widths, sizes, values of constants, arguments of annotations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fanin.p4compiler import ir, nodes, types
from fanin.p4compiler.check.conversions import Conversions
from fanin.p4compiler.source import CompileError, error

_VARIABLE = (ir.Ref, ir.Field, ir.Element, ir.Slice)


class ConstantChecker:
    """Evaluator of compile-time constants.

    Errors in the program are raised as CompileError. `evaluate`, given to the constructor, checks an expression.
    """

    def __init__(self, conversions: Conversions, evaluate: Callable[[nodes.Expr], ir.Expr]) -> None:
        self.conversions = conversions
        self.evaluate = evaluate

    def constant(self, node: nodes.Expr, expected: types.Type, what: str) -> ir.Constant:
        """Evaluate an expression that must be a compile-time constant, and convert it to the expected type."""
        found = self.evaluate(node)
        # a variable is the error, whatever its type
        value = found if isinstance(found, _VARIABLE) else self.conversions.coerce(found, expected)
        if not isinstance(value, ir.Constant):
            raise error(node.span, f"{what} must be known when compiling", "use a literal or a const")
        return value

    def compile_time(self, node: nodes.Expr, what: str) -> int:
        """Return the number that an expression has at compile time."""
        value = self.evaluate(node)
        if not isinstance(value, ir.Constant) or not isinstance(
            types.scalar(value.type), types.Int | types.Bits
        ):
            raise error(
                node.span, f"{what} must be a number known when compiling", "use a literal or a const"
            )
        return value.value

    def member_value(self, node: nodes.Expr, underlying: types.Bits | None) -> int:
        """Return the value of a member of a serializable enum."""
        return self.constant(node, underlying or types.Bits(32), "an enum member's value").value

    def annotations(self, annotations: nodes.Annotations) -> nodes.Annotations:
        """Evaluate the constants in the arguments of annotations; leave unknown arguments unchanged."""
        return tuple(
            replace(a, arguments=tuple(map(self._annotation_argument, a.arguments))) for a in annotations
        )

    def _annotation_argument(self, node: nodes.Expr) -> nodes.Expr:
        if isinstance(node, nodes.Record):
            return replace(
                node, fields=tuple((name, self._annotation_argument(e)) for name, e in node.fields)
            )
        if isinstance(node, nodes.Integer | nodes.String | nodes.Boolean | nodes.TypeExpr):
            return node
        try:
            value = self.evaluate(node)
        except CompileError:
            return node
        match value:
            case ir.Constant(type=types.Bool(), value=number):
                return nodes.Boolean(node.span, bool(number))
            case ir.Constant(value=number):
                return nodes.Integer(node.span, number, None, False, 10)
            case ir.Text(value=text):
                return nodes.String(node.span, text)
        return node
