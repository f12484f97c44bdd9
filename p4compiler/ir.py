"""The typed program that the checker makes, and of which the later phases make others: nothing in it changes.

Names are resolved to the objects they mean, every expression has its type, conversions are explicit, constants folded.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from fanin.p4compiler import types
from fanin.p4compiler.nodes import Annotations
from fanin.p4compiler.source import Span

# Things with a name: compared by identity


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """A local variable or a parameter; `direction` is `in`, `out`, `inout` or empty (parameters)."""

    name: str
    type: types.Type
    span: Span
    direction: str = ""
    annotations: Annotations = ()
    parameter: bool = False
    constructor: bool = False  # a parameter of a constructor: known once everything is instantiated
    default: Constant | Text | Aggregate | None = None  # of a parameter that may be left out

    @property
    def made(self) -> bool:
        """Whether the compiler made it: no program can write such a name."""
        return "$" in self.name


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """An object made by a constructor: an extern, or a parser or control inside another one."""

    name: str
    type: types.Type
    arguments: tuple[Expr, ...]
    span: Span
    annotations: Annotations = ()
    block: Block | None = None  # of a parser or control: what it is an instance of


@dataclass(frozen=True, slots=True, eq=False)
class Action:
    """An action; `hidden` if the compiler made it, `top_level` if no control declares it."""

    name: str
    parameters: tuple[Variable, ...]
    body: tuple[Stmt, ...]
    span: Span
    annotations: Annotations = ()
    hidden: bool = False
    top_level: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function with a body."""

    name: str
    parameters: tuple[Variable, ...]
    result: types.Type
    body: tuple[Stmt, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class KeyElement:
    """One element of a table's key; `name` is what the control plane calls it."""

    expr: Expr
    match_kind: str
    name: str
    span: Span
    annotations: Annotations = ()


@dataclass(frozen=True, slots=True)
class ActionCall:
    """An action with its arguments; in a table's list only those of parameters with a direction."""

    action: Action
    arguments: tuple[Expr, ...]
    span: Span
    annotations: Annotations = ()


@dataclass(frozen=True, slots=True)
class KeyValue:
    """What an entry or a select case wants of one key: value & mask, a range (low, high), or a value set."""

    value: int = 0
    mask: int | None = None  # None: all bits
    high: int | None = None  # of a range; `value` is then its lower end
    value_set: ValueSet | None = None

    @property
    def anything(self) -> bool:
        """Whether every value matches."""
        return self.mask == 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a table's `entries`; of those that match the one with the smallest priority wins."""

    keys: tuple[KeyValue, ...]
    call: ActionCall
    span: Span
    priority: int


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table; `size` None: not given; `counters`, `meters`, `implementation`: the instances its properties name."""

    name: str
    key: tuple[KeyElement, ...]
    actions: tuple[ActionCall, ...]
    default: ActionCall
    default_constant: bool
    entries: tuple[Entry, ...] | None
    span: Span
    annotations: Annotations = ()
    size: Expr | None = None
    counters: Instance | None = None
    meters: Instance | None = None
    implementation: Instance | None = None
    entries_constant: bool = True
    support_timeout: bool = False
    hidden: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ValueSet:
    """A parser's value set."""

    name: str
    type: types.Type
    size: int
    span: Span
    annotations: Annotations = ()


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A parser state; `subjects` empty: `cases` is one case that always matches."""

    name: str
    body: tuple[Stmt, ...]
    subjects: tuple[Expr, ...]
    cases: tuple[SelectCase, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class SelectCase:
    """Where a parser goes if the subjects match; `target` is a state's name, `accept` or `reject`."""

    keys: tuple[KeyValue, ...]
    target: str
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A parser or control: its parameters and everything declared in it."""

    kind: str
    name: str
    parameters: tuple[Variable, ...]
    constructor: tuple[Variable, ...]
    span: Span
    annotations: Annotations = ()
    declared: tuple[Declared, ...] = ()
    value_sets: tuple[ValueSet, ...] = ()
    prologue: tuple[Stmt, ...] = ()  # declarations of its variables
    body: tuple[Stmt, ...] = ()  # of a control
    states: tuple[State, ...] = ()  # of a parser

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The objects declared in it."""
        return tuple(d for d in self.declared if isinstance(d, Instance))

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions declared in it."""
        return tuple(d for d in self.declared if isinstance(d, Action))

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables declared in it."""
        return tuple(d for d in self.declared if isinstance(d, Table))


Declared = Instance | Action | Table


# Expressions


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """Any expression: its type and where it stands."""

    type: types.Type
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Expression):
    """A number, or (by their numbers) a bool, an error or an enum member."""

    value: int
    base: int = 10


@dataclass(frozen=True, slots=True, eq=False)
class Text(Expression):
    """A string."""

    value: str


@dataclass(frozen=True, slots=True, eq=False)
class Ref(Expression):
    """The value of a variable or parameter."""

    variable: Variable


@dataclass(frozen=True, slots=True, eq=False)
class Object(Expression):
    """An object, or a parameter that stands for one, as an argument."""

    object: Instance | Variable


@dataclass(frozen=True, slots=True, eq=False)
class Field(Expression):
    """A field of a header, struct or header union."""

    base: Expr
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Element(Expression):
    """An element of a header stack."""

    base: Expr
    index: Expr


@dataclass(frozen=True, slots=True, eq=False)
class StackPart(Expression):
    """`next`, `last` or `lastIndex` of a header stack, as `part` says."""

    base: Expr
    part: str


@dataclass(frozen=True, slots=True, eq=False)
class Slice(Expression):
    """Bits high to low, both included."""

    base: Expr
    high: int
    low: int


@dataclass(frozen=True, slots=True, eq=False)
class Unary(Expression):
    """`-`, `~` or `!`."""

    op: str
    operand: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Binary(Expression):
    """Two operands of one type (but for shifts and `++`) around an operator."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Mux(Expression):
    """`condition ? chosen : other`."""

    condition: Expr
    chosen: Expr
    other: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Cast(Expression):
    """A conversion to the expression's type."""

    operand: Expr


@dataclass(frozen=True, slots=True, eq=False)
class IsValid(Expression):
    """`header.isValid()`."""

    header: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Lookahead(Expression):
    """`packet.lookahead<T>()`."""


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate(Expression):
    """`{ a, b }` as a tuple, or in the order of the fields of the struct or header that it makes."""

    elements: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Invalid(Expression):
    """An invalid header."""


@dataclass(frozen=True, slots=True, eq=False)
class Call(Expression):
    """A function's result."""

    function: Function
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TableHit(Expression):
    """`table.apply().hit`."""

    table: Table


Expr = (
    Constant | Text | Ref | Object | Field | Element | StackPart | Slice | Unary | Binary | Mux | Cast | IsValid
    | Lookahead | Aggregate | Invalid | Call | TableHit
)  # fmt: skip


# Statements


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """Any statement: where it stands."""

    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class Declare(Statement):
    """A variable comes to life, with a value or without."""

    variable: Variable
    initial: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class Assign(Statement):
    """`target = value`."""

    target: Expr
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class If(Statement):
    """`if (condition) chosen else other`."""

    condition: Expr
    chosen: tuple[Stmt, ...]
    other: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Scope(Statement):
    """A body which a Return inside it (and in no inner Scope) leaves."""

    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Return(Statement):
    """Leave the Scope; in a function with its value."""

    value: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class Exit(Statement):
    """Leave the pipeline."""


@dataclass(frozen=True, slots=True, eq=False)
class Loop(Statement):
    """The body, then the update, again and again, until a Break (in no inner Loop) leaves it."""

    body: tuple[Stmt, ...]
    update: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Break(Statement):
    """Leave the Loop."""


@dataclass(frozen=True, slots=True, eq=False)
class Continue(Statement):
    """Go on with the Loop's update."""


@dataclass(frozen=True, slots=True, eq=False)
class ApplyTable(Statement):
    """Apply a table and go on according to the action that ran: `cases` by action, None is `default`."""

    table: Table
    cases: tuple[tuple[tuple[Action | None, ...], tuple[Stmt, ...]], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class SwitchValue(Statement):
    """A switch over a value: labels None is `default`."""

    subject: Expr
    cases: tuple[tuple[tuple[Expr | None, ...], tuple[Stmt, ...]], ...]


@dataclass(frozen=True, slots=True, eq=False)
class CallAction(Statement):
    """An action called from a control or from another action."""

    action: Action
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CallFunction(Statement):
    """A function called for its effect."""

    call: Call


@dataclass(frozen=True, slots=True, eq=False)
class ApplyBlock(Statement):
    """A control or parser inside another one is applied."""

    instance: Instance | Variable
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CallExtern(Statement):
    """An extern function (`instance` None) or an extern object's method.

    packet_in and packet_out are parameters of the architecture: their methods have the name `packet_in.extract` etc.
    """

    name: str
    instance: Instance | Variable | None
    arguments: tuple[Expr, ...]
    directions: tuple[str, ...]
    type_arguments: tuple[types.Type, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class CallHeader(Statement):
    """`setValid`, `setInvalid` of a header, `push_front`, `pop_front` of a stack (with `count`), as `method` says."""

    method: str
    header: Expr
    count: int = 0


Stmt = (
    Declare | Assign | If | Scope | Return | Exit | Loop | Break | Continue | ApplyTable | SwitchValue | CallAction
    | CallFunction | ApplyBlock | CallExtern | CallHeader
)  # fmt: skip


# Programs


class Role(Enum):
    """A parser or control of the architecture, by the parameter of the package V1Switch that it is given for."""

    PARSER = "p"
    VERIFY_CHECKSUM = "vr"
    INGRESS = "ig"
    EGRESS = "eg"
    COMPUTE_CHECKSUM = "ck"
    DEPARSER = "dep"


PIPELINES = (Role.INGRESS, Role.EGRESS)


@dataclass(frozen=True, slots=True)
class Program:
    """A checked program: the six blocks of the package `main`, and what the whole program shares."""

    blocks: dict[Role, Instance]
    instances: tuple[Instance, ...]  # objects of the top level
    errors: dict[str, int]
    enums: tuple[types.Enum, ...]
    controller_headers: tuple[types.Header, ...]
    annotations: Annotations = ()  # of main


class Roots(NamedTuple):
    """What the architecture hands from block to block, by the names that it has in the JSON."""

    hdr: Variable
    meta: Variable
    standard_metadata: Variable


@dataclass(frozen=True, slots=True)
class FlatProgram:
    """The program once everything is inlined; `source` is the one that was checked."""

    blocks: dict[Role, Block]
    roots: Roots
    instances: tuple[Instance, ...]  # objects of the top level
    source: Program
