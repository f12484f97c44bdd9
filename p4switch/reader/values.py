"""Typed access to the items of a JSON document; what is not as it should be is a ProgramError with the item's name."""

from __future__ import annotations

from collections.abc import Iterator
from traceback import walk_tb
from typing import Any

from p4switch.program import ProgramError, Source

Json = dict[str, Any]
_DEEPEST = 12  # nested items in the name of one


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


def in_hand(document: Json, error: Exception) -> str:
    """The innermost item of a document that was being read when the error came, such as `actions[2].primitives[0]`."""
    names, found = {id(item): name for item, name in _items(document, "")}, ""
    for frame, _ in walk_tb(error.__traceback__):
        known = (names.get(id(value), "") for value in frame.f_locals.values())
        found = max(known, key=lambda name: name.count(".") + name.count("["), default="") or found
    return found or "the top level"


def _items(item: Any, name: str, depth: int = 0) -> Iterator[tuple[Any, str]]:
    """Objects and arrays with the way to them, but for those so deep inside that it would say nothing."""
    yield item, name
    if depth < _DEEPEST:
        for key, value in item.items() if isinstance(item, dict) else enumerate(item):
            if isinstance(value, (dict, list)):
                inner = f"{name}[{key}]" if isinstance(item, list) else f"{name}.{key}".lstrip(".")
                yield from _items(value, inner, depth + 1)
