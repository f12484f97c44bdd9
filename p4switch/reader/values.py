"""Typed access to the items of a JSON document. A wrong item is raised as ProgramError with its name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from traceback import walk_tb
from typing import Any

from fanin.p4switch.bmv2json.program import ProgramError, Source

Json = dict[str, Any]
MAX_WIDTH = 1 << 13  # bits; p4c's own limit is 2,048, and Python also writes numbers in decimal
_MAX_DIGITS = 1 << 14  # hexadecimal digits, enough for a whole transition key
_MAX_NAME = 1024  # characters
_DEEPEST = 12  # nested items in the name of one
_NEVER_IN_NAMES = re.compile(r'\*/|/\*|//|\?\?|\\|"')


def integer(number: Any) -> int:
    """Return an integer, given as a number or as hexadecimal digits.

    Raises:
        ProgramError: If it is not a number, or too long.
    """
    if type(number) is int and number.bit_length() <= 4 * _MAX_DIGITS:
        return number
    if not isinstance(number, str) or len(number) > _MAX_DIGITS:
        raise ProgramError(f"{_shown(number)} is not a number of up to {_MAX_DIGITS} hexadecimal digits")
    return int(number, 16)


def checked_name(value: Any, what: str) -> str:
    """Return a name that is printable and contains nothing with a meaning in C. `what` describes what it names.

    Raises:
        ProgramError: If it is not such a name.
    """
    if not isinstance(value, str):
        raise ProgramError(f"{what} is {_shown(value)}, not a name")
    if len(value) > _MAX_NAME:
        raise ProgramError(f"{what} is {_shown(value)}: a name has at most {_MAX_NAME} characters")
    if not value.isprintable():
        found = next(c for c in value if not c.isprintable())
    elif never := _NEVER_IN_NAMES.search(value):
        found = never[0]
    else:
        return value
    raise ProgramError(f"{what} is {_shown(value)}: {_shown(found)} cannot be in a name")


def text(item: Json, key: str) -> str:
    """Return a name."""
    return checked_name(item[key], f"{key} of {_shown(item.get('name', 'an item'))}")


def message(value: Any, where: str) -> str:
    """Return a text for the log, which consists of printable characters, newlines and tabs.

    Raises:
        ProgramError: If it is not such a text.
    """
    if not isinstance(value, str) or not all(c.isprintable() or c in "\n\t" for c in value):
        raise ProgramError(f"{where}: {_shown(value)} is not a text that can be logged")
    return value


def _shown(value: Any) -> str:
    """Format a value for an error message."""
    shown = ascii(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}…"


def optional_text(item: Json, key: str) -> str | None:
    """Return a name, or None for null."""
    return None if item.get(key) is None else text(item, key)


def count(item: Json, key: str, default: int | None = None) -> int:
    """Return a number that is not negative, such as an id, a size or a width.

    Raises:
        ProgramError: If it is not such a number, or above 2^32 - 1.
    """
    value = item[key] if default is None else item.get(key, default)
    if type(value) is not int or not 0 <= value < 1 << 32:
        named = _shown(item.get("name", "an item"))
        raise ProgramError(f"{key} of {named} is {_shown(value)}, not a number in 0..2^32 - 1")
    return value


def bit_width(item: Json, key: str) -> int:
    """Return a width in bits.

    Raises:
        ProgramError: If it is not a number, or more than the switch supports.
    """
    bits = count(item, key)
    if bits > MAX_WIDTH:
        raise ProgramError(
            f"{key} of {_shown(item.get('name', 'an item'))} is {bits}: at most {MAX_WIDTH} bits"
        )
    return bits


def source(item: Json) -> Source | None:
    """Return the item's place in the P4 source, or None."""
    info = item.get("source_info")
    if not info:
        return None
    file, fragment = _one_line(info.get("filename", "")), _one_line(info.get("source_fragment", ""))
    return Source(file, count(info, "line", 0), fragment)


def _one_line(value: Any) -> str:
    """Return any text of a P4 file as one printable line."""
    line = " ".join(str(value).split())
    return line if line.isprintable() else "".join(c if c.isprintable() else "?" for c in line)


def item_being_read(document: Json, error: Exception) -> str:
    """Return the path of the innermost item being read when an error occurred, as `actions[2].primitives[0]`."""
    names, found = {id(item): name for item, name in _items(document, "")}, ""
    for frame, _ in walk_tb(error.__traceback__):
        known = (names.get(id(value), "") for value in frame.f_locals.values())
        found = max(known, key=lambda name: name.count(".") + name.count("["), default="") or found
    return found or "the top level"


def _items(item: Any, name: str, depth: int = 0) -> Iterator[tuple[Any, str]]:
    """Yield objects and arrays with their paths, down to a depth at which paths are still readable."""
    yield item, name
    if depth < _DEEPEST:
        for key, value in item.items() if isinstance(item, dict) else enumerate(item):
            if isinstance(value, (dict, list)):
                inner = f"{name}[{key}]" if isinstance(item, list) else f"{name}.{key}".lstrip(".")
                yield from _items(value, inner, depth + 1)
