"""Identifiers and aliases of P4Info objects, as p4c assigns them.

An identifier consists of the object's kind (8 bits, p4.config.v1.P4Ids.Prefix) and a hash of its name (24 bits). After
a collision the next free hash is taken, with names in alphabetical order. An alias is the shortest suffix of the name
that no other object's name shares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fanin.p4compiler import nodes
from fanin.p4compiler.source import Span, error

_MASK = 0xFFFFFFFF


def one_at_a_time(name: str) -> int:
    """Return Bob Jenkins's one-at-a-time hash, 32 bits."""
    value = 0
    for byte in name.encode():
        value = (value + byte) & _MASK
        value = (value + (value << 10)) & _MASK
        value ^= value >> 6
    value = (value + (value << 3)) & _MASK
    value ^= value >> 11
    return (value + (value << 15)) & _MASK


class Symbols:
    """Registry of a program's objects by kind and name. Call `assign` after adding all of them."""

    def __init__(self) -> None:
        self.given: dict[tuple[int, str], int | None] = {}
        self.places: dict[int, Span] = {}  # of @id annotations, by identifier
        self.ids: dict[tuple[int, str], int] = {}
        self.endings: Counter[str] = Counter()

    def add(self, kind: int, name: str, annotations: nodes.Annotations = ()) -> None:
        """Add an object. An @id among its annotations determines its identifier."""
        if (kind, name) in self.given:
            return
        number = self.given[kind, name] = _given_id(kind, annotations)
        if number is not None:
            place = next(a.span for a in annotations if a.name == "id")
            _check_new(self.places, number, place)

    def assign(self) -> None:
        """Assign all identifiers."""
        self.ids = {key: number for key, number in self.given.items() if number is not None}
        taken = set(self.ids.values())
        for kind, name in sorted(key for key, number in self.given.items() if number is None):
            value = one_at_a_time(name)
            while (number := kind << 24 | value & 0xFFFFFF) in taken:
                value += 1
            taken.add(number)
            self.ids[kind, name] = number
        self.endings = Counter(
            ending for name in {name for _, name in self.given} for ending in _endings(name)
        )

    def id(self, kind: int, name: str) -> int:
        """Return an object's identifier."""
        return self.ids[kind, name]

    def alias(self, name: str) -> str:
        """Return an object's alias."""
        return next((ending for ending in _endings(name) if self.endings[ending] == 1), name)


def _endings(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[-count:]) for count in range(1, len(parts) + 1))


def _given_id(kind: int, annotations: nodes.Annotations) -> int | None:
    number = annotation_number(annotations, "id")
    if number is None:
        return None
    if number >> 24 not in (0, kind):
        place = next(a.span for a in annotations if a.name == "id")
        raise error(
            place, f"@id 0x{number:x} has the prefix of another kind of object", f"use 0x{kind:02x}......"
        )
    return kind << 24 | number & 0xFFFFFF


def annotation_number(annotations: nodes.Annotations, name: str) -> int | None:
    """Return the number in an annotation such as @id(1), or None if there is no such annotation.

    Raises:
        CompileError: If the annotation's argument is not a number.
    """
    for annotation in annotations:
        if annotation.name == name and annotation.arguments:
            value = annotation.arguments[0]
            if not isinstance(value, nodes.Integer):
                raise error(annotation.span, f"@{name} needs a number")
            return value.value
    return None


def _check_new(places: dict[int, Span], number: int, place: Span) -> None:
    """Check that no other @id has given this identifier, and remember the place of this one."""
    first = places.setdefault(number, place)
    if first is not place:
        raise error(place, f"@id 0x{number:x} is taken", "give one of them another number", other=first)


def field_ids(annotated: list[nodes.Annotations]) -> list[int]:
    """Return the numbers of match fields, action parameters or metadata: from @id, else counted from 1.

    Raises:
        CompileError: If two have the same number.
    """
    given = [annotation_number(a, "id") for a in annotated]
    places: dict[int, Span] = {}
    for number, around in zip(given, annotated, strict=True):
        if number is not None:
            _check_new(places, number, next(a.span for a in around if a.name == "id"))
    taken = set(places)
    result = []
    index = 1
    for number in given:
        if number is None:
            while index in taken:
                index += 1
            taken.add(index)
            number = index
        else:
            index += 1
        result.append(number)
    return result
