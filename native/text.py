"""Checks of text that comes from outside: names, error messages and command lines of other programs and people."""

from __future__ import annotations

from collections.abc import Collection, Sequence

MAX_NAME = 64  # characters
_MOST_HINTS = 3
# Names are alike from this ratio of equal characters on (2 * equal / all), and as long as none is better by _WORSE:
# `loss` is like `lost`, `lateness` is not like `latency`.
_ALIKE, _WORSE = 0.75, 0.1


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
    """Return the end of a message: which name was perhaps meant, as its spelling is nearly the same, and what follows.

    Args:
        name: The name that is not known.
        there: All names that are.
        then: What follows, in small letters.

    Returns:
        `; did you mean 'loss'? There are …`, or `; there are …` if no name is like it.
    """
    return did_you_mean(alike(name, there)[:_MOST_HINTS], then)


def alike(name: str, there: Collection[str]) -> list[str]:
    """Return the names that are spelled nearly as `name` is, the nearest first.

    Of names with a kind before a colon, the rest has to be alike, too: `lesson:none` is like no lesson.
    """
    from difflib import SequenceMatcher, get_close_matches  # not above: few processes give hints

    close = [
        one
        for one in get_close_matches(name, there, len(there) or 1, _ALIKE)
        if ":" not in one or get_close_matches(name.partition(":")[2], [one.partition(":")[2]])
    ]
    ratios = [SequenceMatcher(None, one, name).ratio() for one in close]
    return [one for one, ratio in zip(close, ratios, strict=True) if ratio > max(ratios) - _WORSE]


def did_you_mean(names: Sequence[str], then: str = "") -> str:
    """Return the end of a message that suggests these names, and then what follows, as nearest() does."""
    if not names:
        return f"; {then}" if then else ""
    *others, last = map(repr, names)
    meant = f"; did you mean {' or '.join(filter(None, [', '.join(others), last]))}?"
    return f"{meant} {then[0].upper()}{then[1:]}" if then else meant


def _is_harmless(character: str) -> bool:
    import unicodedata  # not above: it takes 0.7 MB of memory, which each switch would have

    return character.isprintable() or character in "\n\t" or unicodedata.category(character) == "Zs"
