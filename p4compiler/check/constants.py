"""What must be known when compiling: widths, sizes, values of constants, arguments of annotations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fanin.p4compiler import ir, nodes, types
from fanin.p4compiler.check.conversions import Conversions
from fanin.p4compiler.source import CompileError, error


class ConstantChecker:
    """Evaluates what must be known when compiling; `evaluate` gives expressions their types.

    What is wrong in the program is a CompileError.
    """

    def __init__(self, conversions: Conversions, evaluate: Callable[[nodes.Expr], ir.Expr]) -> None:
        self.conversions = conversions
        self.evaluate = evaluate

    def constant(self, node: nodes.Expr, expected: types.Type, what: str) -> ir.Constant:
        """An expression that must be known when compiling, converted to the type expected."""
        value = self.conversions.coerce(self.evaluate(node), expected)
        if not isinstance(value, ir.Constant):
            raise error(node.span, f"{what} must be known when compiling", "use a literal or a const")
        return value

    def compile_time(self, node: nodes.Expr, what: str) -> int:
        """The value of an expression that must be known when compiling."""
        value = self.evaluate(node)
        if not isinstance(value, ir.Constant) or not isinstance(
            types.scalar(value.type), types.Int | types.Bits
        ):
            raise error(
                node.span, f"{what} must be a number known when compiling", "use a literal or a const"
            )
        return value.value

    def member_value(self, node: nodes.Expr, underlying: types.Bits | None) -> int:
        """The value of a member of a serializable enum."""
        return self.constant(node, underlying or types.Bits(32), "an enum member's value").value

    def annotations(self, annotations: nodes.Annotations) -> nodes.Annotations:
        """Annotations with what is known when compiling computed; what means nothing to us stays as it is."""
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
