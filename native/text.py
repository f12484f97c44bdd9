"""Checks of text that comes from outside: names, error messages and command lines of other programs and people."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from difflib import get_close_matches

MAX_NAME = 64  # characters
_MOST_HINTS = 3


def printable(text: str) -> str:
    """Return `text` with a replacement character for each one that could act on a terminal.

    These are control characters other than line feeds and tabs, characters that change the order of others, and
    invisible ones. Spaces of all kinds are kept.
    """
    if text.isprintable():
        return text
    return "".join(each if _is_harmless(each) else "\N{REPLACEMENT CHARACTER}" for each in text)


def is_name(text: str) -> bool:
    """Return whether `text` can be shown as a name in any table: on one line, and no longer than MAX_NAME."""
    return len(text) <= MAX_NAME and text.isprintable()


def nearest(name: str, there: Collection[str]) -> str:
    """Return a question after the names that are most like `name`, as the end of a sentence; empty if none is."""
    close = [f"{one!r}?" for one in get_close_matches(name, there, _MOST_HINTS)]
    return f"; did you mean {' or '.join(close)}" if close else ""


def _is_harmless(character: str) -> bool:
    return character.isprintable() or character in "\n\t" or unicodedata.category(character) == "Zs"
