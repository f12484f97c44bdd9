"""P4Data: values in registers and digests, by their type in P4Info.

P4Runtime specification, "Representation of Arbitrary P4 Types". The data plane's values are unsigned numbers; those of
a struct or tuple follow one another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from fanin.p4switch.p4runtime.codec.translation import NUMBERS, Codec, Translations, signed_numbers
from fanin.p4switch.p4runtime.errors import invalid, unimplemented
from fanin.p4switch.p4runtime.proto import p4d, p4t

_WIDEST = 2048  # bits of a number in P4_16's v1model
_DEEPEST = 50  # nested types


class DataType(Protocol):
    """Codec for the values of one type."""

    @property
    def size(self) -> int:
        """Return how many values of the data plane form one value of the type."""

    def encode(self, values: Iterator[int]) -> p4d.P4Data:
        """Encode the next value, or values."""

    def decode(self, message: p4d.P4Data, width: int) -> int:
        """Decode a value of `width` bits.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT if it has another type, or does not fit.
        """


class _Single:
    size = 1


@dataclass(frozen=True)
class _Number(_Single):
    """Number, in the field `bitstring` or `enum_value` of P4Data; or a string that is translated to a number."""

    what: str
    field: str
    codec: Codec

    def encode(self, values: Iterator[int]) -> p4d.P4Data:
        message = p4d.P4Data()
        setattr(message, self.field, self.codec.encode(next(values)))
        return message

    def decode(self, message: p4d.P4Data, width: int) -> int:
        _require(message, self.field, self.what)
        return self.codec.decode(getattr(message, self.field), width, self.what)


@dataclass(frozen=True)
class _Bool(_Single):
    what: str

    def encode(self, values: Iterator[int]) -> p4d.P4Data:
        return p4d.P4Data(bool=bool(next(values)))

    def decode(self, message: p4d.P4Data, _width: int) -> int:
        _require(message, "bool", self.what)
        return int(message.bool)


@dataclass(frozen=True)
class _Name(_Single):
    """Enum member or error, by its name."""

    what: str
    field: str
    names: tuple[str, ...]

    def encode(self, values: Iterator[int]) -> p4d.P4Data:
        message, number = p4d.P4Data(), next(values)
        setattr(message, self.field, self.names[number] if number < len(self.names) else str(number))
        return message

    def decode(self, message: p4d.P4Data, _width: int) -> int:
        _require(message, self.field, self.what)
        name = getattr(message, self.field)
        if name not in self.names:
            raise invalid(f"{self.what}: {name!r} is none of {', '.join(self.names)}")
        return self.names.index(name)


@dataclass(frozen=True)
class _Several:
    """Members of a struct or a tuple."""

    what: str
    field: str
    members: tuple[DataType, ...]

    @property
    def size(self) -> int:
        return sum(member.size for member in self.members)

    def encode(self, values: Iterator[int]) -> p4d.P4Data:
        message = p4d.P4Data()
        getattr(message, self.field).members.extend(member.encode(values) for member in self.members)
        return message

    def decode(self, _message: p4d.P4Data, _width: int) -> int:
        raise unimplemented(f"{self.what}: a {self.field} cannot be written")


def data_type(
    spec: p4t.P4DataTypeSpec, types: p4t.P4TypeInfo, translations: Translations, what: str, depth: int = 0
) -> DataType:
    """Return the codec for a type in P4Info.

    Args:
        spec: The type.
        types: The named types that it may refer to.
        translations: The codecs of translated types.
        what: The name of its values in errors.
        depth: The number of enclosing types.

    Raises:
        P4RuntimeError: UNIMPLEMENTED for headers and the like, INVALID_ARGUMENT if it contains itself.
    """
    if depth > _DEEPEST:
        raise invalid(f"{what}: the P4Info has a type that contains itself")

    def inner(spec: p4t.P4DataTypeSpec) -> DataType:
        return data_type(spec, types, translations, what, depth + 1)

    match spec.WhichOneof("type_spec"):
        case "bool":
            return _Bool(what)
        case "bitstring" if spec.bitstring.WhichOneof("type_spec") == "int":
            return _Number(what, "bitstring", _signed(spec.bitstring.int.bitwidth, what))
        case "bitstring" if spec.bitstring.WhichOneof("type_spec") == "bit":
            return _Number(what, "bitstring", NUMBERS)
        case "serializable_enum":
            return _Number(what, "enum_value", NUMBERS)
        case "enum":
            members = types.enums[spec.enum.name].members
            return _Name(what, "enum", tuple(member.name for member in members))
        case "error":
            return _Name(what, "error", tuple(types.error.members))
        case "struct":
            fields = types.structs[spec.struct.name].members
            return _Several(what, "struct", tuple(inner(member.type_spec) for member in fields))
        case "tuple":
            return _Several(what, "tuple", tuple(map(inner, spec.tuple.members)))
        case "new_type":
            new = types.new_types[spec.new_type.name]
            if new.WhichOneof("representation") == "original_type":
                return inner(new.original_type)
            return _Number(what, "bitstring", translations.named(spec.new_type.name))
        case kind:
            raise unimplemented(f"{what}: values of a {kind} type are not supported")


def _require(message: p4d.P4Data, field: str, what: str) -> None:
    given = message.WhichOneof("data")
    if given != field:
        raise invalid(f"{what} has a {field}, the request has {given}")


def _signed(width: int, what: str) -> Codec:
    """Return the codec for two's complement numbers."""
    if not 0 < width <= _WIDEST:
        raise invalid(f"{what}: the P4Info has a signed number of {width} bits, 1 to {_WIDEST} are possible")
    return signed_numbers(width)
