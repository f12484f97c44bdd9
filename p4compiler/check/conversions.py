"""Conversions between types (P4_16 specification, 8.9), and checks if an expression is assignable or constant."""

from __future__ import annotations

from typing import TypeGuard

from fanin.native.text import counted
from fanin.p4compiler import fold, ir, types
from fanin.p4compiler.check.scopes import no_such
from fanin.p4compiler.source import Reporter, Span, error


class Conversions:
    """Converter of values between types. Numbers that do not fit are reported as warnings.

    Errors in the program are raised as CompileError.
    """

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter

    def cast(self, span: Span, target: types.Type, operand: ir.Expr) -> ir.Expr:
        """Return `(target)operand` (specification, 8.9.1)."""
        source = operand.type
        if isinstance(operand, ir.Aggregate | ir.Invalid) or (
            isinstance(source, types.Int) and isinstance(target, types.Bits)
        ):
            if isinstance(operand, ir.Constant):
                return ir.Constant(target, span, fold.wrap(operand.value, target), operand.base)
            return self.coerce(operand, target)
        if source == target:
            return operand
        if isinstance(target, types.Int) and isinstance(arithmetic_operand(operand).type, types.Bits):
            if not isinstance(operand, ir.Constant):
                raise error(
                    span,
                    "only a value known when compiling can be cast to int",
                    "cast it to a width that is large enough, like (bit<64>)x",
                )
            return ir.Constant(target, span, operand.value, operand.base)
        if not _castable(source, target):
            hint: str | None = None
            if isinstance(source, types.Bits) and isinstance(target, types.Bits):
                middle = types.Bits(target.width, source.signed)
                hint = f"change width and sign one after the other: ({target})({middle})x"
            raise error(span, f"{source} cannot be cast to {target}", hint)
        return fold.cast(span, target, operand)

    def coerce(self, value: ir.Expr, target: types.Type) -> ir.Expr:
        """Convert a value to `target` without a cast, where P4 allows it (8.9.2); else raise an error."""
        source = value.type
        if source == target:
            return value
        match source, target:
            case types.Int(), types.Bits():
                return self._fit(value, target)
            # p4c accepts this, although the specification does not mention it
            case types.Int(), types.NewType(base=base):
                return fold.cast(value.span, target, self.coerce(value, base))
            case types.Enum(underlying=types.Bits() as bits), types.Bits() if bits == target:
                return fold.cast(value.span, target, value)
            case types.Tuple() | types.Record(), types.Fields() | types.Tuple() | types.Stack() if isinstance(
                value, ir.Aggregate
            ):
                return self._initializer(value, target)
            case types.Tuple(rest=False), types.List(element=element) if isinstance(value, ir.Aggregate):
                return ir.Aggregate(
                    target, value.span, tuple(self.coerce(e, element) for e in value.elements)
                )
            case types.InvalidHeader(), types.Header():
                return ir.Invalid(target, value.span)
            case _, types.TypeVariable(name="_"):
                return value
        message = f"a value of type {source} stands where {target} is needed"
        raise error(value.span, message, _cast_hint(value, target))

    def _fit(self, value: ir.Expr, target: types.Bits) -> ir.Expr:
        if isinstance(value, ir.Mux):
            chosen, other = self._fit(value.chosen, target), self._fit(value.other, target)
            return fold.mux(value.span, value.condition, chosen, other)
        if not isinstance(value, ir.Constant):  # a constructor parameter: constant after instantiation
            return ir.Cast(target, value.span, value)
        low, high = fold.limits(target)
        if not low <= value.value <= high:
            wrapped = fold.wrap(value.value, target)
            option = "mismatch" if value.value < 0 and not target.signed else "overflow"
            message = f"{value.value} does not fit in {target}; it becomes {wrapped}"
            self.reporter.warn(value.span, message, option=option)
        return ir.Constant(target, value.span, fold.wrap(value.value, target), value.base)

    def default(self, span: Span, of: types.Type) -> ir.Expr:
        """Return the default that `...` stands for (specification, "Default values"): zeros, invalid headers."""
        match of:
            case types.Header():
                return ir.Invalid(of, span)
            case types.Struct(fields=fields) | types.Tuple(fields=fields):
                return ir.Aggregate(of, span, tuple(self.default(span, f.type) for f in fields))
            case types.Stack(element=element, size=size):
                return ir.Aggregate(of, span, tuple(self.default(span, element) for _ in range(size)))
            case _ if types.width(of) is not None:
                return ir.Constant(of, span, 0)
        raise error(span, f"a default value of type {of} is not supported")

    def _initializer(self, value: ir.Aggregate, target: types.Type) -> ir.Expr:
        assert isinstance(value.type, types.Tuple | types.Record)
        rest = value.type.rest
        # initializing a header makes it valid
        if rest and not value.elements and not isinstance(target, types.Header):
            return self.default(value.span, target)
        match target:
            case types.Tuple(elements=wanted):
                fields: tuple[tuple[str | None, types.Type], ...] = tuple((None, t) for t in wanted)
            case types.Stack(element=element, size=size):
                fields = ((None, element),) * size
            case types.Fields(fields=declared):
                fields = tuple((f.name, f.type) for f in declared)
            case _:
                fields = ()
        if isinstance(target, types.Union) or (
            isinstance(value.type, types.Record) and isinstance(target, types.Tuple | types.Stack)
        ):
            raise error(value.span, f"{target} cannot be initialized like this")
        elements = value.elements
        if isinstance(value.type, types.Record):
            given = dict(zip((name for name, _ in value.type.fields), elements, strict=True))
            for name in given:
                if not any(name == f for f, _ in fields):
                    raise no_such(f"field of {target}", name, value.span, [f for f, _ in fields if f])
            if len(given) != len(elements):
                raise error(value.span, "a field is given twice")
            if rest:
                given |= {f: self.default(value.span, of) for f, of in fields if f and f not in given}
            missing = [f for f, _ in fields if f not in given]
            if missing:
                message = f"fields of {target} are missing: {', '.join(map(str, missing))}"
                raise error(value.span, message, "write , ... behind the others for their default values")
            elements = tuple(given[f] for f, _ in fields if f is not None)
        elif rest:
            elements += tuple(self.default(value.span, of) for _, of in fields[len(elements) :])
        if len(elements) != len(fields):
            raise error(value.span, f"{target} takes {counted(len(fields), 'value')}, not {len(elements)}")
        values = tuple(self.coerce(e, t) for e, (_, t) in zip(elements, fields, strict=True))
        return ir.Aggregate(target, value.span, values)


def arithmetic_operand(operand: ir.Expr) -> ir.Expr:
    """Return the operand as bits if it is a serializable enum, else unchanged."""
    if isinstance(operand.type, types.Enum) and operand.type.underlying is not None:
        return fold.cast(operand.span, operand.type.underlying, operand)
    return operand


def check_assignable(target: ir.Expr) -> None:
    """Check that an expression can be written.

    Raises:
        CompileError: If it cannot be written.
    """
    match target:
        case ir.Ref(variable=variable):
            if variable.parameter and variable.direction in ("in", ""):
                which = "an 'in' parameter" if variable.direction else "a parameter without a direction"
                hint = "copy it to a variable, or make it inout"
                message = f"'{variable.name}' cannot be written: it is {which}"
                raise error(target.span, message, hint, cause=variable.span)
        case ir.Field(base=base) | ir.Element(base=base) | ir.Slice(base=base):
            check_assignable(base)
        case ir.StackPart(base=base, part="next" | "last"):
            check_assignable(base)
        case _:
            raise error(
                target.span, "this cannot be written", "only variables, fields, elements and slices can"
            )


def known(value: ir.Expr) -> bool:
    """Return whether a value is known after instantiation: it consists of constants and constructor parameters only."""
    match value:
        case ir.Constant() | ir.Text() | ir.Object():
            return True
        case ir.Ref(variable=variable):
            return variable.constructor
        case ir.Unary(operand=operand) | ir.Cast(operand=operand):
            return known(operand)
        case ir.Binary(left=left, right=right):
            return known(left) and known(right)
    return False


def is_constant(value: ir.Expr) -> TypeGuard[ir.Constant | ir.Text | ir.Aggregate]:
    """Return whether a value, with all its parts, is a compile-time constant."""
    if isinstance(value, ir.Aggregate):
        return all(map(is_constant, value.elements))
    return isinstance(value, ir.Constant | ir.Text)


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
    text, span = "x", value.span
    if span.expansion is None and span.line == span.end_line:
        text = span.fragment()
        if not isinstance(value, ir.Ref | ir.Field | ir.Element | ir.Slice | ir.Constant):
            text = f"({text})"
    if _castable(source, target):
        return f"cast it: ({target}){text}"
    if isinstance(source, types.Bits) and isinstance(target, types.Bits):
        return f"cast it: ({target})({types.Bits(target.width, source.signed)}){text}"
    if isinstance(value, ir.Constant) and isinstance(source, types.Int) and isinstance(target, types.Bool):
        return f"write {'true' if value.value else 'false'}"
    if isinstance(source, types.Bits) and isinstance(target, types.Bool):
        return f"compare it with something: {text} != 0"
    return None
