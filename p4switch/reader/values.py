"""Typed access to the items of a JSON document; what is not as it should be is a ProgramError with the item's name."""

from __future__ import annotations

from typing import Any

from p4switch.program import ProgramError, Source

Json = dict[str, Any]


def integer(number: str | int) -> int:
    """A number, or its hexadecimal digits."""
    return number if isinstance(number, int) else int(number, 16)


def text(item: Json, key: str) -> str:
    """A name."""
    value = item[key]
    if not isinstance(value, str):
        raise ProgramError(f"{item.get('name', 'an item')}: {key} is {value!r}, not a name")
    return value


def optional_text(item: Json, key: str) -> str | None:
    """A name, or null."""
    return None if item.get(key) is None else text(item, key)


def count(item: Json, key: str, default: int | None = None) -> int:
    """A number that is not negative: an id, a size, a width."""
    value = item[key] if default is None else item.get(key, default)
    if type(value) is not int or not 0 <= value < 1 << 32:
        raise ProgramError(f"{item.get('name', 'an item')}: {key} is {value!r}, not a number in 0..2^32 - 1")
    return value


def source(item: Json) -> Source | None:
    """The item's place in the P4 source."""
    info = item.get("source_info")
    if not info:
        return None
    return Source(str(info.get("filename", "")), count(info, "line", 0), str(info.get("source_fragment", "")))
