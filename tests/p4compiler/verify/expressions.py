"""Invariants of typed expressions: the type follows from the operator and its operands."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.p4compiler import fold, ir, types
from fanin.p4compiler.rewrite import path, walk
from fanin.p4compiler.source import Span

_BOOLEAN = ("&&", "||")
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_SHIFTS = ("<<", ">>")


def at(span: Span) -> str:
    """Format a place for a problem's text."""
    return f"{span.file.path}:{span.line}:{span.column + 1}"


def verify_expression(e: ir.Expr) -> Iterator[str]:
    """Yield the problems of an expression and its parts."""
    for part in walk(e):
        if isinstance(part.type, types.TypeVariable):
            yield f"{at(part.span)}: {type(part).__name__} is of the unknown type {part.type}"
        elif not _is_sound(part):
            yield f"{at(part.span)}: {type(part).__name__} is not of type {part.type}"


def verify_arguments(
    span: Span, parameters: tuple[ir.Variable, ...], arguments: tuple[ir.Expr, ...]
) -> Iterator[str]:
    """Yield the problems of arguments for these parameters."""
    if len(parameters) != len(arguments):
        yield f"{at(span)}: {len(arguments)} arguments for {len(parameters)} parameters"
    for parameter, argument in zip(parameters, arguments, strict=False):
        if argument.type != parameter.type:
            yield f"{at(argument.span)}: '{parameter.name}' is {parameter.type}, not {argument.type}"
        if parameter.direction in ("out", "inout") and path(argument) is None:
            yield f"{at(argument.span)}: '{parameter.name}' is written to what is not a place"


def _is_sound(e: ir.Expr) -> bool:
    of = e.type
    match e:
        case ir.Constant(value=value):
            return value == fold.wrap(value, of) and (not isinstance(of, types.Bool) or value in (0, 1))
        case ir.Text():
            return isinstance(of, types.String)
        case ir.Ref(variable=variable):
            return variable.type == of
        case ir.Field(base=ir.Expression(type=types.Tuple(elements=elements)), name=name):
            return elements[int(name)] == of
        case ir.Field(base=base, name=name):
            return isinstance(base.type, types.Fields) and base.type.by_name.get(name) == of
        case ir.Element(base=base):
            return isinstance(base.type, types.Stack) and base.type.element == of
        case ir.StackPart(base=base, part=part):
            stack = base.type
            return isinstance(stack, types.Stack) and of == (
                types.Bits(32) if part == "lastIndex" else stack.element
            )
        case ir.Slice(base=base, high=high, low=low):
            width = types.width(base.type)
            return width is not None and 0 <= low <= high < width and of == types.Bits(high - low + 1)
        case ir.Unary(op=op, operand=operand):
            return operand.type == of and (op != "!" or isinstance(of, types.Bool))
        case ir.Binary():
            return _is_sound_binary(e)
        case ir.Mux(condition=condition, chosen=chosen, other=other):
            return isinstance(condition.type, types.Bool) and chosen.type == other.type == of
        case ir.IsValid(header=header):
            return isinstance(header.type, types.Header | types.Union) and isinstance(of, types.Bool)
        case ir.Aggregate(elements=elements):
            return tuple(element.type for element in elements) == _parts(of)
        case ir.Invalid():
            return isinstance(of, types.Header)
        case ir.Call(function=function, arguments=arguments):
            return of == function.result and not list(
                verify_arguments(e.span, function.parameters, arguments)
            )
        case ir.TableHit():
            return isinstance(of, types.Bool)
    return True


def _is_sound_binary(e: ir.Binary) -> bool:
    left, right = e.left.type, e.right.type
    if e.op in _BOOLEAN:
        return isinstance(left, types.Bool) and left == right == e.type
    if e.op in _COMPARISONS:
        return left == right and isinstance(e.type, types.Bool)
    if e.op in _SHIFTS:
        return left == e.type
    if e.op == "++":
        return types.width(e.type) == (types.width(left) or 0) + (types.width(right) or 0)
    return left == right == e.type


def _parts(of: types.Type) -> tuple[types.Type, ...] | None:
    match of:
        case types.Fields(fields=fields):
            return tuple(f.type for f in fields)
        case types.Tuple(elements=elements):
            return elements
        case types.Record(fields=named):
            return tuple(value for _, value in named)
        case types.Stack(element=element, size=size):
            return (element,) * size
    return None
