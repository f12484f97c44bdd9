"""Numbers in 64-bit words, the high one first: in keys, in actions' data, in traces."""

from __future__ import annotations

from collections.abc import Iterable

WORD = (1 << 64) - 1


def word_count(width: int) -> int:
    """How many words a number of `width` bits takes."""
    return max(1, (width + 63) // 64)


def to_words(value: int, width: int) -> list[int]:
    """A number's words."""
    if width <= 64:  # as nearly all are
        return [value & WORD]
    return [value >> 64 * n & WORD for n in reversed(range(word_count(width)))]


def from_words(words: Iterable[int]) -> int:
    """The number that has these words."""
    value = 0
    for word in words:
        value = value << 64 | word
    return value
