"""Expressions in BMv2's JSON.

BMv2 computes with unbounded integers. After every operation that can exceed the range of its type, the result is
reduced to that range: with a mask for unsigned types, with `two_comp_mod` for signed ones.
"""

from __future__ import annotations

from typing import Any

from fanin.p4compiler import ir, types
from fanin.p4compiler.emit.layout import SCALARS, STANDARD_METADATA, Layout, flat_fields
from fanin.p4compiler.emit.uses import header_of, is_zero
from fanin.p4compiler.rewrite import is_fixed, path
from fanin.p4compiler.source import TOO_DEEP, Span, error

Json = dict[str, Any]
MAX_SHIFT_WIDTH = 8  # the largest width in bits of a computed shift amount
DEEPEST = 200  # the deepest nesting of operators: writers and readers of the JSON recurse, too

_COMPUTED_UNION = (
    "BMv2 cannot find a header union in a stack by a computed index",
    "test the index, and write a number: if (i == 0) { ... hdr.s[0] ... }",
)
_PLAIN = ("==", "!=", "<", "<=", ">", ">=", "&", "|", "^")


def hexadecimal(value: int, width: int = 0) -> str:
    """Format a number for BMv2, padded to the number of bytes that `width` bits need."""
    digits = f"{abs(value):0{(width + 7) // 8 * 2}x}"
    return f"{'-' if value < 0 else ''}0x{digits}"


def source_info(span: Span) -> Json:
    """Return a place in the source, as the JSON describes it."""
    return {
        "filename": span.file.path,
        "line": span.line,
        "column": span.column,
        "source_fragment": span.fragment(),
    }


def operation(op: str, left: Json | None, right: Json | None, **more: Json) -> Json:
    """Return the JSON of an operator with its operands."""
    return {"type": "expression", "value": {"op": op, "left": left, "right": right, **more}}


def literal(value: int, width: int = 0) -> Json:
    """Return the JSON of a number."""
    return {"type": "hexstr", "value": hexadecimal(value, width)}


class ExpressionWriter:
    """Writer of expressions.

    `data` maps the parameters of actions to their positions in the action's data. What the target does not support is
    raised as CompileError.
    """

    def __init__(self, layout: Layout, standard_metadata: ir.Variable, data: dict[ir.Variable, int]) -> None:
        self.layout = layout
        self.standard_metadata = standard_metadata
        self.data = data
        self._depth = 0

    # Values

    def argument(self, e: ir.Expr) -> Json:
        """Return a value as a primitive's argument: a bool as 0 or 1, a computed value wrapped once more."""
        if isinstance(e.type, types.Bool):
            found = self.left(e) if _is_left(e) else operation("b2d", None, self.value(e))
        else:
            found = self.value(e)
        match found["type"]:
            case "local":  # BMv2 has this name for action data only inside expressions
                return {"type": "runtime_data", "value": found["value"]}
            case "expression" | "stack_field":
                return {"type": "expression", "value": found}
        return found

    def value(self, e: ir.Expr) -> Json:
        """Return a value inside an expression."""
        if self._depth == DEEPEST:
            raise error(e.span, *TOO_DEEP)
        self._depth += 1
        try:
            return self._value(e)
        finally:
            self._depth -= 1

    def _value(self, e: ir.Expr) -> Json:
        match e:
            case ir.Constant(type=types.Bool(), value=number):
                return {"type": "bool", "value": bool(number)}
            case ir.Constant(type=of, value=number):
                return literal(number, types.width(of) or 0)
            case ir.Text(value=text):
                return {"type": "string", "value": text}
            case ir.Ref(variable=variable) if variable in self.data:
                local = {"type": "local", "value": self.data[variable]}
                return self.bring_back(local, e.type) if _signed(e.type) else local
            case ir.Ref() | ir.Field() | ir.Element() | ir.StackPart():
                found = self.left(e)
                return operation("d2b", None, found) if isinstance(e.type, types.Bool) else found
            case ir.IsValid(header=header):
                return self._is_valid(header)
            case ir.Binary():
                return self.binary(e)
            case ir.Unary(type=of, op=op, operand=operand):
                inner = self.value(operand)
                if op == "!":
                    return operation("not", None, inner)
                if op == "~":
                    return self.bring_back(operation("~", None, inner), of)
                return self.bring_back(operation("-", literal(0, types.width(of) or 0), inner), of)
            case ir.Cast():
                return self.cast(e)
            case ir.Slice(type=of, base=base, low=low):
                inner = self.value(base)
                return self.bring_back(operation(">>", inner, literal(low)) if low else inner, of)
            case ir.Mux(type=of, condition=condition, chosen=chosen, other=other):
                test, yes, no = self.value(condition), self.value(chosen), self.value(other)
                if isinstance(of, types.Bool):
                    return operation(
                        "or", operation("and", test, yes), operation("and", operation("not", None, test), no)
                    )
                return operation("?", yes, no, cond=test)
            case ir.Lookahead(type=of):
                return {"type": "lookahead", "value": [0, types.width(of)]}
        raise error(e.span, "this expression is not supported here")

    def bring_back(self, value: Json, of: types.Type) -> Json:
        """Reduce a computed value to the range of its type."""
        bits = types.scalar(of)
        if not isinstance(bits, types.Bits):
            return value
        if bits.signed:
            return operation("two_comp_mod", value, literal(bits.width))
        return operation("&", value, literal((1 << bits.width) - 1, bits.width))

    def binary(self, e: ir.Binary) -> Json:
        """Return a binary operator with its operands."""
        op, of = e.op, e.type
        if is_zero(e):
            return self.value(e.left)
        if (
            op in ("<<", ">>")
            and (types.width(e.right.type) or 0) > MAX_SHIFT_WIDTH
            and not isinstance(e.right, ir.Constant)
        ):
            hint = f"cast the amount: (bit<{MAX_SHIFT_WIDTH}>)n"
            raise error(
                e.span, f"the amount of a shift has at most {MAX_SHIFT_WIDTH} bits on this target", hint
            )
        left, right = self.value(e.left), self.value(e.right)
        if op in ("&&", "||"):
            return operation("and" if op == "&&" else "or", left, right)
        if isinstance(e.left.type, types.Bool):
            return operation(op, operation("b2d", None, left), operation("b2d", None, right))
        if op in _PLAIN:
            return operation(op, left, right)
        if op in ("|+|", "|-|"):
            width = literal(types.width(of) or 0)
            return operation("sat_cast" if _signed(of) else "usat_cast", operation(op[1], left, right), width)
        if op == "++":
            return self._concat(e, left, right)
        return self.bring_back(operation(op, left, right), of)

    def _concat(self, e: ir.Binary, left: Json, right: Json) -> Json:
        width = types.width(e.right.type) or 0
        if _signed(e.right.type):
            right = self.bring_back(right, types.Bits(width))
        joined = operation("|", operation("<<", left, literal(width)), right)
        return self.bring_back(joined, e.type) if _signed(e.type) else joined

    def cast(self, e: ir.Cast) -> Json:
        """Return a cast."""
        source, target = types.scalar(e.operand.type), types.scalar(e.type)
        inner = self.value(e.operand)
        match source, target:
            case types.Bool(), types.Bits(width=width):
                return operation("?", literal(1, width), literal(0, width), cond=inner)
            case types.Bits(width=width), types.Bool():
                return operation("!=", inner, literal(0, width))
            case types.Bits(), types.Bits():
                holds = (
                    target.width >= source.width
                    if source.signed == target.signed
                    else target.width > source.width
                )
                return (
                    inner
                    if holds and (target.signed or not source.signed)
                    else self.bring_back(inner, target)
                )
        return inner

    def _is_valid(self, header: ir.Expr) -> Json:
        inner = self.left(header)
        if isinstance(header.type, types.Union):
            return operation("valid_union", None, inner)
        if inner["type"] != "header":
            return operation("valid", None, inner)
        return operation("d2b", None, {"type": "field", "value": [inner["value"], "$valid$"]})

    def _header_field(self, header: ir.Expr, names: tuple[str, ...]) -> Json:
        """Return a field of a header."""
        assert isinstance(header.type, types.Header)
        fields = flat_fields(header.type)
        position = [f.path for f in fields].index(names)
        name = fields[position].name
        if isinstance(header, ir.StackPart) and header.part == "last":
            return {"type": "stack_field", "value": [self.left(header.base)["value"], name]}
        found = self.left(header)
        if found["type"] == "header":
            return {"type": "field", "value": [found["value"], name]}
        return {"type": "expression", "value": {"op": "access_field", "left": found, "right": position}}

    # Left values

    def left(self, e: ir.Expr) -> Json:
        """Return a left value: the field that holds a scalar, or else the header, stack or union."""
        of = e.type
        match e:
            case ir.Ref(variable=variable) if variable is self.standard_metadata:
                return {"type": "header", "value": STANDARD_METADATA}
            case ir.Field(base=ir.Ref(variable=variable), name=name) if variable is self.standard_metadata:
                return {"type": "field", "value": [STANDARD_METADATA, name]}
            case ir.StackPart(base=base, part="lastIndex"):
                return operation("last_stack_index", None, self.left(base))
            case ir.StackPart(base=base, part="last"):
                last = operation("last_stack_index", None, self.left(base))
                return operation("dereference_header_stack", self.left(base), last)
            case ir.StackPart():
                raise error(
                    e.span,
                    f"'{e.part}' of a stack is only supported in a parser, to extract or to read a field",
                )
            case ir.Element(base=base, index=index) if not isinstance(index, ir.Constant):
                if isinstance(of, types.Union):
                    raise error(e.span, *_COMPUTED_UNION)
                return operation("dereference_header_stack", self.left(base), self.value(index))
            case ir.Field():
                header, names = header_of(e)
                if header is not None:
                    return self._header_field(header, names)
                if isinstance(e.base.type, types.Union) and not is_fixed(e):
                    raise error(e.span, *_COMPUTED_UNION)
        where = path(e)
        if of == types.Bits(1, signed=True):
            raise error(e.span, "BMv2 has no fields of type int<1>", "use bit<1>, or int<2>")
        if where is None:
            raise error(e.span, "this expression is not supported here")
        if isinstance(of, types.Struct | types.Tuple):
            raise error(e.span, f"a whole struct ({of}) is not supported here", "name its fields")
        name = self.layout.places[where]
        match of:
            case types.Header():
                return {"type": "header", "value": name}
            case types.Stack(element=element):
                kind = "header_union_stack" if isinstance(element, types.Union) else "header_stack"
                return {"type": kind, "value": name}
            case types.Union():
                return {"type": "header_union", "value": name}
            case types.Varbit():
                return {"type": "field", "value": [name, "field"]}
        return {"type": "field", "value": [SCALARS, name]}


def _signed(of: types.Type) -> bool:
    bits = types.scalar(of)
    return isinstance(bits, types.Bits) and bits.signed


def _is_left(e: ir.Expr) -> bool:
    return isinstance(e, ir.Ref | ir.Field | ir.Element)
