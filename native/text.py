"""Checks of text that comes from outside: names, error messages and command lines of other programs and people."""

from __future__ import annotations

from collections.abc import Collection

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


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, such as `1 packet` or `1,024 packets`.

    Args:
        number: The number.
        noun: What is counted, in the singular.
        plural: Its plural. Without it, the noun gets an s.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def nearest(name: str, there: Collection[str], then: str = "") -> str:
    """Return the end of a message: which name was perhaps meant, and what follows.

    Of names with a kind before a colon, the rest has to be alike, too: `lesson:none` is like no lesson.

    Args:
        name: The name that is not known.
        there: All names that are.
        then: What follows, in small letters.

    Returns:
        `; did you mean 'loss'? There are …`, or `; there are …` if no name is like it.
    """
    from difflib import get_close_matches  # not above: few processes give hints

    close = [
        repr(one)
        for one in get_close_matches(name, there, len(there) or 1)
        if ":" not in one or get_close_matches(name.partition(":")[2], [one.partition(":")[2]])
    ][:_MOST_HINTS]
    if not close:
        return f"; {then}" if then else ""
    meant = f"; did you mean {' or '.join(filter(None, [', '.join(close[:-1]), close[-1]]))}?"
    return f"{meant} {then[0].upper()}{then[1:]}" if then else meant


def _is_harmless(character: str) -> bool:
    import unicodedata  # not above: it takes 0.7 MB of memory, which each switch would have

    return character.isprintable() or character in "\n\t" or unicodedata.category(character) == "Zs"
