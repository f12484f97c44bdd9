"""Typing of expressions (P4_16 specification, chapter 8)."""

from __future__ import annotations

from fanin.native.text import counted
from fanin.p4compiler import fold, ir, nodes, types
from fanin.p4compiler.check.calls import HEADER_METHODS, CallChecker
from fanin.p4compiler.check.constants import ConstantChecker
from fanin.p4compiler.check.conversions import Conversions, arithmetic_operand
from fanin.p4compiler.check.scopes import Scopes, no_member, no_such
from fanin.p4compiler.check.types import TypeChecker
from fanin.p4compiler.source import Span, error

_SATURATING = ("|+|", "|-|")
_ARITHMETIC = ("+", "-", "*", "/", "%", "&", "|", "^", *_SATURATING)
_ORDER = ("<", "<=", ">", ">=")
_LITERALS = (ir.Aggregate, ir.Invalid)  # they take the type of the value they are compared with


class ExpressionChecker:
    """Type checker for expressions, which also resolves names and folds constants.

    Errors in the program are raised as CompileError.
    """

    def __init__(self, scopes: Scopes) -> None:
        self.scopes = scopes
        self.conversions = Conversions(scopes.reporter)
        self.constants = ConstantChecker(self.conversions, self.expr)
        self.types = TypeChecker(scopes, self.constants)
        self.calls = CallChecker(scopes, self.types, self.conversions, self.expr)

    def expr(self, node: nodes.Expr) -> ir.Expr:
        """Check an expression and return it with its type."""
        match node:
            case nodes.Name():
                return self.name(node)
            case nodes.Member():
                return self._member(node)
            case nodes.Binary():
                return self.binary(node)
            case nodes.Integer(span, value, width, signed, base):
                if width is None:
                    return ir.Constant(types.Int(), span, value, base)
                if width == 0 and signed:
                    raise error(span, "a literal of width 0", "only bit<> has this width: 0w0")
                literal = ir.Constant(types.Int(), span, value, base)
                return self.conversions.coerce(literal, types.Bits(width, signed))
            case nodes.Call():
                return self.calls.call(node)
            case nodes.Cast(span, target, operand):
                return self.conversions.cast(span, self.types.resolve(target), self.expr(operand))
            case nodes.Unary():
                return self.unary(node)
            case nodes.Boolean(span, truth):
                return ir.Constant(types.Bool(), span, int(truth))
            case nodes.Slice():
                return self._slice(node)
            case nodes.PlusSlice():
                return self._plus_slice(node)
            case nodes.Index():
                return self._index(node)
            case nodes.Ternary():
                return self.ternary(node)
            case nodes.Tuple(span, elements, rest):
                values = tuple(self.expr(e) for e in elements)
                return ir.Aggregate(types.Tuple(tuple(v.type for v in values), rest), span, values)
            case nodes.Record(span, fields, rest):
                values = tuple(self.expr(e) for _, e in fields)
                named = tuple((name, v.type) for (name, _), v in zip(fields, values, strict=True))
                return ir.Aggregate(types.Record(named, rest), span, values)
            case nodes.Invalid(span):
                return ir.Invalid(types.InvalidHeader(), span)
            case nodes.String(span, text):
                return ir.Text(types.String(), span, text)
            case nodes.Anything(span):
                raise error(span, "'_' and 'default' stand only in keys and labels")
            case nodes.TypeExpr(span, named):
                raise error(span, "a type stands where a value is needed")

    def name(self, node: nodes.Name) -> ir.Expr:
        """Return the value that a name refers to."""
        symbol = self.scopes.lookup(node.name, node.span, node.rooted)
        match symbol:
            case ir.Variable():
                return ir.Ref(symbol.type, node.span, symbol)
            case ir.Constant(type=of, value=value, base=base):
                return ir.Constant(of, node.span, value, base)
            case ir.Text(value=text):
                return ir.Text(types.String(), node.span, text)
            case ir.Aggregate(type=of, elements=elements):
                return ir.Aggregate(of, node.span, elements)
        kind = type(symbol).__name__.lower() if not isinstance(symbol, list) else "function"
        hint = None
        match symbol:
            case ir.Table():
                hint = f"write {node.name}.apply().hit"
            case ir.Instance(type=types.ExternInstance(extern=extern)) if extern.name == "register":
                kind, hint = "register", f"write {node.name}.read(variable, index);"
        raise error(
            node.span, f"'{node.name}' is not a value (it is a{'n' * (kind[0] in 'aei')} {kind})", hint
        )

    def _member(self, node: nodes.Member) -> ir.Expr:
        if isinstance(node.base, nodes.TypeExpr):
            return self._type_member(node, self.types.resolve(node.base.type))
        if node.name in ("hit", "miss") and isinstance(node.base, nodes.Call):
            table = self.calls.applied_table(node.base)
            if table is not None:
                hit = ir.TableHit(types.Bool(), node.span, table)
                return hit if node.name == "hit" else fold.unary(node.span, "!", hit)
        base = self.expr(node.base)
        of = base.type
        match of:
            case types.Fields(by_name=fields):
                if node.name in HEADER_METHODS and not isinstance(of, types.Struct):
                    hint = f"write {_text(node.base)}.{node.name}()"
                    raise error(
                        node.name_span, f"{node.name} is a method of headers: it needs parentheses", hint
                    )
                if node.name not in fields:
                    raise no_member(str(of), "field", node.name, node.name_span, fields)
                self.scopes.use_member(of, node.name, node.name_span)
                if isinstance(base, ir.Aggregate):
                    return base.elements[list(fields).index(node.name)]
                return ir.Field(fields[node.name], node.span, base, node.name)
            case types.Stack(element=element, size=size):
                match node.name:
                    case "next" | "last":
                        return ir.StackPart(element, node.span, base, node.name)
                    case "lastIndex":
                        return ir.StackPart(types.Bits(32), node.span, base, node.name)
                    case "size":
                        return ir.Constant(types.Bits(32), node.span, size)
        raise error(node.name_span, f"a value of type {of} has no member '{node.name}'")

    def _type_member(self, node: nodes.Member, of: types.Type) -> ir.Expr:
        self.scopes.use_member(of, node.name, node.name_span)
        match of:
            case types.Error():
                if node.name not in self.types.errors:
                    raise no_such("error", node.name, node.name_span, self.types.errors)
                return ir.Constant(of, node.span, self.types.errors[node.name])
            case types.Enum(members=members):
                if node.name not in members:
                    raise no_member(f"enum {of}", "member", node.name, node.name_span, members)
                return ir.Constant(of, node.span, members[node.name])
        raise error(node.span, f"type {of} has no member '{node.name}'")

    def _index(self, node: nodes.Index) -> ir.Expr:
        if isinstance(node.base, nodes.Name):
            array = self.scopes.lookup(node.base.name, node.base.span, node.base.rooted)
            if isinstance(array, ir.Instance):
                hint = f"write {node.base.name}.read(variable, {_text(node.index)});"
                raise error(node.span, f"{array.type} cannot be indexed: it is read by a call", hint)
        base, index = self.expr(node.base), self.expr(node.index)
        if isinstance(base.type, types.Tuple):
            return self._tuple_element(node, base, base.type)
        if not isinstance(base.type, types.Stack):
            raise error(node.span, f"a value of type {base.type} cannot be indexed")
        if isinstance(index, ir.Constant) and not 0 <= index.value < base.type.size:
            raise error(node.index.span, f"{base.type} has no element {index.value}")
        if isinstance(base, ir.Aggregate) and isinstance(index, ir.Constant):
            return base.elements[index.value]
        if not isinstance(types.scalar(index.type), types.Bits | types.Int):
            raise error(node.index.span, f"an index is a number, not {index.type}")
        if isinstance(index.type, types.Int):
            index = self.conversions.coerce(index, types.Bits(32))
        return ir.Element(base.type.element, node.span, base, index)

    def _tuple_element(self, node: nodes.Index, base: ir.Expr, of: types.Tuple) -> ir.Expr:
        number = self.constants.compile_time(node.index, "a tuple's index")
        if not 0 <= number < len(of.elements):
            raise error(
                node.index.span, f"a tuple of {counted(len(of.elements), 'element')} has no element {number}"
            )
        if isinstance(base, ir.Aggregate):
            return base.elements[number]
        return ir.Field(of.elements[number], node.span, base, str(number))

    def _slice(self, node: nodes.Slice) -> ir.Expr:
        base = self.expr(node.base)
        high, low = (
            self.constants.compile_time(node.high, "the bounds of a slice"),
            self.constants.compile_time(node.low, "the bounds of a slice"),
        )
        of = types.scalar(base.type)
        if not isinstance(of, types.Bits):
            raise error(node.base.span, f"a slice of {base.type}", "only bit<> and int<> values have slices")
        if not 0 <= low <= high < of.width:
            raise error(
                node.span,
                f"[{high}:{low}] is not a slice of {base.type}",
                f"the high bit comes first: write {_text(node.base)}[{low}:{high}]"
                if high < low < of.width
                else f"the highest bit is {of.width - 1}: write [high:low], both included",
            )
        return fold.slice_(node.span, base, high, low)

    def _plus_slice(self, node: nodes.PlusSlice) -> ir.Expr:
        base, low, width = self.plus_slice_parts(node)
        if isinstance(low, ir.Constant):
            return fold.slice_(node.span, base, low.value + width - 1, low.value)
        whole = types.Bits(types.width(base.type) or 0)
        moved = fold.binary(node.span, whole, ">>", fold.cast(node.base.span, whole, base), low)
        return fold.cast(node.span, types.Bits(width), moved)

    def plus_slice_parts(self, node: nodes.PlusSlice) -> tuple[ir.Expr, ir.Expr, int]:
        """Return the base of a slice `[low +: width]`, its lowest bit, and its width."""
        base, low = self.expr(node.base), self.expr(node.low)
        width = self.constants.compile_time(node.width, "the width of a slice")
        of = types.scalar(base.type)
        if not isinstance(of, types.Bits):
            raise error(node.base.span, f"a slice of {base.type}", "only bit<> and int<> values have slices")
        if not 1 <= width <= of.width:
            raise error(node.width.span, f"a slice of {base.type} has 1 to {of.width} bits, not {width}")
        if isinstance(low, ir.Constant):
            if not 0 <= low.value <= of.width - width:
                text = f"[{low.value} +: {width}] is not a slice of {base.type}"
                raise error(node.span, text, f"the lowest bit is at most {of.width - width}")
        elif not isinstance(types.scalar(low.type), types.Bits) or _is_signed(low.type):
            hint = "cast it to bit<>" if isinstance(low.type, types.Bits) else None
            raise error(node.low.span, f"the lowest bit of a slice is unsigned, not {low.type}", hint)
        return base, arithmetic_operand(low), width

    def unary(self, node: nodes.Unary) -> ir.Expr:
        """Check a unary operator and its operand."""
        operand = self.expr(node.operand)
        if node.op == "!":
            if not isinstance(operand.type, types.Bool):
                hint = f"compare it: ({_text(node.operand)} == 0)"
                raise error(node.operand.span, f"'!' needs a bool, not {operand.type}", hint)
            return fold.unary(node.span, "!", operand)
        operand = arithmetic_operand(operand)
        allowed = types.Bits if node.op == "~" else types.Bits | types.Int
        if not isinstance(operand.type, allowed):
            raise error(node.operand.span, f"'{node.op}' cannot be applied to {operand.type}")
        return operand if node.op == "+" else fold.unary(node.span, node.op, operand)

    def binary(self, node: nodes.Binary) -> ir.Expr:
        """Check a binary operator and its operands."""
        return self.operation(node.span, node.op, self.expr(node.left), self.expr(node.right))

    def operation(self, span: Span, op: str, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        """Check a binary operator between operands whose types are known."""
        if op in ("&&", "||"):
            for operand in (left, right):
                if not isinstance(operand.type, types.Bool):
                    hint = "compare it with something" if isinstance(operand.type, types.Bits) else None
                    raise error(operand.span, f"'{op}' needs a bool, not {operand.type}", hint)
            return fold.binary(span, types.Bool(), op, left, right)
        if op in ("==", "!="):
            return self._equality(span, op, left, right)
        left, right = arithmetic_operand(left), arithmetic_operand(right)
        if op in ("<<", ">>"):
            return self._shift(span, op, left, right)
        if op == "++":
            for operand in (left, right):
                if not isinstance(operand.type, types.Bits):
                    hint = (
                        "give the literal a width, like 8w0" if isinstance(operand.type, types.Int) else None
                    )
                    raise error(operand.span, f"'++' joins bit<> values, not {operand.type}", hint)
            assert isinstance(left.type, types.Bits)
            assert isinstance(right.type, types.Bits)
            return fold.binary(
                span, types.Bits(left.type.width + right.type.width, left.type.signed), op, left, right
            )
        if op not in _ARITHMETIC and op not in _ORDER:
            raise error(span, f"'{op}' stands only in keys", None)
        left, right = self._same_type(span, op, left, right)
        of = left.type
        if op in ("/", "%") and isinstance(of, types.Bits) and of.signed:
            raise error(span, f"'{op}' is not defined for {of}", "P4 divides only unsigned numbers")
        if op in _SATURATING and isinstance(of, types.Int):
            raise error(span, f"'{op}' needs operands with a width", "give the literals a width, like 8w1")
        return fold.binary(span, types.Bool() if op in _ORDER else of, op, left, right)

    def _same_type(self, span: Span, op: str, left: ir.Expr, right: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        if isinstance(left.type, types.Int) and isinstance(right.type, types.Bits):
            left = self.conversions.coerce(left, right.type)
        elif isinstance(right.type, types.Int) and isinstance(left.type, types.Bits):
            right = self.conversions.coerce(right, left.type)
        if left.type != right.type or not isinstance(left.type, types.Bits | types.Int):
            raise error(
                span, f"'{op}' cannot be applied to {left.type} and {right.type}", _mix_hint(left, right, op)
            )
        return left, right

    def _shift(self, span: Span, op: str, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        if not isinstance(left.type, types.Bits | types.Int):
            raise error(left.span, f"'{op}' cannot be applied to {left.type}")
        if isinstance(left.type, types.Int) and not isinstance(right, ir.Constant):
            raise error(
                left.span, "a literal without a width cannot be shifted by a variable", "write 32w1 << n"
            )
        if isinstance(right.type, types.Bits) and right.type.signed:
            raise error(
                right.span, f"a shift by {right.type}", "shift by an unsigned number: cast it to bit<>"
            )
        if not isinstance(right.type, types.Bits | types.Int):
            raise error(right.span, f"a shift by {right.type}")
        return fold.binary(span, left.type, op, left, right)

    def _equality(self, span: Span, op: str, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        if isinstance(left, _LITERALS) and not isinstance(right, _LITERALS):
            left = self.conversions.coerce(left, right.type)
        elif isinstance(right, _LITERALS) and not isinstance(left, _LITERALS):
            right = self.conversions.coerce(right, left.type)
        if left.type != right.type:
            left, right = arithmetic_operand(left), arithmetic_operand(right)
        if isinstance(left.type, types.Int) and isinstance(right.type, types.Bits):
            left = self.conversions.coerce(left, right.type)
        elif isinstance(right.type, types.Int) and isinstance(left.type, types.Bits):
            right = self.conversions.coerce(right, left.type)
        if left.type != right.type:
            raise error(span, f"'{op}' cannot compare {left.type} with {right.type}", _mix_hint(left, right))
        return fold.binary(span, types.Bool(), op, left, right)

    def ternary(self, node: nodes.Ternary) -> ir.Expr:
        """Check `condition ? chosen : other`."""
        condition = self.expr(node.condition)
        if not isinstance(condition.type, types.Bool):
            raise error(node.condition.span, f"the condition of ?: is a bool, not {condition.type}")
        chosen, other = self.expr(node.chosen), self.expr(node.other)
        if isinstance(chosen.type, types.Int) and not isinstance(other.type, types.Int):
            chosen = self.conversions.coerce(chosen, other.type)
        elif isinstance(other.type, types.Int) and not isinstance(chosen.type, types.Int):
            other = self.conversions.coerce(other, chosen.type)
        if chosen.type != other.type:
            raise error(node.span, f"the branches of ?: have different types: {chosen.type} and {other.type}")
        if isinstance(chosen.type, types.Int) and not isinstance(condition, ir.Constant):
            raise error(node.span, "the branches of ?: need a width", "give the literals a width, like 8w1")
        return fold.mux(node.span, condition, chosen, other)


def _is_signed(of: types.Type) -> bool:
    bits = types.scalar(of)
    return isinstance(bits, types.Bits) and bits.signed


def _mix_hint(left: ir.Expr, right: ir.Expr, op: str = "") -> str | None:
    if op in ("&", "|") and isinstance(left.type, types.Bool):
        return f"write {op}{op} between conditions"
    if isinstance(left.type, types.Bits) and isinstance(right.type, types.Bits):
        return f"cast one of them to the other's type, like ({left.type})x"
    return None


def _text(node: nodes.Expr) -> str:
    return node.span.fragment() if node.span.expansion is None else "x"
