"""The typed program, made by the checker and rewritten by the later phases; immutable.

Names are resolved to the objects they refer to, every expression has its type, conversions are explicit, and constants
are folded.
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
    """Local variable or parameter; `direction` is `in`, `out`, `inout` or empty."""

    name: str
    type: types.Type
    span: Span
    direction: str = ""
    annotations: Annotations = ()
    parameter: bool = False
    constructor: bool = False  # a parameter of a constructor: known after instantiation
    default: Constant | Text | Aggregate | None = None  # the default value of an optional parameter

    @property
    def made(self) -> bool:
        """Return whether the compiler created it: programs cannot write such a name."""
        return "$" in self.name


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """Object made by a constructor: an extern, or a nested parser or control."""

    name: str
    type: types.Type
    arguments: tuple[Expr, ...]
    span: Span
    annotations: Annotations = ()
    block: Block | None = None  # the parser or control that it instantiates


@dataclass(frozen=True, slots=True, eq=False)
class Action:
    """Action; `hidden` if the compiler created it, `top_level` if it is declared outside of all controls."""

    name: str
    parameters: tuple[Variable, ...]
    body: tuple[Stmt, ...]
    span: Span
    annotations: Annotations = ()
    hidden: bool = False
    top_level: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """Function with a body."""

    name: str
    parameters: tuple[Variable, ...]
    result: types.Type
    body: tuple[Stmt, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class KeyElement:
    """Element of a table's key; `name` is its name in the control plane."""

    expr: Expr
    match_kind: str
    name: str
    span: Span
    annotations: Annotations = ()


@dataclass(frozen=True, slots=True)
class ActionCall:
    """Action with its arguments; in a table's list only those for parameters with a direction."""

    action: Action
    arguments: tuple[Expr, ...]
    span: Span
    annotations: Annotations = ()


@dataclass(frozen=True, slots=True)
class KeyValue:
    """Value that an entry or a select case requires of one key: value & mask, a range, or a value set."""

    value: int = 0
    mask: int | None = None  # None: all bits
    high: int | None = None  # the upper end of a range; `value` is the lower one
    value_set: ValueSet | None = None

    @property
    def anything(self) -> bool:
        """Return whether every value matches."""
        return self.mask == 0


@dataclass(frozen=True, slots=True)
class Entry:
    """Entry of a table.

    If several match, the one with the smallest `priority` wins, as in the JSON. In the control plane it has
    `control_priority`, and the largest wins. `is_const` is True for an entry that is `const` itself. The table's
    entries may be const besides.
    """

    keys: tuple[KeyValue, ...]
    call: ActionCall
    span: Span
    priority: int
    control_priority: int
    is_const: bool


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Table. `size` is None if the program gives none.

    `counters`, `meters` and `implementation` are the extern instances that its properties name.
    """

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
    """Value set of a parser."""

    name: str
    type: types.Type
    size: int
    span: Span
    annotations: Annotations = ()


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Parser state. If `subjects` is empty, `cases` holds one case that always matches."""

    name: str
    body: tuple[Stmt, ...]
    subjects: tuple[Expr, ...]
    cases: tuple[SelectCase, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class SelectCase:
    """Case of a select; `target` is the name of the next state, `accept` or `reject`."""

    keys: tuple[KeyValue, ...]
    target: str
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Parser or control, with its parameters and declarations."""

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
        """Return the instances it declares."""
        return tuple(d for d in self.declared if isinstance(d, Instance))

    @property
    def actions(self) -> tuple[Action, ...]:
        """Return the actions it declares."""
        return tuple(d for d in self.declared if isinstance(d, Action))

    @property
    def tables(self) -> tuple[Table, ...]:
        """Return the tables it declares."""
        return tuple(d for d in self.declared if isinstance(d, Table))


Declared = Instance | Action | Table


# Expressions


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """Expression, with its type and its place in the source."""

    type: types.Type
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Expression):
    """Number; a bool, an error or an enum member is represented by its number."""

    value: int
    base: int = 10


@dataclass(frozen=True, slots=True, eq=False)
class Text(Expression):
    """String."""

    value: str


@dataclass(frozen=True, slots=True, eq=False)
class Ref(Expression):
    """Value of a variable or parameter."""

    variable: Variable


@dataclass(frozen=True, slots=True, eq=False)
class Object(Expression):
    """Instance, or a parameter that stands for one, used as an argument."""

    object: Instance | Variable


@dataclass(frozen=True, slots=True, eq=False)
class Field(Expression):
    """Field of a header, struct or header union."""

    base: Expr
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Element(Expression):
    """Element of a header stack."""

    base: Expr
    index: Expr


@dataclass(frozen=True, slots=True, eq=False)
class StackPart(Expression):
    """Property of a header stack; `part` is `next`, `last` or `lastIndex`."""

    base: Expr
    part: str


@dataclass(frozen=True, slots=True, eq=False)
class Slice(Expression):
    """Slice of bits, from `high` down to `low`, both included."""

    base: Expr
    high: int
    low: int


@dataclass(frozen=True, slots=True, eq=False)
class Unary(Expression):
    """Unary operator: `-`, `~` or `!`."""

    op: str
    operand: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Binary(Expression):
    """Binary operator. Both operands have the same type, except for shifts and `++`."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Mux(Expression):
    """Conditional expression `condition ? chosen : other`."""

    condition: Expr
    chosen: Expr
    other: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Cast(Expression):
    """Conversion to the expression's type."""

    operand: Expr


@dataclass(frozen=True, slots=True, eq=False)
class IsValid(Expression):
    """Validity test `header.isValid()`."""

    header: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Lookahead(Expression):
    """Lookahead `packet.lookahead<T>()`."""


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate(Expression):
    """Aggregate `{ a, b }`: a tuple, or the fields of the struct or header that it creates, in order."""

    elements: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Invalid(Expression):
    """Invalid header."""


@dataclass(frozen=True, slots=True, eq=False)
class Call(Expression):
    """Function call used as a value."""

    function: Function
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TableHit(Expression):
    """Hit test `table.apply().hit`."""

    table: Table


Expr = (
    Constant | Text | Ref | Object | Field | Element | StackPart | Slice | Unary | Binary | Mux | Cast | IsValid
    | Lookahead | Aggregate | Invalid | Call | TableHit
)  # fmt: skip


# Statements


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """Statement, with its place in the source."""

    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class Declare(Statement):
    """Declaration of a variable, with or without an initial value."""

    variable: Variable
    initial: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class Assign(Statement):
    """Assignment `target = value`."""

    target: Expr
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class If(Statement):
    """Conditional `if (condition) chosen else other`."""

    condition: Expr
    chosen: tuple[Stmt, ...]
    other: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Scope(Statement):
    """Body that a Return inside it (but in no inner Scope) leaves."""

    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Return(Statement):
    """Return from the Scope, in a function with its value."""

    value: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class Exit(Statement):
    """Exit from the pipeline."""


@dataclass(frozen=True, slots=True, eq=False)
class Loop(Statement):
    """Loop of the body, then the update, until a Break (in no inner Loop) leaves it."""

    body: tuple[Stmt, ...]
    update: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Break(Statement):
    """Jump out of the Loop."""


@dataclass(frozen=True, slots=True, eq=False)
class Continue(Statement):
    """Jump to the Loop's update."""


@dataclass(frozen=True, slots=True, eq=False)
class ApplyTable(Statement):
    """Application of a table; `cases` continues according to the action that ran, where None is `default`."""

    table: Table
    cases: tuple[tuple[tuple[Action | None, ...], tuple[Stmt, ...]], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class SwitchValue(Statement):
    """Switch over a value, where the label None is `default`."""

    subject: Expr
    cases: tuple[tuple[tuple[Expr | None, ...], tuple[Stmt, ...]], ...]


@dataclass(frozen=True, slots=True, eq=False)
class CallAction(Statement):
    """Call of an action from a control or from another action."""

    action: Action
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CallFunction(Statement):
    """Call of a function for its side effects."""

    call: Call


@dataclass(frozen=True, slots=True, eq=False)
class ApplyBlock(Statement):
    """Application of a nested control or parser."""

    instance: Instance | Variable
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CallExtern(Statement):
    """Call of an extern function (`instance` is None) or of an extern object's method.

    packet_in and packet_out are parameters of the architecture: their methods are named `packet_in.extract` and so on.
    """

    name: str
    instance: Instance | Variable | None
    arguments: tuple[Expr, ...]
    directions: tuple[str, ...]
    type_arguments: tuple[types.Type, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class CallHeader(Statement):
    """Call of `setValid` or `setInvalid` of a header, or of `push_front` or `pop_front` of a stack (with `count`)."""

    method: str
    header: Expr
    count: int = 0


Stmt = (
    Declare | Assign | If | Scope | Return | Exit | Loop | Break | Continue | ApplyTable | SwitchValue | CallAction
    | CallFunction | ApplyBlock | CallExtern | CallHeader
)  # fmt: skip


# Programs


class Role(Enum):
    """Parser or control of the architecture; the value is the parameter's name in the package V1Switch."""

    PARSER = "p"
    VERIFY_CHECKSUM = "vr"
    INGRESS = "ig"
    EGRESS = "eg"
    COMPUTE_CHECKSUM = "ck"
    DEPARSER = "dep"


PIPELINES = (Role.INGRESS, Role.EGRESS)


@dataclass(frozen=True, slots=True)
class Program:
    """Checked program: the six blocks of the package `main`, and the declarations that they share."""

    blocks: dict[Role, Instance]
    instances: tuple[Instance, ...]  # declared at the top level
    errors: dict[str, int]
    enums: tuple[types.Enum, ...]
    controller_headers: tuple[types.Header, ...]
    annotations: Annotations = ()  # of main
    architecture: str = "v1model"


class Roots(NamedTuple):
    """Parameters that the architecture passes from block to block, with their names in the JSON."""

    hdr: Variable
    meta: Variable
    standard_metadata: Variable


@dataclass(frozen=True, slots=True)
class FlatProgram:
    """Program after inlining; `source` is the checked program."""

    blocks: dict[Role, Block]
    roots: Roots
    instances: tuple[Instance, ...]  # declared at the top level
    source: Program
