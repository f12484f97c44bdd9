"""Expressions of a program: what actions, conditions, keys and parsers compute.

Data and boolean expressions share one family: the operator says which it is.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a header or metadata instance."""

    header: str
    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """An integer literal, of any size and sign."""

    value: int


@dataclass(frozen=True, slots=True)
class Boolean:
    """A literal truth value."""

    value: bool


@dataclass(frozen=True, slots=True)
class Parameter:
    """The action's parameter at `index` (its run-time data)."""

    index: int


@dataclass(frozen=True, slots=True)
class HeaderName:
    """A header instance, as an operand."""

    name: str


@dataclass(frozen=True, slots=True)
class StackElement:
    """The element of a header stack at an index computed at run time; of a stack of unions, that `member` of it."""

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
    """A field of the last valid element of a header stack; of a stack of unions, of that `member` of it."""

    stack: str
    name: str
    member: int = 0


@dataclass(frozen=True, slots=True)
class StackName:
    """A header stack, as an operand."""

    name: str


@dataclass(frozen=True, slots=True)
class UnionName:
    """A header union, as an operand."""

    name: str


@dataclass(frozen=True, slots=True)
class Lookahead:
    """`width` bits of the packet, `offset` bits behind the parser's position."""

    offset: int
    width: int


@dataclass(frozen=True, slots=True)
class RegisterValue:
    """The cell of a register array at `index`."""

    register: str
    index: Expression


@dataclass(frozen=True, slots=True)
class Unary:
    """`not`, `~`, `d2b`, `b2d`, `valid`, `valid_union`, `last_stack_index` or `size_stack` of its operand."""

    op: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic, comparison, logic, or one of `two_comp_mod`, `sat_cast`, `usat_cast` (right: a width)."""

    op: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Conditional:
    """`condition ? then : otherwise`."""

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
