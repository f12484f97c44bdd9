"""Places in texts: the units that editors count in, and lines that have moved since an analysis."""

from __future__ import annotations

from dataclasses import dataclass

from fanin.p4compiler.source import Span

_BYTES = {"utf-8": 1, "utf-16": 2, "utf-32": 4}  # of a unit


def to_units(text: str, column: int, encoding: str) -> int:
    """Return a column of a line as the number of units before it.

    Args:
        text: The line.
        column: The number of characters before the place.
        encoding: "utf-8", "utf-16" or "utf-32", as agreed with the editor.
    """
    if encoding == "utf-32":
        return column
    name = "utf-16-le" if encoding == "utf-16" else encoding
    return len(text[:column].encode(name, "surrogatepass")) // _BYTES[encoding]


def from_units(text: str, units: int, encoding: str) -> int:
    """Return the number of characters before a place; a place within a character is before it."""
    if encoding == "utf-32":
        return max(0, min(units, len(text)))
    column = used = 0
    for column, character in enumerate(text):
        used += to_units(character, 1, encoding)
        if used > units:
            return column
    return len(text)


@dataclass(frozen=True, slots=True)
class Moves:
    """Places of the lines of an analysed text in the text of now.

    Lines at the beginning and the end that are equal keep their meaning. Those between have none.
    """

    begin: int  # the number of equal lines at the beginning
    end: int  # the number of the first equal line at the end of the old text
    shift: int

    @classmethod
    def between(cls, old: str, new: str) -> Moves:
        """Compare two texts."""
        if old == new:
            count = old.count("\n") + 1
            return cls(count, count, 0)
        before, after = old.split("\n"), new.split("\n")
        begin = 0
        while begin < min(len(before), len(after)) and before[begin] == after[begin]:
            begin += 1
        tail = 0
        while tail < min(len(before), len(after)) - begin and before[-1 - tail] == after[-1 - tail]:
            tail += 1
        return cls(begin, len(before) - tail, len(after) - len(before))

    def to_now(self, line: int) -> int | None:
        """Return where an old line (from 1) is now, or None if it has changed."""
        if line <= self.begin:
            return line
        return line + self.shift if line > self.end else None

    def to_old(self, line: int) -> int | None:
        """Return which old line a line of now was, or None if it is new."""
        if line <= self.begin:
            return line
        return line - self.shift if line - self.shift > self.end else None

    def nearest_old(self, line: int) -> int:
        """Return the old line that stands for a line of now: itself, or the last one before what has changed."""
        return self.to_old(line) or max(self.begin, 1)

    def span(self, span: Span) -> Span | None:
        """Return a span of the old text in the text of now, or None if a line at its ends has changed."""
        line, end = self.to_now(span.line), self.to_now(span.end_line)
        return None if line is None or end is None else span._replace(line=line, end_line=end)
