"""Types after name resolution (P4_16 specification, chapter 7)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from fanin.p4compiler.nodes import Annotations
from fanin.p4compiler.source import Span


@dataclass(frozen=True, slots=True, eq=False)
class Type:
    """Type. str() is its P4 syntax. Declared types are equal only to themselves."""

    def __str__(self) -> str:
        return type(self).__name__.lower()


@dataclass(frozen=True, slots=True)
class Bits(Type):
    """Type `bit<width>`, or `int<width>` if `signed`."""

    width: int
    signed: bool = False

    def __str__(self) -> str:
        return f"{'int' if self.signed else 'bit'}<{self.width}>"


@dataclass(frozen=True, slots=True)
class Int(Type):
    """Type of number literals without a width: arbitrary precision."""


@dataclass(frozen=True, slots=True)
class Bool(Type):
    """Type `bool`."""


@dataclass(frozen=True, slots=True)
class Error(Type):
    """Type `error`."""


@dataclass(frozen=True, slots=True)
class String(Type):
    """Type `string`."""


@dataclass(frozen=True, slots=True)
class Void(Type):
    """Type `void`."""


@dataclass(frozen=True, slots=True)
class Varbit(Type):
    """Type `varbit<width>`."""

    width: int

    def __str__(self) -> str:
        return f"varbit<{self.width}>"


@dataclass(frozen=True, slots=True)
class TypeVariable(Type):
    """Type parameter of a generic declaration."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Tuple(Type):
    """Type `tuple<...>`, and the type of `{ a, b }` until its target is known."""

    elements: tuple[Type, ...]
    rest: bool = False  # True for `{ a, ... }`: default values follow
    parts: int = field(init=False, repr=False, compare=False)  # what parts() returns

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", sum(map(parts, self.elements)))

    @property
    def fields(self) -> tuple[Field, ...]:
        """Return the elements as fields, named by their numbers."""
        return tuple(Field(str(number), element) for number, element in enumerate(self.elements))

    def __str__(self) -> str:
        return f"tuple<{', '.join([*map(str, self.elements), *['...'] * self.rest])}>"


@dataclass(frozen=True, slots=True)
class List(Type):
    """List type `list<element>`, of values that are given one by one."""

    element: Type

    def __str__(self) -> str:
        return f"list<{self.element}>"


@dataclass(frozen=True, slots=True)
class Record(Type):
    """Type of `{ x = a, y = b }` until its target is known."""

    fields: tuple[tuple[str, Type], ...]
    rest: bool = False  # True for `{ x = a, ... }`: other fields have default values

    def __str__(self) -> str:
        return (
            f"{{{', '.join([*(f'{name} = {value}' for name, value in self.fields), *['...'] * self.rest])}}}"
        )


@dataclass(frozen=True, slots=True)
class InvalidHeader(Type):
    """Type of `{#}` until its target is known."""

    def __str__(self) -> str:
        return "{#}"


@dataclass(frozen=True, slots=True, eq=False)
class Named(Type):
    """Declared type, equal only to itself."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False)
class Enum(Named):
    """Enum. The value of a member is its position, or what the program gives if it is serializable (`underlying`)."""

    members: dict[str, int]
    underlying: Bits | None = None
    annotations: Annotations = ()


@dataclass(frozen=True, slots=True, eq=False)
class NewType(Named):
    """Type declared as `type base name;`."""

    base: Type
    annotations: Annotations = ()


@dataclass(frozen=True, slots=True)
class Field:
    """Field of a header, struct or header union."""

    name: str
    type: Type
    annotations: Annotations = ()


@dataclass(frozen=True, slots=True, eq=False)
class Fields(Named):
    """Type with fields: header, struct or header union; with its arguments if it is one of a generic type."""

    fields: tuple[Field, ...]
    span: Span
    annotations: Annotations = ()
    generic: Generic | None = None
    arguments: tuple[Type, ...] = ()
    by_name: dict[str, Type] = field(init=False, repr=False)
    parts: int = field(init=False, repr=False)  # what parts() returns

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {f.name: f.type for f in self.fields})
        object.__setattr__(self, "parts", sum(parts(f.type) for f in self.fields))

    def __str__(self) -> str:
        return f"{self.generic}<{', '.join(map(str, self.arguments))}>" if self.generic else self.name


@dataclass(frozen=True, slots=True, eq=False)
class Header(Fields):
    """Header type."""


@dataclass(frozen=True, slots=True, eq=False)
class Struct(Fields):
    """Struct type."""


@dataclass(frozen=True, slots=True, eq=False)
class Union(Fields):
    """Header union type."""


@dataclass(frozen=True, slots=True, eq=False)
class Generic(Named):
    """Header, struct or header union with type parameters. `of` returns the one type for given arguments."""

    type_parameters: tuple[str, ...]
    of: Callable[[tuple[Type, ...]], Fields] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Stack(Type):
    """Header stack type."""

    element: Type
    size: int

    def __str__(self) -> str:
        return f"{self.element}[{self.size}]"


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a function, method, constructor, parser or control type."""

    name: str
    type: Type
    direction: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """Signature of a function, method or constructor."""

    name: str
    type_parameters: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    result: Type


@dataclass(frozen=True, slots=True, eq=False)
class Extern(Named):
    """Extern object type; its constructors are the methods with the type's name."""

    type_parameters: tuple[str, ...]
    methods: dict[str, list[Signature]]


@dataclass(frozen=True, slots=True)
class ExternInstance(Type):
    """Extern object type with its type arguments."""

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
    """Type of a parser, control (`kind`) or package, with or without a body."""

    kind: str
    type_parameters: tuple[str, ...]
    parameters: tuple[Parameter, ...]

    def fits(self, wanted: Block) -> bool:
        """Return whether a block of this type can be used where another type is expected: both are applied alike."""
        given = [(p.type, p.direction) for p in self.parameters]
        return self.kind == wanted.kind and given == [(p.type, p.direction) for p in wanted.parameters]


@dataclass(frozen=True, slots=True)
class BlockInstance(Type):
    """Generic parser or control type with its arguments, as in a package's parameters."""

    block: Block
    arguments: tuple[Type, ...]

    def __str__(self) -> str:
        return (
            f"{self.block.name}<{', '.join(map(str, self.arguments))}>" if self.arguments else self.block.name
        )


def parts(type_: Type) -> int:
    """Return how many values without parts of their own a value of a type has, however deep they are."""
    match type_:
        case Tuple() | Fields():
            return type_.parts
        case Stack(element=element, size=size):
            return size * parts(element)
    return 1


def width(type_: Type) -> int | None:
    """Return the width in bits of a value in BMv2 (bool 1; error and plain enums 32); None if it is not a scalar."""
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


def total_width(type_: Type, *, longest: bool) -> int | None:
    """Return the width in bits of a value with all its parts; None if it has none.

    Args:
        type_: The type.
        longest: True for the greatest width, False for the least, in which a varbit has no bits.
    """
    match type_:
        case Varbit(width=bits):
            return bits if longest else 0
        case Stack(element=element, size=size):
            width_of_one = total_width(element, longest=longest)
            return None if width_of_one is None else size * width_of_one
        case Fields(fields=fields) | Tuple(fields=fields):
            widths = [total_width(f.type, longest=longest) for f in fields]
            known = [w for w in widths if w is not None]
            if len(known) < len(widths):
                return None
            return max(known, default=0) if isinstance(type_, Union) else sum(known)
        case Error() | Enum(underlying=None):
            return None  # the target decides
    return width(type_)


def scalar(type_: Type) -> Type:
    """Return the bits that represent a newtype, an enum or an error; any other type is returned unchanged."""
    match type_:
        case NewType(base=base):
            return scalar(base)
        case Enum(underlying=underlying):
            return underlying or Bits(32)
        case Error():
            return Bits(32)
    return type_


def substitute(type_: Type, bindings: dict[str, Type]) -> Type:
    """Return the type with its type variables replaced."""
    if not bindings:
        return type_
    match type_:
        case TypeVariable(name=name):
            return bindings.get(name, type_)
        case Tuple(elements=elements):
            return Tuple(tuple(substitute(e, bindings) for e in elements))
        case Stack(element=element, size=size):
            return Stack(substitute(element, bindings), size)
        case Fields(generic=Generic() as generic, arguments=arguments):
            return generic.of(tuple(substitute(a, bindings) for a in arguments))
        case ExternInstance(extern=extern, arguments=arguments):
            return ExternInstance(extern, tuple(substitute(a, bindings) for a in arguments))
        case BlockInstance(block=block, arguments=arguments):
            return BlockInstance(block, tuple(substitute(a, bindings) for a in arguments))
    return type_


_OTHER_LANGUAGES = {"char": "bit<8>", "byte": "bit<8>", "short": "int<16>", "long": "int<64>", "unsigned": "bit<32>",
                    "var": "bit<32>", "auto": "bit<32>", "boolean": "bool", "_Bool": "bool"}  # fmt: skip


def counterpart(name: str) -> str | None:
    """Return P4's type for a type of C and similar languages (bit<32> for uint32_t), or None."""
    sized = re.fullmatch(r"(u?)(?:int|bit)_?(\d+)(?:_t)?", name)
    if sized is None:
        return _OTHER_LANGUAGES.get(name)
    unsigned = sized[1] or name.startswith("bit")
    return f"{'bit' if unsigned else 'int'}<{sized[2]}>"
