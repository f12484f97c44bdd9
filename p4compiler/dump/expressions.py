"""Typed expressions as text that looks like P4."""

from __future__ import annotations

from collections.abc import Iterable

from fanin.p4compiler import ir, nodes, types


def of_annotations(annotations: nodes.Annotations) -> str:
    """Format annotations, each followed by a space."""
    return "".join(f"@{a.name}{f'({a.text})' if a.text else ''} " for a in annotations)


def of_arguments(arguments: Iterable[ir.Expr]) -> str:
    """Format expressions, separated by commas."""
    return ", ".join(map(of_expression, arguments))


def of_call(call: ir.ActionCall) -> str:
    """Format an action with its arguments."""
    return f"{call.action.name}({of_arguments(call.arguments)})"


def of_expression(e: ir.Expr) -> str:
    """Format an expression, with nested operators in parentheses."""
    match e:
        case ir.Constant():
            return _constant(e)
        case ir.Text(value=text):
            return f'"{text}"'
        case ir.Ref(variable=variable):
            return variable.name
        case ir.Object(object=thing):
            return thing.name
        case ir.Field(base=base, name=name) | ir.StackPart(base=base, part=name):
            return f"{_operand(base)}.{name}"
        case ir.Element(base=base, index=index):
            return f"{_operand(base)}[{of_expression(index)}]"
        case ir.Slice(base=base, high=high, low=low):
            return f"{_operand(base)}[{high}:{low}]"
        case ir.Unary(op=op, operand=operand):
            return f"{op}{_operand(operand)}"
        case ir.Binary(op=op, left=left, right=right):
            return f"{_operand(left)} {op} {_operand(right)}"
        case ir.Mux(condition=condition, chosen=chosen, other=other):
            return f"{_operand(condition)} ? {_operand(chosen)} : {_operand(other)}"
        case ir.Cast(type=of, operand=operand):
            return f"({of}){_operand(operand)}"
        case ir.IsValid(header=header):
            return f"{_operand(header)}.isValid()"
        case ir.Lookahead(type=of):
            return f"packet.lookahead<{of}>()"
        case ir.Aggregate(type=of, elements=elements):
            kind = "" if isinstance(of, types.Tuple | types.Record) else f"({of})"
            return f"{kind}{{{of_arguments(elements)}}}"
        case ir.Invalid(type=of):
            return f"({of}){{#}}"
        case ir.Call(function=function, arguments=arguments):
            return f"{function.name}({of_arguments(arguments)})"
        case ir.TableHit(table=table):
            return f"{table.name}.apply().hit"


def _operand(e: ir.Expr) -> str:
    text = of_expression(e)
    return f"({text})" if isinstance(e, ir.Binary | ir.Mux | ir.Cast | ir.Unary) else text


def _constant(e: ir.Constant) -> str:
    match e.type:
        case types.Bool():
            return "true" if e.value else "false"
        case types.Bits(width=width, signed=signed):
            return f"{width}{'s' if signed else 'w'}{e.value}"
        case types.Enum(members=members):
            named = next((name for name, value in members.items() if value == e.value), None)
            return f"{e.type}.{named}" if named is not None else f"({e.type}){e.value}"
        case types.Int():
            return str(e.value)
    return f"({e.type}){e.value}"
