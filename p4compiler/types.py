"""Types as the compiler knows them once names are resolved (P4_16 specification, chapter 7)."""

from __future__ import annotations

from dataclasses import dataclass, field

from fanin.p4compiler.nodes import Annotations
from fanin.p4compiler.source import Span


@dataclass(frozen=True, slots=True, eq=False)
class Type:
    """Any type; str() is how P4 writes it. Types that are declared are equal only to themselves."""

    def __str__(self) -> str:
        return type(self).__name__.lower()


@dataclass(frozen=True, slots=True)
class Bits(Type):
    """`bit<width>`, or (`signed`) `int<width>`."""

    width: int
    signed: bool = False

    def __str__(self) -> str:
        return f"{'int' if self.signed else 'bit'}<{self.width}>"


@dataclass(frozen=True, slots=True)
class Int(Type):
    """The type of number literals without a width: arbitrary precision."""


@dataclass(frozen=True, slots=True)
class Bool(Type):
    """`bool`."""


@dataclass(frozen=True, slots=True)
class Error(Type):
    """`error`."""


@dataclass(frozen=True, slots=True)
class String(Type):
    """`string`."""


@dataclass(frozen=True, slots=True)
class Void(Type):
    """`void`."""


@dataclass(frozen=True, slots=True)
class Varbit(Type):
    """`varbit<width>`."""

    width: int

    def __str__(self) -> str:
        return f"varbit<{self.width}>"


@dataclass(frozen=True, slots=True)
class TypeVariable(Type):
    """A type parameter of a generic declaration."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Tuple(Type):
    """`tuple<...>`, and the type of `{ a, b }` until it is known what it initializes."""

    elements: tuple[Type, ...]
    rest: bool = False  # of `{ a, ... }`: more are to follow

    @property
    def fields(self) -> tuple[Field, ...]:
        """The elements as the fields of a struct are, each named by its number."""
        return tuple(Field(str(number), element) for number, element in enumerate(self.elements))

    def __str__(self) -> str:
        return f"tuple<{', '.join([*map(str, self.elements), *['...'] * self.rest])}>"


@dataclass(frozen=True, slots=True)
class Record(Type):
    """The type of `{ x = a, y = b }` until it is known what it initializes."""

    fields: tuple[tuple[str, Type], ...]
    rest: bool = False  # of `{ x = a, ... }`: there are more

    def __str__(self) -> str:
        return (
            f"{{{', '.join([*(f'{name} = {value}' for name, value in self.fields), *['...'] * self.rest])}}}"
        )


@dataclass(frozen=True, slots=True)
class InvalidHeader(Type):
    """The type of `{#}` until it is known of which header it is one."""

    def __str__(self) -> str:
        return "{#}"


@dataclass(frozen=True, slots=True, eq=False)
class Named(Type):
    """A declared type: equal only to itself."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False)
class Enum(Named):
    """An enum; a member's value is its place, or in a serializable one (`underlying`) what the program says."""

    members: dict[str, int]
    underlying: Bits | None = None


@dataclass(frozen=True, slots=True, eq=False)
class NewType(Named):
    """`type base name;`."""

    base: Type
    annotations: Annotations = ()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a header, struct or header union."""

    name: str
    type: Type
    annotations: Annotations = ()


@dataclass(frozen=True, slots=True, eq=False)
class Fields(Named):
    """What has fields: headers, structs, header unions."""

    fields: tuple[Field, ...]
    span: Span
    annotations: Annotations = ()
    by_name: dict[str, Type] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {f.name: f.type for f in self.fields})


@dataclass(frozen=True, slots=True, eq=False)
class Header(Fields):
    """A header."""


@dataclass(frozen=True, slots=True, eq=False)
class Struct(Fields):
    """A struct."""


@dataclass(frozen=True, slots=True, eq=False)
class Union(Fields):
    """A header union."""


@dataclass(frozen=True, slots=True)
class Stack(Type):
    """A header stack."""

    element: Type
    size: int

    def __str__(self) -> str:
        return f"{self.element}[{self.size}]"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function, method, constructor, parser or control type."""

    name: str
    type: Type
    direction: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function, method or constructor takes and gives."""

    name: str
    type_parameters: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    result: Type


@dataclass(frozen=True, slots=True, eq=False)
class Extern(Named):
    """An extern object type; its constructors have the type's own name."""

    type_parameters: tuple[str, ...]
    methods: dict[str, list[Signature]]


@dataclass(frozen=True, slots=True)
class ExternInstance(Type):
    """An extern object type with its type arguments."""

    extern: Extern
    arguments: tuple[Type, ...]

    def __str__(self) -> str:
        return (
            f"{self.extern.name}<{', '.join(map(str, self.arguments))}>"
            if self.arguments
            else self.extern.name
        )


@dataclass(frozen=True, slots=True, eq=False)
class Block(Named):
    """The type of a parser, control (`kind`) or package, with or without a body."""

    kind: str
    type_parameters: tuple[str, ...]
    parameters: tuple[Parameter, ...]

    def fits(self, wanted: Block) -> bool:
        """Whether a parser or control of this type can stand where another type is wanted: they are applied alike."""
        given = [(p.type, p.direction) for p in self.parameters]
        return self.kind == wanted.kind and given == [(p.type, p.direction) for p in wanted.parameters]


@dataclass(frozen=True, slots=True)
class BlockInstance(Type):
    """A generic parser or control type with its arguments, as a package's parameter has it."""

    block: Block
    arguments: tuple[Type, ...]

    def __str__(self) -> str:
        return (
            f"{self.block.name}<{', '.join(map(str, self.arguments))}>" if self.arguments else self.block.name
        )


def width(type_: Type) -> int | None:
    """Bits that a value takes in BMv2 (bool 1; error and plain enums 32); None for what is not a scalar."""
    match type_:
        case Bits(width=bits):
            return bits
        case Bool():
            return 1
        case Error():
            return 32
        case Enum(underlying=underlying):
            return underlying.width if underlying else 32
        case NewType(base=base):
            return width(base)
    return None


def scalar(type_: Type) -> Type:
    """The bits beneath a type: of a newtype its base, of enums and errors what represents them; else the type."""
    match type_:
        case NewType(base=base):
            return scalar(base)
        case Enum(underlying=underlying):
            return underlying or Bits(32)
        case Error():
            return Bits(32)
    return type_


def substitute(type_: Type, bindings: dict[str, Type]) -> Type:
    """The type with its type variables replaced."""
    if not bindings:
        return type_
    match type_:
        case TypeVariable(name=name):
            return bindings.get(name, type_)
        case Tuple(elements=elements):
            return Tuple(tuple(substitute(e, bindings) for e in elements))
        case Stack(element=element, size=size):
            return Stack(substitute(element, bindings), size)
        case ExternInstance(extern=extern, arguments=arguments):
            return ExternInstance(extern, tuple(substitute(a, bindings) for a in arguments))
        case BlockInstance(block=block, arguments=arguments):
            return BlockInstance(block, tuple(substitute(a, bindings) for a in arguments))
    return type_
