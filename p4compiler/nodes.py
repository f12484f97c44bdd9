"""The syntax tree of a P4_16 program, with unresolved names. Every node has its span in the source."""

from __future__ import annotations

from dataclasses import dataclass

from fanin.p4compiler.source import Span


@dataclass(frozen=True, slots=True)
class Node:
    """Node of the tree."""

    span: Span


# Expressions


@dataclass(frozen=True, slots=True)
class Integer(Node):
    """Number literal; `width` is None for arbitrary precision."""

    value: int
    width: int | None
    signed: bool
    base: int


@dataclass(frozen=True, slots=True)
class Boolean(Node):
    """Boolean literal, `true` or `false`."""

    value: bool


@dataclass(frozen=True, slots=True)
class String(Node):
    """String literal, without quotes."""

    value: str


@dataclass(frozen=True, slots=True)
class Name(Node):
    """Name; `rooted` if a dot before it refers to the top level."""

    name: str
    rooted: bool = False


@dataclass(frozen=True, slots=True)
class Member(Node):
    """Member `base.name`; `name_span` is the place of the name alone."""

    base: Expr
    name: str
    name_span: Span


@dataclass(frozen=True, slots=True)
class Index(Node):
    """Index `base[index]`."""

    base: Expr
    index: Expr


@dataclass(frozen=True, slots=True)
class Slice(Node):
    """Slice `base[high:low]`."""

    base: Expr
    high: Expr
    low: Expr


@dataclass(frozen=True, slots=True)
class PlusSlice(Node):
    """Slice `base[low +: width]`, the only one whose lowest bit may be computed."""

    base: Expr
    low: Expr
    width: Expr


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """Unary operator, one of `- ~ ! +`."""

    op: str
    operand: Expr


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """Binary operator, including `&&&` and `..`, which form sets."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Ternary(Node):
    """Conditional expression `condition ? chosen : other`."""

    condition: Expr
    chosen: Expr
    other: Expr


@dataclass(frozen=True, slots=True)
class Cast(Node):
    """Cast `(type)operand`."""

    type: TypeNode
    operand: Expr


@dataclass(frozen=True, slots=True)
class Argument(Node):
    """Argument of a call; `name` is given for `name = value`, `value` is None for `_`."""

    name: str | None
    value: Expr | None


@dataclass(frozen=True, slots=True)
class Call(Node):
    """Call `function<types>(arguments)`; a constructor call if `function` is a TypeExpr."""

    function: Expr
    types: tuple[TypeNode, ...]
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Tuple(Node):
    """List `{ a, b }`; `rest` if it ends with `...`, which stands for default values."""

    elements: tuple[Expr, ...]
    rest: bool = False


@dataclass(frozen=True, slots=True)
class Record(Node):
    """Record `{ x = a, y = b }`; `rest` as in a Tuple."""

    fields: tuple[tuple[str, Expr], ...]
    rest: bool = False


@dataclass(frozen=True, slots=True)
class Invalid(Node):
    """Invalid header `{#}`."""


@dataclass(frozen=True, slots=True)
class Anything(Node):
    """Set of all values, `_` or `default`."""


@dataclass(frozen=True, slots=True)
class TypeExpr(Node):
    """Type used as an expression: before `.member`, or as a constructor."""

    type: TypeNode


Expr = (
    Integer | Boolean | String | Name | Member | Index | Slice | PlusSlice | Unary | Binary | Ternary | Cast | Call
    | Tuple | Record | Invalid | Anything | TypeExpr
)  # fmt: skip


# Types


@dataclass(frozen=True, slots=True)
class NamedType(Node):
    """Type given by name, with the arguments of a generic one."""

    name: str
    arguments: tuple[TypeNode, ...] = ()
    rooted: bool = False


@dataclass(frozen=True, slots=True)
class BitsType(Node):
    """Type `bit<width>`, `int<width>` or `varbit<width>`; `kind` is the word before `<`."""

    kind: str
    width: Expr


@dataclass(frozen=True, slots=True)
class StackType(Node):
    """Header stack type `element[size]`."""

    element: TypeNode
    size: Expr


@dataclass(frozen=True, slots=True)
class TupleType(Node):
    """Tuple type `tuple<...>`."""

    elements: tuple[TypeNode, ...]


@dataclass(frozen=True, slots=True)
class ListType(Node):
    """List type `list<element>`."""

    element: TypeNode


TypeNode = NamedType | BitsType | StackType | TupleType | ListType


# Annotations and parameters


@dataclass(frozen=True, slots=True)
class Annotation(Node):
    """Annotation `@name(arguments)`, or `@name[...]` if `structured`.

    `text` is the source of the arguments, with spaces between tokens as in p4c.
    """

    name: str
    arguments: tuple[Expr, ...]
    text: str
    structured: bool = False


Annotations = tuple[Annotation, ...]


def annotation_text(annotations: Annotations, name: str) -> str | None:
    """Return the string in an annotation such as @name("x"), or None."""
    for annotation in annotations:
        if annotation.name == name and annotation.arguments and isinstance(annotation.arguments[0], String):
            return annotation.arguments[0].value
    return None


@dataclass(frozen=True, slots=True)
class Parameter(Node):
    """Parameter; `direction` is `in`, `out`, `inout` or empty; `name_span` is the place of the name alone."""

    name: str
    name_span: Span
    type: TypeNode
    direction: str
    default: Expr | None
    annotations: Annotations


# Statements


@dataclass(frozen=True, slots=True)
class Assignment(Node):
    """Assignment `target = value;`, or `target op= value;` if `op` is not empty."""

    target: Expr
    value: Expr
    op: str = ""


@dataclass(frozen=True, slots=True)
class CallStatement(Node):
    """Call for its side effects."""

    call: Call


@dataclass(frozen=True, slots=True)
class If(Node):
    """Conditional `if (condition) chosen else other`."""

    condition: Expr
    chosen: Statement
    other: Statement | None


@dataclass(frozen=True, slots=True)
class Block(Node):
    """Block `{ ... }`."""

    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Return(Node):
    """Statement `return value;`."""

    value: Expr | None


@dataclass(frozen=True, slots=True)
class Exit(Node):
    """Statement `exit;`."""


@dataclass(frozen=True, slots=True)
class For(Node):
    """Loop `for (first; condition; update) body`."""

    first: tuple[Statement, ...]
    condition: Expr
    update: tuple[Statement, ...]
    body: Statement


@dataclass(frozen=True, slots=True)
class ForIn(Node):
    """Loop `for (variable in values) body` over a range or a header stack."""

    variable: Variable
    values: Expr
    body: Statement


@dataclass(frozen=True, slots=True)
class Break(Node):
    """Statement `break;`."""


@dataclass(frozen=True, slots=True)
class Continue(Node):
    """Statement `continue;`."""


@dataclass(frozen=True, slots=True)
class SwitchCase(Node):
    """Case `label: body`, without a body if it falls through. The label Anything is `default`."""

    label: Expr
    body: Block | None


@dataclass(frozen=True, slots=True)
class Switch(Node):
    """Statement `switch (subject) { ... }`."""

    subject: Expr
    cases: tuple[SwitchCase, ...]


# Declarations


@dataclass(frozen=True, slots=True)
class Declaration(Node):
    """Named declaration; `name_span` is the place of the name alone."""

    name: str
    name_span: Span
    annotations: Annotations


@dataclass(frozen=True, slots=True)
class Variable(Declaration):
    """Variable declaration `type name = initial;`."""

    type: TypeNode
    initial: Expr | None


@dataclass(frozen=True, slots=True)
class Constant(Declaration):
    """Constant declaration `const type name = value;`."""

    type: TypeNode
    value: Expr


@dataclass(frozen=True, slots=True)
class Instance(Declaration):
    """Instance declaration `type(arguments) name;`."""

    type: TypeNode
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Typedef(Declaration):
    """Type declaration `typedef type name;`, or `type type name;` if `new`."""

    type: TypeNode
    new: bool


@dataclass(frozen=True, slots=True)
class Field(Declaration):
    """Field of a header, struct or header union."""

    type: TypeNode


@dataclass(frozen=True, slots=True)
class Composite(Declaration):
    """Composite type, generic if it has type parameters; `kind` is `header`, `struct` or `header_union`."""

    kind: str
    type_parameters: tuple[str, ...]
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Enum(Declaration):
    """Enum; `underlying` and the values of members are given only if it is serializable."""

    underlying: TypeNode | None
    members: tuple[tuple[str, Expr | None, Span], ...]


@dataclass(frozen=True, slots=True)
class Names(Declaration):
    """Declaration `error { ... }` or `match_kind { ... }`; `name` is the word before the brace."""

    members: tuple[tuple[str, Span], ...]


@dataclass(frozen=True, slots=True)
class Method(Declaration):
    """Signature of an extern's method or constructor (`result` is None), or of a function."""

    result: TypeNode | None
    type_parameters: tuple[str, ...]
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class Extern(Declaration):
    """Extern object type."""

    type_parameters: tuple[str, ...]
    methods: tuple[Method, ...]


@dataclass(frozen=True, slots=True)
class Function(Declaration):
    """Function with its body."""

    head: Method
    body: Block


@dataclass(frozen=True, slots=True)
class Action(Declaration):
    """Action."""

    parameters: tuple[Parameter, ...]
    body: Block


@dataclass(frozen=True, slots=True)
class KeyElement(Node):
    """Key element `expression: match_kind;`."""

    expression: Expr
    match_kind: str
    match_span: Span
    annotations: Annotations


@dataclass(frozen=True, slots=True)
class ActionRef(Node):
    """Action in a table's list, as its default or in an entry; `arguments` is None without parentheses."""

    name: str
    rooted: bool
    arguments: tuple[Argument, ...] | None
    annotations: Annotations = ()


@dataclass(frozen=True, slots=True)
class Entry(Node):
    """Entry `const priority = n: (keys): action;`; `priority` is None if omitted."""

    keys: tuple[Expr, ...]
    action: ActionRef
    annotations: Annotations
    priority: Expr | None = None
    is_const: bool = False


@dataclass(frozen=True, slots=True)
class Property(Node):
    """Table property `name = value;` that has no node type of its own."""

    name: str
    constant: bool
    value: Expr
    annotations: Annotations


@dataclass(frozen=True, slots=True)
class Table(Declaration):
    """Table. `default_constant` is True for `const default_action`; `entries` is None without that property."""

    key: tuple[KeyElement, ...]
    actions: tuple[ActionRef, ...]
    default: ActionRef | None
    default_constant: bool
    entries: tuple[Entry, ...] | None
    entries_constant: bool
    properties: tuple[Property, ...]


@dataclass(frozen=True, slots=True)
class SelectCase(Node):
    """Case `keys: state;` of a select."""

    keys: tuple[Expr, ...]
    state: str
    state_span: Span


@dataclass(frozen=True, slots=True)
class Select(Node):
    """Transition `select (subjects) { ... }`."""

    subjects: tuple[Expr, ...]
    cases: tuple[SelectCase, ...]


@dataclass(frozen=True, slots=True)
class State(Declaration):
    """Parser state. Its transition is a select, a state's name, or None, which rejects."""

    statements: tuple[Statement, ...]
    transition: Select | Name | None


@dataclass(frozen=True, slots=True)
class ValueSet(Declaration):
    """Value set declaration `value_set<type>(size) name;`."""

    type: TypeNode
    size: Expr


@dataclass(frozen=True, slots=True)
class Callable(Declaration):
    """Head of a parser, control or package, according to `kind`; `constructor` is None for a type without a body."""

    kind: str
    type_parameters: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    constructor: tuple[Parameter, ...] | None


@dataclass(frozen=True, slots=True)
class Parser(Declaration):
    """Parser with its states."""

    head: Callable
    locals: tuple[Node, ...]
    states: tuple[State, ...]


@dataclass(frozen=True, slots=True)
class Control(Declaration):
    """Control with its body."""

    head: Callable
    locals: tuple[Node, ...]
    body: Block


Statement = (
    Assignment | CallStatement | If | Block | Return | Exit | For | ForIn | Break | Continue | Switch | Variable
    | Constant | Instance
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Program:
    """All declarations of a program, in order, and those of the frame that carries out another architecture."""

    declarations: tuple[Declaration, ...]
    frame: tuple[Declaration, ...] = ()
