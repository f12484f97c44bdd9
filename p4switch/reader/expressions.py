"""Reader for expressions, primitive calls and actions."""

from __future__ import annotations

from typing import Any

from fanin.p4switch.bmv2json.expressions import (
    Binary,
    Boolean,
    Conditional,
    Constant,
    ElementField,
    Expression,
    Field,
    HeaderName,
    LastField,
    Lookahead,
    Parameter,
    RegisterValue,
    StackElement,
    StackName,
    Unary,
    UnionName,
)
from fanin.p4switch.bmv2json.program import (
    Action,
    ActionParameter,
    Argument,
    ExpressionList,
    Named,
    Primitive,
    ProgramError,
)
from fanin.p4switch.primitives.registry import find
from fanin.p4switch.reader.headers import Headers
from fanin.p4switch.reader.values import (
    MAX_WIDTH,
    Json,
    bit_width,
    checked_name,
    count,
    integer,
    message,
    source,
    text,
)

UNARY = {"not", "~", "-", "d2b", "b2d", "valid", "valid_union", "last_stack_index", "size_stack"}
CUTTING = {"two_comp_mod", "sat_cast", "usat_cast"}  # the operators that reduce a value to a number of bits
BINARY = {
    *("+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^", "==", "!=", "<", "<=", ">", ">=", "and", "or"),
    *CUTTING,
}
NAMED = {"calculation", "counter_array", "register_array", "meter_array", "extern"}


class Expressions:
    """Reader for expressions, primitives and actions; `where` names the element in errors.

    Malformed or unsupported items are raised as ProgramError.
    """

    def __init__(self, names: Headers) -> None:
        self.names = names

    def expression(self, item: Any, where: str) -> Expression:
        """Read an operand or operation."""
        if not isinstance(item, dict) or "type" not in item:
            raise ProgramError(f"{where}: not an expression: {item!r}")
        kind: str = item["type"]
        value: Any = item.get("value")
        match kind:  # the frequent ones first
            case "expression":
                return self.operation(value, where) if "op" in value else self.expression(value, where)
            case "field":
                reference = self.names.field(value)
                if reference.name == "$valid$":
                    return Unary("b2d", Unary("valid", HeaderName(reference.header)))
                return reference
            case "hexstr":
                return Constant(integer(value))
            case "bool":
                return Boolean(bool(value))
            case "local" | "runtime_data":
                return Parameter(count(item, "value"))
            case "header":
                return HeaderName(self.names.header(value))
            case "header_union":
                return UnionName(self.names.union(value))
            case "header_union_stack":
                return StackName(self.names.stack(value))
            case "union_stack_field":
                stack, member, last = value
                return LastField(
                    self.names.stack(stack),
                    checked_name(last, f"{where}: a field"),
                    self.names.member(stack, member),
                )
            case "header_stack":
                return StackName(self.names.stack(value))
            case "stack_field":
                return LastField(self.names.stack(value[0]), checked_name(value[1], f"{where}: a field"))
            case "lookahead":
                return self._lookahead(value, where)
            case "register":
                return RegisterValue(
                    checked_name(value[0], f"{where}: a register"), self.expression(value[1], where)
                )
        raise ProgramError(f"{where}: operand type {kind} is not supported")

    def _lookahead(self, value: Any, where: str) -> Lookahead:
        offset, bits = value
        if (
            type(offset) is not int
            or type(bits) is not int
            or not (0 <= offset < 1 << 20 and 0 < bits <= MAX_WIDTH)
        ):
            raise ProgramError(f"{where}: a lookahead of {bits!r} bits at {offset!r}")
        return Lookahead(offset, bits)

    def operation(self, item: Json, where: str) -> Expression:
        """Read the value of an item of type `expression`."""
        op: str = item["op"]
        left: Any = item.get("left")
        right: Any = item.get("right")
        if op == "?":
            return Conditional(
                self.expression(item["cond"], where),
                self.expression(left, where),
                self.expression(right, where),
            )
        if op in ("dereference_header_stack", "dereference_union_stack"):
            return StackElement(self.names.stack(left["value"]), self.expression(right, where))
        if op == "access_union_header":
            union = self.expression(left, where)
            if isinstance(union, UnionName):
                return HeaderName(self.names.unions[union.name].headers[right])
            if not isinstance(union, StackElement):
                raise ProgramError(f"{where}: access_union_header needs a header union")
            return StackElement(union.stack, union.index, self.names.member(union.stack, right))
        if op == "access_field":
            element = self.expression(left, where)
            if isinstance(element, HeaderName):
                return Field(element.name, self.names.headers[element.name].type.fields[right].name)
            if not isinstance(element, StackElement):
                raise ProgramError(f"{where}: access_field needs a header")
            stack = self.names.stacks[element.stack]
            fields = self.names.headers[stack.headers[element.member]].type.fields
            if type(right) is not int or not 0 <= right < len(fields):
                raise ProgramError(f"{where}: field {right!r} of stack {element.stack} does not exist")
            return ElementField(element, right)
        if left is None or right is None:
            if op not in UNARY:
                raise ProgramError(f"{where}: operator {op} is not supported")
            return Unary(op, self.expression(right if left is None else left, where))
        if op not in BINARY:
            raise ProgramError(f"{where}: operator {op} is not supported")
        if op in CUTTING and not (
            right.get("type") == "hexstr" and 0 < integer(right.get("value")) <= MAX_WIDTH
        ):
            raise ProgramError(f"{where}: operator {op} needs a constant of 1 to {MAX_WIDTH} bits")
        return Binary(op, self.expression(left, where), self.expression(right, where))

    def primitive(self, item: Json, where: str) -> Primitive:
        """Read a primitive call and check its arguments."""
        arguments: list[Argument] = []
        for parameter in item.get("parameters", []):
            if parameter["type"] == "string":
                arguments.append(Named("string", message(parameter["value"], where)))
            elif parameter["type"] in NAMED:
                arguments.append(Named(parameter["type"], text(parameter, "value")))
            elif parameter["type"] == "parameters_vector":
                items = tuple(self.expression(v, where) for v in parameter["value"] or ())
                arguments.append(ExpressionList(items))
            else:
                arguments.append(self.expression(parameter, where))
        kind = find(text(item, "op"), tuple(arguments), where)
        return Primitive(kind, tuple(arguments), source(item))

    def action(self, item: Json) -> Action:
        """Read an action."""
        where = f"action {item['name']}"
        return Action(
            text(item, "name"),
            count(item, "id"),
            tuple(
                ActionParameter(text(p, "name"), bit_width(p, "bitwidth"))
                for p in item.get("runtime_data", [])
            ),
            tuple(self.primitive(p, where) for p in item.get("primitives", [])),
            source(item),
        )
