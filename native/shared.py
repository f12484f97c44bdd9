"""Structs and numbers that Python and C both use, compared when a library is loaded; shared.h has the other side."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # it takes 0.2 s to load, and a switch process does without
    import numpy as np

Layout: TypeAlias = (
    "dict[str, tuple[int, int]]"  # offset and size in bytes by field; of the whole struct by ""
)


class SharedError(Exception):
    """Python and C have different ideas of a struct or a number that both use; names it and both values."""


class _Field(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("offset", ctypes.c_size_t), ("size", ctypes.c_size_t))


def check_structs(
    library: ctypes.CDLL, structs: Mapping[str, type[ctypes.Structure] | np.dtype[np.void]]
) -> None:
    """Compares structs, by their names in C: size, and name, offset and size of every field.

    Raises:
        SharedError: they differ.
    """
    for name, ours in structs.items():
        in_c = _layout_in_c(library, name)
        in_python = _layout_of_structure(ours) if isinstance(ours, type) else _layout_of_record(ours)
        for field in in_c | in_python:
            if in_c.get(field) != in_python.get(field):
                raise SharedError(
                    f"struct {name}{field and '.'}{field}: {_text(in_c.get(field))} in C, "
                    f"{_text(in_python.get(field))} in Python"
                )


def check_numbers(library: ctypes.CDLL, numbers: Mapping[str, float]) -> None:
    """Compares numbers, by their names in C.

    Raises:
        SharedError: they differ.
    """
    for name, ours in numbers.items():
        if (theirs := ctypes.c_double.in_dll(library, f"shared_{name}").value) != ours:
            raise SharedError(f"{name}: {theirs:.17g} in C, {ours} in Python")


def enumerated(*names: str) -> dict[str, int]:
    """The numbers of an enum of C in which these follow one another, in capitals, as check_numbers() takes them."""
    return {name.upper().replace(" ", "_"): number for number, name in enumerate(names)}


def _layout_in_c(library: ctypes.CDLL, name: str) -> Layout:
    function = library[f"shared_struct_{name}"]
    function.restype = ctypes.POINTER(_Field)
    fields = function()
    found: Layout = {}
    while (field := fields[len(found)]).name is not None:
        found[field.name.decode()] = (field.offset, field.size)
    return found


def _layout_of_structure(structure: type[ctypes.Structure]) -> Layout:
    layout = {"": (0, ctypes.sizeof(structure))}
    for name, *_ in structure._fields_:
        field = getattr(structure, name)
        layout[name.removeprefix("_")] = (field.offset, field.size)  # what is private is so in Python alone
    return layout


def _layout_of_record(record: np.dtype[np.void]) -> Layout:
    fields = {name: (offset, kind.itemsize) for name, (kind, offset, *_) in (record.fields or {}).items()}
    return {"": (0, record.itemsize), **fields}


def _text(place: tuple[int, int] | None) -> str:
    return "missing" if place is None else f"{place[1]} bytes at {place[0]}"
