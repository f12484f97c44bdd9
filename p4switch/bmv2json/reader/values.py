"""Typed access to the items of a JSON document; what is not as it should be is a ProgramError with the item's name."""

from __future__ import annotations

from collections.abc import Iterator
from traceback import walk_tb
from typing import Any

from fanin.p4switch.bmv2json.program import ProgramError, Source

Json = dict[str, Any]
MAX_WIDTH = 1 << 13  # bits of a number, which Python writes in decimal, too; p4c's own limit is 2,048
_MAX_DIGITS = 1 << 14  # hexadecimal: those of a whole transition key, too
_MAX_NAME = 1024  # characters
_DEEPEST = 12  # nested items in the name of one
_NEVER_IN_NAMES = ("*/", "/*", "//", "??", "\\", '"')


def integer(number: Any) -> int:
    """A number, or its hexadecimal digits.

    Raises:
        ProgramError: it is none, or too long.
    """
    if type(number) is int and number.bit_length() <= 4 * _MAX_DIGITS:
        return number
    if not isinstance(number, str) or len(number) > _MAX_DIGITS:
        raise ProgramError(f"{_shown(number)} is not a number of up to {_MAX_DIGITS} hexadecimal digits")
    return int(number, 16)


def checked_name(value: Any, what: str) -> str:
    """A name: printable, and without what would mean something to a reader of C. `what` it is the name of.

    Raises:
        ProgramError: it is none.
    """
    if not isinstance(value, str):
        raise ProgramError(f"{what} is {_shown(value)}, not a name")
    if len(value) > _MAX_NAME:
        raise ProgramError(f"{what} is {_shown(value)}: a name has at most {_MAX_NAME} characters")
    found = "" if value.isprintable() else next(c for c in value if not c.isprintable())
    found = found or next((text for text in _NEVER_IN_NAMES if text in value), "")
    if found:
        raise ProgramError(f"{what} is {_shown(value)}: {_shown(found)} cannot be in a name")
    return value


def text(item: Json, key: str) -> str:
    """A name."""
    return checked_name(item[key], f"{key} of {_shown(item.get('name', 'an item'))}")


def message(value: Any, where: str) -> str:
    """A text to be written to the log: printable, in lines.

    Raises:
        ProgramError: it is none.
    """
    if not isinstance(value, str) or not all(c.isprintable() or c in "\n\t" for c in value):
        raise ProgramError(f"{where}: {_shown(value)} is not a text that can be logged")
    return value


def _shown(value: Any) -> str:
    """The value in an error."""
    shown = ascii(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}…"


def optional_text(item: Json, key: str) -> str | None:
    """A name, or null."""
    return None if item.get(key) is None else text(item, key)


def count(item: Json, key: str, default: int | None = None) -> int:
    """A number that is not negative: an id, a size, a width.

    Raises:
        ProgramError: it is none, or above 2^32 - 1.
    """
    value = item[key] if default is None else item.get(key, default)
    if type(value) is not int or not 0 <= value < 1 << 32:
        named = _shown(item.get("name", "an item"))
        raise ProgramError(f"{key} of {named} is {_shown(value)}, not a number in 0..2^32 - 1")
    return value


def bit_width(item: Json, key: str) -> int:
    """The bits of a number.

    Raises:
        ProgramError: it is no number of bits, or more than the switch has.
    """
    bits = count(item, key)
    if bits > MAX_WIDTH:
        raise ProgramError(
            f"{key} of {_shown(item.get('name', 'an item'))} is {bits}: at most {MAX_WIDTH} bits"
        )
    return bits


def source(item: Json) -> Source | None:
    """The item's place in the P4 source."""
    info = item.get("source_info")
    if not info:
        return None
    file, fragment = (_one_line(info.get(key, "")) for key in ("filename", "source_fragment"))
    return Source(file, count(info, "line", 0), fragment)


def _one_line(value: Any) -> str:
    """Any text of a P4 file, as it can be shown."""
    line = " ".join(str(value).split())
    return line if line.isprintable() else "".join(c if c.isprintable() else "?" for c in line)


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
