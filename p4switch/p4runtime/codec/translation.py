"""Encoding of a P4 type's values: as numbers, or as strings if the program translates the type to strings.

P4Runtime specification, "User-defined types" and "Metadata Translation". The specification leaves the numbers of
strings to the target. This one assigns them for each type separately, for the lifetime of the pipeline:

- the number in the type's annotation `@p4runtime_translation_mappings({{"default", 0}, …})`, known from sonic-pins;
- the number that the string is the decimal form of;
- otherwise the lowest number above 0 that no string has yet.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from itertools import count
from typing import NamedTuple, NoReturn, Protocol

import grpc

from fanin.p4switch.p4runtime.codec.values import (
    decode_signed,
    decode_value,
    encode_signed,
    encode_value,
    shown,
)
from fanin.p4switch.p4runtime.errors import P4RuntimeError, invalid, unimplemented
from fanin.p4switch.p4runtime.proto import p4t

_MAPPING = re.compile(r'\{\s*"((?:[^"\\]|\\.)*)"\s*,\s*(0[xX][0-9a-fA-F]+|\d+)\s*,?\s*\}')
_DECIMAL = re.compile("0|[1-9][0-9]*")


class Codec(NamedTuple):
    """Encoder and decoder for the values of one type; `decode` takes the bytes, and the field's width and name.

    `text` formats a value for messages. None stands for the conventions of the field.
    """

    encode: Callable[[int], bytes]
    decode: Callable[[bytes, int, str], int]
    text: Callable[[int], str] | None = None


NUMBERS = Codec(encode_value, decode_value)


def signed_numbers(width: int) -> Codec:
    """Return the codec for numbers in two's complement, which the data plane has as unsigned numbers."""
    half, mask = 1 << width - 1, (1 << width) - 1
    return Codec(
        lambda value: encode_signed((value ^ half) - half),
        lambda data, bits, what: decode_signed(data, bits, what) & mask,
        lambda value: str((value ^ half) - half),
    )


def _refuse(_data: bytes, _width: int, what: str) -> NoReturn:
    raise unimplemented(f"{what}: only numbers, and types translated to strings, can be written")


# Errors have no values in P4Runtime: in entries that the program declares they are read as numbers.
READ_ONLY = Codec(encode_value, _refuse)


class Strings:
    """Mapping between the strings of one type and numbers. Thread-safe, because packets to the controller use it, too.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT if a mapping has a string or a number twice.
    """

    def __init__(self, type_name: str, annotations: str) -> None:
        self._type = type_name
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}
        self._strings: dict[int, str] = {}
        self._fresh = count(1)
        if "@p4runtime_translation_mappings" in annotations:
            for text, number in _MAPPING.findall(annotations):
                string, value = re.sub(r"\\(.)", r"\1", text), int(number, 0)
                if string in self._numbers or value in self._strings:
                    raise invalid(f"type {type_name} maps {string!r} or {value} twice")
                self._bind(string, value)

    def encode(self, number: int) -> bytes:
        """Return the string for a number. A number without a string gets its decimal form from now on."""
        with self._lock:
            if number not in self._strings:
                self._bind(str(number), number)
            return self._strings[number].encode()

    def text(self, number: int) -> str:
        """Return the string for a number, in quotation marks."""
        return repr(self.encode(number).decode())

    def decode(self, data: bytes, width: int, what: str) -> int:
        """Return the number for a string, which is assigned one on first use.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT, or RESOURCE_EXHAUSTED if no number is left for it.
        """
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise invalid(f"{what}: {shown(data)} is not a string in UTF-8") from None
        with self._lock:
            number = self._numbers.get(text)
            if number is None:
                number = self._choose(text, width, what)
            if number >> width:
                raise invalid(f"{what}: {text!r} stands for {number}, which does not fit bit<{width}>")
            self._bind(text, number)
        return number

    def _choose(self, text: str, width: int, what: str) -> int:
        if not text:
            raise invalid(f"{what}: an empty string, for which the type {self._type} has no mapping")
        if _DECIMAL.fullmatch(text):
            number = int(text)
            if number in self._strings:
                raise invalid(f"{what}: {self._strings[number]!r} stands for {number} already, not {text!r}")
            return number
        number = next(number for number in self._fresh if number not in self._strings)
        if number >> width:
            raise P4RuntimeError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{what}: all numbers of bit<{width}> belong to other strings",
            )
        return number

    def _bind(self, text: str, number: int) -> None:
        self._numbers[text] = number
        self._strings[number] = text


class _Described(Protocol):
    """Key field, parameter or packet metadata in P4Info; without a width it is not a number."""

    @property
    def bitwidth(self) -> int: ...
    @property
    def type_name(self) -> p4t.P4NamedType: ...


class Translations:
    """Codecs for the types of one pipeline."""

    def __init__(self, types: p4t.P4TypeInfo) -> None:
        self._strings: dict[str, Codec] = {}
        for name, described in types.new_types.items():
            if described.translated_type.HasField("sdn_string"):
                strings = Strings(name, " ".join(described.annotations))
                self._strings[name] = Codec(strings.encode, strings.decode, strings.text)

    def named(self, type_name: str) -> Codec:
        """Return the codec of a type: NUMBERS, unless it is translated to strings."""
        return self._strings.get(type_name, NUMBERS)

    def of(self, described: _Described, width: int) -> Codec:
        """Return the codec of an object in P4Info: READ_ONLY if it is neither a number nor translated to strings.

        Args:
            described: The object.
            width: Its width in the program. The number of type bit<0> is 0, and other types without a width have none.
        """
        codec = self.named(described.type_name.name)
        return READ_ONLY if codec is NUMBERS and described.bitwidth == 0 < width else codec
