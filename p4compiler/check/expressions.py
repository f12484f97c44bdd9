"""Typing of expressions (P4_16 specification, chapter 8)."""

from __future__ import annotations

from dataclasses import replace

from p4compiler import fold, ir, nodes, types
from p4compiler.check.types import TypeChecker, no_member, no_such
from p4compiler.source import CompileError, Span, error

_SATURATING = ("|+|", "|-|")
_ARITHMETIC = ("+", "-", "*", "/", "%", "&", "|", "^", *_SATURATING)
_ORDER = ("<", "<=", ">", ">=")


class ExpressionChecker(TypeChecker):
    """Gives every expression its type, resolves names, folds constants."""

    # Constants

    def constant(self, node: nodes.Expr, expected: types.Type, what: str) -> ir.Constant:
        """An expression that must be known when compiling, converted to the type expected."""
        value = self.coerce(self.expr(node), expected)
        if not isinstance(value, ir.Constant):
            raise error(node.span, f"{what} must be known when compiling", "use a literal or a const")
        return value

    def compile_time(self, node: nodes.Expr, what: str) -> int:
        """The value of an expression that must be known when compiling."""
        value = self.expr(node)
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
            value = self.expr(node)
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

    # Expressions

    def expr(self, node: nodes.Expr) -> ir.Expr:
        """The typed expression."""
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
                if width == 0:
                    raise error(span, "a literal of width 0")
                literal = ir.Constant(types.Int(), span, value, base)
                return self.coerce(literal, types.Bits(width, signed))
            case nodes.Call():
                return self.call(node)
            case nodes.Cast(span, target, operand):
                return self.cast(span, self.type(target), self.expr(operand))
            case nodes.Unary():
                return self.unary(node)
            case nodes.Boolean(span, truth):
                return ir.Constant(types.Bool(), span, int(truth))
            case nodes.Slice():
                return self._slice(node)
            case nodes.Index():
                return self._index(node)
            case nodes.Ternary():
                return self.ternary(node)
            case nodes.Tuple(span, elements):
                values = tuple(self.expr(e) for e in elements)
                return ir.Aggregate(types.Tuple(tuple(v.type for v in values)), span, values)
            case nodes.Record(span, fields):
                values = tuple(self.expr(e) for _, e in fields)
                named = tuple((name, v.type) for (name, _), v in zip(fields, values, strict=True))
                return ir.Aggregate(types.Record(named), span, values)
            case nodes.String(span, text):
                return ir.Text(types.String(), span, text)
            case nodes.Anything(span):
                raise error(span, "'_' and 'default' stand only in keys and labels")
            case nodes.TypeExpr(span, named):
                raise error(span, "a type stands where a value is needed")

    def call(self, node: nodes.Call) -> ir.Expr:
        """A call for its value."""
        raise NotImplementedError

    def name(self, node: nodes.Name) -> ir.Expr:
        """A name as a value."""
        symbol = self.lookup(node.name, node.span, node.rooted)
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
        raise error(node.span, f"'{node.name}' is not a value (it is a{'n' * (kind[0] in 'aei')} {kind})")

    def _member(self, node: nodes.Member) -> ir.Expr:
        if isinstance(node.base, nodes.TypeExpr):
            return self._type_member(node, self.type(node.base.type))
        if node.name in ("hit", "miss") and isinstance(node.base, nodes.Call):
            table = self.applied_table(node.base)
            if table is not None:
                hit = ir.TableHit(types.Bool(), node.span, table)
                return hit if node.name == "hit" else fold.unary(node.span, "!", hit)
        base = self.expr(node.base)
        of = base.type
        match of:
            case types.Fields(by_name=fields):
                if node.name not in fields:
                    raise no_member(str(of), "field", node.name, node.name_span, fields)
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

    def applied_table(self, call: nodes.Call) -> ir.Table | None:
        """The table, if this call is `table.apply()`."""
        function = call.function
        if (
            isinstance(function, nodes.Member)
            and function.name == "apply"
            and isinstance(function.base, nodes.Name)
        ):
            table = self.lookup(function.base.name, function.base.span, function.base.rooted)
            if isinstance(table, ir.Table):
                if call.arguments:
                    raise error(call.arguments[0].span, "a table is applied without arguments")
                return table
        return None

    def _type_member(self, node: nodes.Member, of: types.Type) -> ir.Expr:
        match of:
            case types.Error():
                if node.name not in self.errors:
                    raise no_such("error", node.name, node.name_span, self.errors)
                return ir.Constant(of, node.span, self.errors[node.name])
            case types.Enum(members=members):
                if node.name not in members:
                    raise no_member(f"enum {of}", "member", node.name, node.name_span, members)
                return ir.Constant(of, node.span, members[node.name])
        raise error(node.span, f"type {of} has no member '{node.name}'")

    def _index(self, node: nodes.Index) -> ir.Expr:
        base, index = self.expr(node.base), self.expr(node.index)
        if (
            isinstance(base.type, types.Tuple)
            and isinstance(base, ir.Aggregate)
            and isinstance(index, ir.Constant)
        ):
            if 0 <= index.value < len(base.elements):
                return base.elements[index.value]
            raise error(
                node.index.span, f"a tuple of {len(base.elements)} elements has no element {index.value}"
            )
        if not isinstance(base.type, types.Stack):
            raise error(node.span, f"a value of type {base.type} cannot be indexed")
        if isinstance(index, ir.Constant) and not 0 <= index.value < base.type.size:
            raise error(node.index.span, f"{base.type} has no element {index.value}")
        if not isinstance(types.scalar(index.type), types.Bits | types.Int):
            raise error(node.index.span, f"an index is a number, not {index.type}")
        if isinstance(index.type, types.Int):
            index = self.coerce(index, types.Bits(32))
        return ir.Element(base.type.element, node.span, base, index)

    def _slice(self, node: nodes.Slice) -> ir.Expr:
        base = self.expr(node.base)
        high, low = (
            self.compile_time(node.high, "the bounds of a slice"),
            self.compile_time(node.low, "the bounds of a slice"),
        )
        of = types.scalar(base.type)
        if not isinstance(of, types.Bits):
            raise error(node.base.span, f"a slice of {base.type}", "only bit<> and int<> values have slices")
        if not 0 <= low <= high < of.width:
            raise error(
                node.span, f"[{high}:{low}] is not a slice of {base.type}", "write [high:low], both included"
            )
        return fold.slice_(node.span, base, high, low)

    def unary(self, node: nodes.Unary) -> ir.Expr:
        """An operator before an operand."""
        operand = self.expr(node.operand)
        if node.op == "!":
            if not isinstance(operand.type, types.Bool):
                hint = f"compare it: ({_text(node.operand)} == 0)"
                raise error(node.operand.span, f"'!' needs a bool, not {operand.type}", hint)
            return fold.unary(node.span, "!", operand)
        operand = self.arithmetic_operand(operand)
        allowed = types.Bits if node.op == "~" else types.Bits | types.Int
        if not isinstance(operand.type, allowed):
            raise error(node.operand.span, f"'{node.op}' cannot be applied to {operand.type}")
        return operand if node.op == "+" else fold.unary(node.span, node.op, operand)

    def arithmetic_operand(self, operand: ir.Expr) -> ir.Expr:
        """A serializable enum counts as its bits in arithmetic."""
        if isinstance(operand.type, types.Enum) and operand.type.underlying is not None:
            return fold.cast(operand.span, operand.type.underlying, operand)
        return operand

    def binary(self, node: nodes.Binary) -> ir.Expr:
        """An operator between two operands."""
        op, span = node.op, node.span
        left, right = self.expr(node.left), self.expr(node.right)
        if op in ("&&", "||"):
            for operand in (left, right):
                if not isinstance(operand.type, types.Bool):
                    hint = "compare it with something" if isinstance(operand.type, types.Bits) else None
                    raise error(operand.span, f"'{op}' needs a bool, not {operand.type}", hint)
            return fold.binary(span, types.Bool(), op, left, right)
        if op in ("==", "!="):
            return self._equality(span, op, left, right)
        left, right = self.arithmetic_operand(left), self.arithmetic_operand(right)
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
            left = self.coerce(left, right.type)
        elif isinstance(right.type, types.Int) and isinstance(left.type, types.Bits):
            right = self.coerce(right, left.type)
        if left.type != right.type or not isinstance(left.type, types.Bits | types.Int):
            raise error(
                span, f"'{op}' cannot be applied to {left.type} and {right.type}", _mix_hint(left, right)
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
        if isinstance(left, ir.Aggregate) and not isinstance(right, ir.Aggregate):
            left = self.coerce(left, right.type)
        elif isinstance(right, ir.Aggregate) and not isinstance(left, ir.Aggregate):
            right = self.coerce(right, left.type)
        if left.type != right.type:
            left, right = self.arithmetic_operand(left), self.arithmetic_operand(right)
        if isinstance(left.type, types.Int) and isinstance(right.type, types.Bits):
            left = self.coerce(left, right.type)
        elif isinstance(right.type, types.Int) and isinstance(left.type, types.Bits):
            right = self.coerce(right, left.type)
        if left.type != right.type:
            raise error(span, f"'{op}' cannot compare {left.type} with {right.type}", _mix_hint(left, right))
        return fold.binary(span, types.Bool(), op, left, right)

    def ternary(self, node: nodes.Ternary) -> ir.Expr:
        """`condition ? chosen : other`."""
        condition = self.expr(node.condition)
        if not isinstance(condition.type, types.Bool):
            raise error(node.condition.span, f"the condition of ?: is a bool, not {condition.type}")
        chosen, other = self.expr(node.chosen), self.expr(node.other)
        if isinstance(chosen.type, types.Int) and not isinstance(other.type, types.Int):
            chosen = self.coerce(chosen, other.type)
        elif isinstance(other.type, types.Int) and not isinstance(chosen.type, types.Int):
            other = self.coerce(other, chosen.type)
        if chosen.type != other.type:
            raise error(node.span, f"the branches of ?: have different types: {chosen.type} and {other.type}")
        if isinstance(chosen.type, types.Int) and not isinstance(condition, ir.Constant):
            raise error(node.span, "the branches of ?: need a width", "give the literals a width, like 8w1")
        return fold.mux(node.span, condition, chosen, other)

    # Conversions

    def cast(self, span: Span, target: types.Type, operand: ir.Expr) -> ir.Expr:
        """`(target)operand` (specification, 8.9.1)."""
        source = operand.type
        if isinstance(operand, ir.Aggregate) or (
            isinstance(source, types.Int) and isinstance(target, types.Bits)
        ):
            if isinstance(operand, ir.Constant):
                return ir.Constant(target, span, fold.wrap(operand.value, target), operand.base)
            return self.coerce(operand, target)
        if source == target:
            return operand
        if not _castable(source, target):
            hint = None
            if isinstance(source, types.Bits) and isinstance(target, types.Bits):
                middle = types.Bits(target.width, source.signed)
                hint = f"change width and sign one after the other: ({target})({middle})x"
            raise error(span, f"{source} cannot be cast to {target}", hint)
        return fold.cast(span, target, operand)

    def coerce(self, value: ir.Expr, target: types.Type) -> ir.Expr:
        """The value converted to `target` without a cast, where P4 allows it (8.9.2); else an error."""
        source = value.type
        if source == target:
            return value
        match source, target:
            case types.Int(), types.Bits():
                return self._fit(value, target)
            case types.Enum(underlying=types.Bits() as bits), types.Bits() if bits == target:
                return fold.cast(value.span, target, value)
            case types.Tuple() | types.Record(), types.Fields() | types.Tuple() if isinstance(
                value, ir.Aggregate
            ):
                return self._initializer(value, target)
            case _, types.TypeVariable(name="_"):
                return value
        message = f"a value of type {source} stands where {target} is needed"
        raise error(value.span, message, _cast_hint(value, target))

    def _fit(self, value: ir.Expr, target: types.Bits) -> ir.Expr:
        if isinstance(value, ir.Mux):
            chosen, other = self._fit(value.chosen, target), self._fit(value.other, target)
            return fold.mux(value.span, value.condition, chosen, other)
        if not isinstance(value, ir.Constant):  # a constructor parameter: a constant once it is instantiated
            return ir.Cast(target, value.span, value)
        low, high = fold.limits(target)
        if not low <= value.value <= high:
            wrapped = fold.wrap(value.value, target)
            self.reporter.warn(value.span, f"{value.value} does not fit in {target}; it becomes {wrapped}")
        return ir.Constant(target, value.span, fold.wrap(value.value, target), value.base)

    def _initializer(self, value: ir.Aggregate, target: types.Type) -> ir.Expr:
        match target:
            case types.Tuple(elements=wanted):
                fields: tuple[tuple[str | None, types.Type], ...] = tuple((None, t) for t in wanted)
            case types.Fields(fields=declared):
                fields = tuple((f.name, f.type) for f in declared)
            case _:
                fields = ()
        if isinstance(target, types.Union) or (
            isinstance(value.type, types.Record) and isinstance(target, types.Tuple)
        ):
            raise error(value.span, f"{target} cannot be initialized like this")
        elements = value.elements
        if isinstance(value.type, types.Record):
            given = dict(zip((name for name, _ in value.type.fields), elements, strict=True))
            for name in given:
                if not any(name == f for f, _ in fields):
                    raise no_such(f"field of {target}", name, value.span, [f for f, _ in fields if f])
            missing = [f for f, _ in fields if f not in given]
            if missing or len(given) != len(elements):
                what = (
                    f"fields of {target} are missing: {', '.join(map(str, missing))}"
                    if missing
                    else "a field is given twice"
                )
                raise error(value.span, what)
            elements = tuple(given[f] for f, _ in fields if f is not None)
        if len(elements) != len(fields):
            raise error(value.span, f"{target} takes {len(fields)} values, not {len(elements)}")
        values = tuple(self.coerce(e, t) for e, (_, t) in zip(elements, fields, strict=True))
        return ir.Aggregate(target, value.span, values)

    # Left values

    def assignable(self, target: ir.Expr) -> None:
        """Raise an error unless the expression can be written."""
        match target:
            case ir.Ref(variable=variable):
                if variable.parameter and variable.direction in ("in", ""):
                    which = "an 'in' parameter" if variable.direction else "a parameter without a direction"
                    hint = "copy it to a variable, or make it inout"
                    raise error(target.span, f"'{variable.name}' cannot be written: it is {which}", hint)
            case ir.Field(base=base) | ir.Element(base=base) | ir.Slice(base=base):
                self.assignable(base)
            case ir.StackPart(base=base, part="next" | "last"):
                self.assignable(base)
            case _:
                raise error(
                    target.span, "this cannot be written", "only variables, fields, elements and slices can"
                )


def _castable(source: types.Type, target: types.Type) -> bool:
    match source, target:
        case types.Bits(), types.Bits():
            return source.signed == target.signed or source.width == target.width
        case (types.Bool(), types.Bits(width=1, signed=False)) | (
            types.Bits(width=1, signed=False),
            types.Bool(),
        ):
            return True
        case types.NewType(base=base), _ if base == target or _castable(base, target):
            return True
        case _, types.NewType(base=base) if (
            base == source or _castable(source, base) or isinstance(source, types.Int)
        ):
            return True
        case types.Enum(underlying=types.Bits() as bits), types.Bits():
            return bits == target or _castable(bits, target)
        case (types.Bits() | types.Int(), types.Enum(underlying=types.Bits() as bits)):
            return isinstance(source, types.Int) or bits == source
        case types.Enum(underlying=types.Bits() as left), types.Enum(underlying=types.Bits() as right):
            return left == right
    return False


def _cast_hint(value: ir.Expr, target: types.Type) -> str | None:
    source = value.type
    text = "x"
    if isinstance(value, ir.Ref | ir.Field | ir.Element) and value.span.expansion is None:
        text = value.span.fragment()
    if _castable(source, target):
        return f"cast it: ({target}){text}"
    if isinstance(source, types.Bits) and isinstance(target, types.Bits):
        return f"cast it: ({target})({types.Bits(target.width, source.signed)}){text}"
    if isinstance(source, types.Bits) and isinstance(target, types.Bool):
        return f"compare it with something: {text} != 0"
    return None


def _mix_hint(left: ir.Expr, right: ir.Expr) -> str | None:
    if isinstance(left.type, types.Bits) and isinstance(right.type, types.Bits):
        return f"cast one of them to the other's type, like ({left.type})x"
    return None


def _text(node: nodes.Expr) -> str:
    return node.span.fragment() if node.span.expansion is None else "x"
