"""Numbers as 64-bit words, the high one first, for keys, action data and traces."""

from __future__ import annotations

from collections.abc import Iterable

WORD = (1 << 64) - 1


def word_count(width: int) -> int:
    """Return the number of words for a number of `width` bits."""
    return max(1, (width + 63) // 64)


def to_words(value: int, width: int) -> list[int]:
    """Split a number into words, the highest first."""
    if width <= 64:  # as nearly all are
        return [value & WORD]
    return [value >> 64 * n & WORD for n in reversed(range(word_count(width)))]


def from_words(words: Iterable[int]) -> int:
    """Join words to a number."""
    value = 0
    for word in words:
        value = value << 64 | word
    return value
