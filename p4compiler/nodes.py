"""The syntax tree: what a P4_16 program says, names not yet resolved. Every node has the span it was read from."""

from __future__ import annotations

from dataclasses import dataclass

from fanin.p4compiler.source import Span


@dataclass(frozen=True, slots=True)
class Node:
    """Anything in the tree."""

    span: Span


# Expressions


@dataclass(frozen=True, slots=True)
class Integer(Node):
    """A number literal; `width` None: arbitrary precision."""

    value: int
    width: int | None
    signed: bool
    base: int


@dataclass(frozen=True, slots=True)
class Boolean(Node):
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True, slots=True)
class String(Node):
    """A string literal, quotes removed."""

    value: str


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A name, or (`rooted`) a name after a dot: one of the top level."""

    name: str
    rooted: bool = False


@dataclass(frozen=True, slots=True)
class Member(Node):
    """`base.name`; `name_span` is the name's own place."""

    base: Expr
    name: str
    name_span: Span


@dataclass(frozen=True, slots=True)
class Index(Node):
    """`base[index]`."""

    base: Expr
    index: Expr


@dataclass(frozen=True, slots=True)
class Slice(Node):
    """`base[high:low]`."""

    base: Expr
    high: Expr
    low: Expr


@dataclass(frozen=True, slots=True)
class PlusSlice(Node):
    """`base[low +: width]`: the bits from `low` upward, which only here may be computed."""

    base: Expr
    low: Expr
    width: Expr


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """One of `- ~ ! +` before an operand."""

    op: str
    operand: Expr


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """Two operands around an operator; `&&&` and `..` (sets) too."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Ternary(Node):
    """`condition ? chosen : other`."""

    condition: Expr
    chosen: Expr
    other: Expr


@dataclass(frozen=True, slots=True)
class Cast(Node):
    """`(type)operand`."""

    type: TypeNode
    operand: Expr


@dataclass(frozen=True, slots=True)
class Argument(Node):
    """An argument of a call; `name` for `name = value`, `value` None for `_`."""

    name: str | None
    value: Expr | None


@dataclass(frozen=True, slots=True)
class Call(Node):
    """`function<types>(arguments)`; a constructor call where `function` is a TypeExpr."""

    function: Expr
    types: tuple[TypeNode, ...]
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Tuple(Node):
    """`{ a, b }`; `rest`: it ends with `...`, and what is not given has its default value."""

    elements: tuple[Expr, ...]
    rest: bool = False


@dataclass(frozen=True, slots=True)
class Record(Node):
    """`{ x = a, y = b }`; `rest` as in a Tuple."""

    fields: tuple[tuple[str, Expr], ...]
    rest: bool = False


@dataclass(frozen=True, slots=True)
class Invalid(Node):
    """`{#}`: an invalid header."""


@dataclass(frozen=True, slots=True)
class Anything(Node):
    """`_` or `default`: the set of all values."""


@dataclass(frozen=True, slots=True)
class TypeExpr(Node):
    """A type where an expression may stand: before `.member`, or as a constructor."""

    type: TypeNode


Expr = (
    Integer | Boolean | String | Name | Member | Index | Slice | PlusSlice | Unary | Binary | Ternary | Cast | Call
    | Tuple | Record | Invalid | Anything | TypeExpr
)  # fmt: skip


# Types


@dataclass(frozen=True, slots=True)
class NamedType(Node):
    """A type by name, with the arguments of a generic one."""

    name: str
    arguments: tuple[TypeNode, ...] = ()
    rooted: bool = False


@dataclass(frozen=True, slots=True)
class BitsType(Node):
    """`bit<width>`, `int<width>` or `varbit<width>`, as `kind` says."""

    kind: str
    width: Expr


@dataclass(frozen=True, slots=True)
class StackType(Node):
    """`element[size]`."""

    element: TypeNode
    size: Expr


@dataclass(frozen=True, slots=True)
class TupleType(Node):
    """`tuple<...>`."""

    elements: tuple[TypeNode, ...]


TypeNode = NamedType | BitsType | StackType | TupleType


# Annotations and parameters


@dataclass(frozen=True, slots=True)
class Annotation(Node):
    """`@name(arguments)`, or `@name[...]` (`structured`); `text` is the arguments, their tokens apart as in p4c."""

    name: str
    arguments: tuple[Expr, ...]
    text: str
    structured: bool = False


Annotations = tuple[Annotation, ...]


def annotation_text(annotations: Annotations, name: str) -> str | None:
    """The string that an annotation like @name("x") has, or None."""
    for annotation in annotations:
        if annotation.name == name and annotation.arguments and isinstance(annotation.arguments[0], String):
            return annotation.arguments[0].value
    return None


@dataclass(frozen=True, slots=True)
class Parameter(Node):
    """A parameter; `direction` is `in`, `out`, `inout` or empty."""

    name: str
    type: TypeNode
    direction: str
    default: Expr | None
    annotations: Annotations


# Statements


@dataclass(frozen=True, slots=True)
class Assignment(Node):
    """`target = value;`, or with an operator (`op`) `target += value;`."""

    target: Expr
    value: Expr
    op: str = ""


@dataclass(frozen=True, slots=True)
class CallStatement(Node):
    """A call for its effect."""

    call: Call


@dataclass(frozen=True, slots=True)
class If(Node):
    """`if (condition) chosen else other`."""

    condition: Expr
    chosen: Statement
    other: Statement | None


@dataclass(frozen=True, slots=True)
class Block(Node):
    """`{ ... }`."""

    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Return(Node):
    """`return value;`."""

    value: Expr | None


@dataclass(frozen=True, slots=True)
class Exit(Node):
    """`exit;`."""


@dataclass(frozen=True, slots=True)
class For(Node):
    """`for (first; condition; update) body`."""

    first: tuple[Statement, ...]
    condition: Expr
    update: tuple[Statement, ...]
    body: Statement


@dataclass(frozen=True, slots=True)
class ForIn(Node):
    """`for (variable in values) body`; the values are a range or a header stack."""

    variable: Variable
    values: Expr
    body: Statement


@dataclass(frozen=True, slots=True)
class Break(Node):
    """`break;`."""


@dataclass(frozen=True, slots=True)
class Continue(Node):
    """`continue;`."""


@dataclass(frozen=True, slots=True)
class SwitchCase(Node):
    """`label: body`; no body: falls through to the next case. Label Anything is `default`."""

    label: Expr
    body: Block | None


@dataclass(frozen=True, slots=True)
class Switch(Node):
    """`switch (subject) { ... }`."""

    subject: Expr
    cases: tuple[SwitchCase, ...]


# Declarations


@dataclass(frozen=True, slots=True)
class Declaration(Node):
    """Anything with a name; `name_span` is the name's own place."""

    name: str
    name_span: Span
    annotations: Annotations


@dataclass(frozen=True, slots=True)
class Variable(Declaration):
    """`type name = initial;`."""

    type: TypeNode
    initial: Expr | None


@dataclass(frozen=True, slots=True)
class Constant(Declaration):
    """`const type name = value;`."""

    type: TypeNode
    value: Expr


@dataclass(frozen=True, slots=True)
class Instance(Declaration):
    """`type(arguments) name;`."""

    type: TypeNode
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Typedef(Declaration):
    """`typedef type name;`, or (`new`) `type type name;`."""

    type: TypeNode
    new: bool


@dataclass(frozen=True, slots=True)
class Field(Declaration):
    """A field of a header, struct or header union."""

    type: TypeNode


@dataclass(frozen=True, slots=True)
class Composite(Declaration):
    """A `header`, `struct` or `header_union`, as `kind` says."""

    kind: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Enum(Declaration):
    """An enum; `underlying` and the members' values only in a serializable one."""

    underlying: TypeNode | None
    members: tuple[tuple[str, Expr | None, Span], ...]


@dataclass(frozen=True, slots=True)
class Names(Declaration):
    """`error { ... }` or `match_kind { ... }`; `name` says which."""

    members: tuple[tuple[str, Span], ...]


@dataclass(frozen=True, slots=True)
class Method(Declaration):
    """A function's head: of an extern's method or constructor (`result` None), or of an extern function."""

    result: TypeNode | None
    type_parameters: tuple[str, ...]
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class Extern(Declaration):
    """An extern object type."""

    type_parameters: tuple[str, ...]
    methods: tuple[Method, ...]


@dataclass(frozen=True, slots=True)
class Function(Declaration):
    """A function with its body."""

    head: Method
    body: Block


@dataclass(frozen=True, slots=True)
class Action(Declaration):
    """An action."""

    parameters: tuple[Parameter, ...]
    body: Block


@dataclass(frozen=True, slots=True)
class KeyElement(Node):
    """`expression: match_kind;`."""

    expression: Expr
    match_kind: str
    match_span: Span
    annotations: Annotations


@dataclass(frozen=True, slots=True)
class ActionRef(Node):
    """An action in a table's list, as default or in an entry; `arguments` None: written without parentheses."""

    name: str
    rooted: bool
    arguments: tuple[Argument, ...] | None
    annotations: Annotations = ()


@dataclass(frozen=True, slots=True)
class Entry(Node):
    """`const priority = n: (keys): action;` of `entries`, `priority` None where it is left out."""

    keys: tuple[Expr, ...]
    action: ActionRef
    annotations: Annotations
    priority: Expr | None = None


@dataclass(frozen=True, slots=True)
class Property(Node):
    """Any other `name = value;` of a table."""

    name: str
    constant: bool
    value: Expr
    annotations: Annotations


@dataclass(frozen=True, slots=True)
class Table(Declaration):
    """A table; `default_constant` tells `const default_action`; `entries` None: no entries property."""

    key: tuple[KeyElement, ...]
    actions: tuple[ActionRef, ...]
    default: ActionRef | None
    default_constant: bool
    entries: tuple[Entry, ...] | None
    entries_constant: bool
    properties: tuple[Property, ...]


@dataclass(frozen=True, slots=True)
class SelectCase(Node):
    """`keys: state;` of a select."""

    keys: tuple[Expr, ...]
    state: str
    state_span: Span


@dataclass(frozen=True, slots=True)
class Select(Node):
    """`select (subjects) { ... }`."""

    subjects: tuple[Expr, ...]
    cases: tuple[SelectCase, ...]


@dataclass(frozen=True, slots=True)
class State(Declaration):
    """A parser state; its transition is a select, a state's name, or None (which rejects)."""

    statements: tuple[Statement, ...]
    transition: Select | Name | None


@dataclass(frozen=True, slots=True)
class ValueSet(Declaration):
    """`value_set<type>(size) name;`."""

    type: TypeNode
    size: Expr


@dataclass(frozen=True, slots=True)
class Callable(Declaration):
    """A parser's, control's or package's head (`kind`); `constructor` None: a type declaration, without a body."""

    kind: str
    type_parameters: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    constructor: tuple[Parameter, ...] | None


@dataclass(frozen=True, slots=True)
class Parser(Declaration):
    """A parser with its states."""

    head: Callable
    locals: tuple[Node, ...]
    states: tuple[State, ...]


@dataclass(frozen=True, slots=True)
class Control(Declaration):
    """A control with its body."""

    head: Callable
    locals: tuple[Node, ...]
    body: Block


Statement = (
    Assignment | CallStatement | If | Block | Return | Exit | For | ForIn | Break | Continue | Switch | Variable
    | Constant | Instance
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Program:
    """All declarations of a program, in order."""

    declarations: tuple[Declaration, ...]
