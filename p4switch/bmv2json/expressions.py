"""Expressions of a program, as actions, conditions, keys and parsers use them.

Data and boolean expressions share one family: the operator determines the kind.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Field:
    """Field of a header or metadata instance."""

    header: str
    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """Integer literal, of any size and sign."""

    value: int


@dataclass(frozen=True, slots=True)
class Boolean:
    """Boolean literal."""

    value: bool


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter number `index` of the enclosing action, whose value comes from the table entry."""

    index: int


@dataclass(frozen=True, slots=True)
class HeaderName:
    """Header instance, as an operand."""

    name: str


@dataclass(frozen=True, slots=True)
class StackElement:
    """Element of a header stack at an index computed at run time; in a stack of unions the union's `member`."""

    stack: str
    index: Expression
    member: int = 0


@dataclass(frozen=True, slots=True)
class ElementField:
    """Field number `offset` of a header stack's element."""

    element: StackElement
    offset: int


@dataclass(frozen=True, slots=True)
class LastField:
    """Field of the last valid element of a header stack; in a stack of unions of the union's `member`."""

    stack: str
    name: str
    member: int = 0


@dataclass(frozen=True, slots=True)
class StackName:
    """Header stack, as an operand."""

    name: str


@dataclass(frozen=True, slots=True)
class UnionName:
    """Header union, as an operand."""

    name: str


@dataclass(frozen=True, slots=True)
class Lookahead:
    """Lookahead of `width` bits of the packet, `offset` bits after the parser's position."""

    offset: int
    width: int


@dataclass(frozen=True, slots=True)
class RegisterValue:
    """Cell of a register array at `index`."""

    register: str
    index: Expression


@dataclass(frozen=True, slots=True)
class Unary:
    """Unary `not`, `~`, `d2b`, `b2d`, `valid`, `valid_union`, `last_stack_index` or `size_stack`."""

    op: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    """Binary arithmetic, comparison or logic, or `two_comp_mod`, `sat_cast`, `usat_cast` (right: a width)."""

    op: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Conditional:
    """Conditional expression `condition ? then : otherwise`."""

    condition: Expression
    then: Expression
    otherwise: Expression


Expression = (
    Field
    | Constant
    | Boolean
    | Parameter
    | HeaderName
    | StackElement
    | ElementField
    | LastField
    | StackName
    | UnionName
    | Lookahead
    | RegisterValue
    | Unary
    | Binary
    | Conditional
)
