"""Checks that Python and C agree on the structs and numbers that both use; shared.h has C's side."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # loading numpy takes 0.2 s, and a switch process does not need it
    import numpy as np

Layout: TypeAlias = (
    "dict[str, tuple[int, int]]"  # offset and size in bytes of each field; "" stands for the whole struct
)


class SharedError(Exception):
    """A struct or number on which Python and C disagree; the message has its name and both values."""


class _Field(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("offset", ctypes.c_size_t), ("size", ctypes.c_size_t))


def check_structs(
    library: ctypes.CDLL, structs: Mapping[str, type[ctypes.Structure] | np.dtype[np.void]]
) -> None:
    """Compare structs with those of a library: the size, and the name, offset and size of every field.

    Args:
        library: A loaded library that shares the structs with SHARE_STRUCT.
        structs: Python's version of each struct, by its name in C.

    Raises:
        SharedError: If they differ.
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
    """Compare numbers with those that a library shares with SHARE_NUMBER, by their names in C.

    Raises:
        SharedError: If they differ.
    """
    for name, ours in numbers.items():
        if (theirs := ctypes.c_double.in_dll(library, f"shared_{name}").value) != ours:
            raise SharedError(f"{name}: {theirs:.17g} in C, {ours} in Python")


def enumerated(*names: str) -> dict[str, int]:
    """Return the numbers of a C enum whose constants are `names` in capitals, in this order, for check_numbers()."""
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
        layout[name.removeprefix("_")] = (field.offset, field.size)  # only Python marks private fields
    return layout


def _layout_of_record(record: np.dtype[np.void]) -> Layout:
    fields = {name: (offset, kind.itemsize) for name, (kind, offset, *_) in (record.fields or {}).items()}
    return {"": (0, record.itemsize), **fields}


def _text(place: tuple[int, int] | None) -> str:
    return "missing" if place is None else f"{place[1]} bytes at {place[0]}"
