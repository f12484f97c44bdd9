"""Text forms of numbers, matches and expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from types import MappingProxyType

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
from fanin.p4switch.bmv2json.program import Action, Program, Table
from fanin.p4switch.entries import EntryKey, Exact, Lpm, Match, Optional_, Range, Ternary

_MAX_TEXT = 200  # characters of a key in a message


def number_text(program: Program, field: Field | None, width: int, number: int) -> str:
    """Format a number of `width` bits. A field's number follows the conventions of its header.

    48 bits are a MAC address, and 128 bits an IPv6 address. 32 bits of an IPv4 or ARP header are an IPv4 address. 16
    bits of an Ethernet or VLAN header and all numbers over 32 bits are hexadecimal.
    """
    header = program.headers.get(field.header) if field is not None else None
    kind = header.type.name.lower() if header is not None and not header.is_metadata else ""
    if number < 0:
        return str(number)
    if width == 48:
        return number.to_bytes(6, "big").hex(":")
    if width == 128:
        return str(IPv6Address(number))
    if width == 32 and kind.startswith(("ip", "arp")):
        return str(IPv4Address(number))
    if width > 32 or (width == 16 and kind.startswith(("eth", "vlan"))):
        return f"{number:#0{2 + -(-width // 4)}x}"
    return str(number)


def parameter_field(action: Action, index: int) -> Field | None:
    """Return the field that an action assigns a parameter to, whose conventions its number follows, or None."""
    for primitive in action.primitives:
        match primitive.arguments:
            case (Field() as field, Parameter(parameter)) if primitive.op == "assign" and parameter == index:
                return field
    return None


def parse_number(text: str) -> int:
    """Parse a number: 17, 0x11, 10.1.0.1, 2001:db8::1, 02:00:00:00:00:01.

    Raises:
        ValueError: If it is not a number.
    """
    if text.count(".") == 3:
        return int(IPv4Address(text))
    if re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", text):
        return int(text.replace(":", ""), 16)
    return int(IPv6Address(text)) if ":" in text else int(text, 0)


def match_text(match: Match, text: Callable[[int], str]) -> str:
    """Format one match of an entry; `text` formats a number of its field."""
    match match:
        case Exact(value) | Optional_(int() as value):
            return text(value)
        case Lpm(value, length):
            return f"{text(value)}/{length}"
        case Ternary(value, mask):
            return f"{text(value)} &&& {mask:#x}"
        case Range(low, high):
            return f"{text(low)}..{text(high)}"
        case Optional_():
            return "any"


def entry_text(program: Program, table: Table, key: EntryKey) -> dict[str, str]:
    """Format an entry's matches, by key field."""
    return {
        field.name: match_text(match, partial(number_text, program, field.target, field.width))
        for field, match in zip(table.keys, key.match, strict=True)
    }


def key_text(matches: Mapping[str, str], priority: int) -> str:
    """Join the matches of a key for a message, shortened if they are very long. A priority of 0 is left out."""
    text = ", ".join(f"{name} = {match}" for name, match in matches.items())
    shortened = text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
    return shortened + (f" with priority {priority}" if priority else "")


def expression_text(expression: Expression, names: Mapping[Field, str] = MappingProxyType({})) -> str:
    """Format an expression of BMv2 JSON similar to P4. The source, where it is known, is better.

    Args:
        expression: The expression.
        names: What the program calls fields, where that is not the name in the JSON.
    """

    def text(part: Expression) -> str:
        return expression_text(part, names)

    match expression:
        case Field() if expression in names:
            return names[expression]
        case Field("scalars", name):  # where compilers store local variables
            return name
        case Field(header, name):
            return f"{header}.{name}"
        case Constant(value):
            return str(value)
        case Boolean(value):
            return "true" if value else "false"
        case Parameter(index):
            return f"argument {index}"
        case HeaderName(name) | StackName(name) | UnionName(name):
            return name
        case StackElement(stack, index):
            return f"{stack}[{text(index)}]"
        case ElementField(element, offset):
            return f"{text(element)}.{offset}"
        case LastField(stack, name):
            return f"{stack}.last.{name}"
        case Lookahead(offset, width):
            return f"lookahead({offset}, {width})"
        case RegisterValue(register, index):
            return f"{register}[{text(index)}]"
        case Unary("valid" | "valid_union", operand):
            return f"{text(operand)}.isValid()"
        case Unary("b2d" | "d2b", operand):
            return text(operand)
        case Unary(op, operand):
            return f"{'!' if op == 'not' else op}({text(operand)})"
        case Binary(op, left, right):
            sign = {"and": "&&", "or": "||"}.get(op, op)
            return f"({text(left)} {sign} {text(right)})"
        case Conditional(condition, then, otherwise):
            parts = map(text, (condition, then, otherwise))
            return "({} ? {} : {})".format(*parts)
