"""Keys: the values that entries and select cases match, and the control plane's names of key elements."""

from __future__ import annotations

from fanin.p4compiler import ir, nodes, types
from fanin.p4compiler.check.constants import ConstantChecker
from fanin.p4compiler.nodes import annotation_text
from fanin.p4compiler.source import Span, error


def key_values(
    constants: ConstantChecker, written: tuple[nodes.Expr, ...], subjects: list[ir.Expr], span: Span
) -> tuple[ir.KeyValue, ...]:
    """Return the keys of an entry or a select case. A single `_` stands for all of them.

    Raises:
        CompileError: If there are too many or too few keys, or one cannot be matched.
    """
    if len(written) == 1 and isinstance(written[0], nodes.Tuple):
        written = written[0].elements
    written = spread(written, len(subjects))
    if len(written) != len(subjects):
        names = [key_name(s) or s.span.fragment() for s in subjects]
        hint = f"write a value for each of {', '.join(names)}"
        if len(subjects) > 1:
            hint += f", in parentheses: ({', '.join(['...'] * len(subjects))})"
        count = f"{len(subjects)} keys are" if len(subjects) != 1 else "1 key is"
        raise error(span, f"{count} needed, not {len(written)}", hint)
    return tuple(_key_value(constants, w, s.type) for w, s in zip(written, subjects, strict=True))


def _key_value(constants: ConstantChecker, node: nodes.Expr, of: types.Type) -> ir.KeyValue:
    match node:
        case nodes.Anything():
            return ir.KeyValue(0, 0)
        case nodes.Binary(_, "&&&", left, right):
            base = types.scalar(of)
            value, mask = (constants.constant(n, base, "a key").value for n in (left, right))
            width = types.width(of) or 0
            mask &= (1 << width) - 1
            return ir.KeyValue(value & mask, mask if mask != (1 << width) - 1 else None)
        case nodes.Binary(span, "..", left, right):
            low, high = (constants.constant(n, of, "a key").value for n in (left, right))
            if low > high:
                raise error(span, f"the range {low} .. {high} is empty")
            return ir.KeyValue(low, None, high)
    value = constants.constant(node, of, "a key").value
    width = types.width(of) or 0
    return ir.KeyValue(value & ((1 << width) - 1))


def spread(written: tuple[nodes.Expr, ...], count: int) -> tuple[nodes.Expr, ...]:
    """Return the keys as written, with a single `_` repeated `count` times."""
    return written * count if len(written) == 1 and isinstance(written[0], nodes.Anything) else written


def key_name(e: ir.Expr) -> str | None:
    """Return the control plane's name of a key: the expression as written if it is simple enough, else None."""
    match e:
        case ir.Ref(variable=variable):
            return variable.name
        case ir.Constant(value=number, base=base):
            return f"0x{number:x}" if base == 16 else f"0b{number:b}" if base == 2 else str(number)
        case ir.Field(base=ir.Expression(type=types.Tuple()) as base, name=number):
            inner = key_name(base)
            return f"{inner}[{number}]" if inner is not None else None
        case ir.Field(base=base, name=name):
            given = _field_name(base.type, name)
            inner = key_name(base)
            return given[1:] if given.startswith(".") else f"{inner}.{given}" if inner is not None else None
        case ir.Element(base=base, index=index):
            inner, at = key_name(base), key_name(index)
            return f"{inner}[{at}]" if inner is not None and at is not None else None
        case ir.Slice(base=base, high=high, low=low):
            inner = key_name(base)
            return f"{inner}[{high}:{low}]" if inner is not None else None
        case ir.Binary(op="&", left=left, right=right):
            first, last = key_name(left), key_name(right)
            return f"{first} & {last}" if first is not None and last is not None else None
        case ir.IsValid(header=header):
            inner = key_name(header)
            return f"{inner}.$valid$" if inner is not None else None
        case ir.StackPart(base=base, part=part):
            inner = key_name(base)
            return f"{inner}.{part}" if inner is not None else None
    return None


def _field_name(of: types.Type, name: str) -> str:
    found = [f for f in of.fields if f.name == name] if isinstance(of, types.Fields) else []
    return (annotation_text(found[0].annotations, "name") if found else None) or name
