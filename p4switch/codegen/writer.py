"""Output of indented lines of C. Every line is checked, and comments are made only here (names.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fanin.p4switch.bmv2json.program import ProgramError, Source
from fanin.p4switch.codegen.names import check, comment
from fanin.p4switch.codegen.tracing import RecordKind

MAX_C_BYTES = 64 << 20  # bytes of a program's C


@dataclass(frozen=True, slots=True)
class _Line:
    code: str
    note: str = ""


class Writer:
    """Collector of lines of C; `block` indents and adds braces."""

    def __init__(self, *, traced: bool = False) -> None:
        self.traced = traced
        self._lines: list[_Line] = []
        self._bytes = 0
        self._depth = 0
        self._source: tuple[str, int] | None = None

    def line(self, code: str = "", note: str = "") -> None:
        """Add a line of code at the current indentation, with an optional comment after it."""
        indented = "    " * self._depth + check(code) if code else ""
        self._add(_Line(indented, f" {comment(note)}" if note else ""))

    def comment(self, text: str) -> None:
        """Add a line with a comment."""
        self._add(_Line("", "    " * self._depth + comment(text)))

    def trace(self, kind: RecordKind, number: object, *words: str) -> None:
        """Add a trace record of what happens here, in a traced program only; see tracing.py."""
        self.trace_line(f"TRACE(TRACE_{', '.join([kind.name, str(number), *words])});")

    def trace_line(self, text: str) -> None:
        """Add a line to a traced program only."""
        if self.traced:
            self.line(text)

    def label(self, name: str) -> None:
        """Add a label, with an empty statement so that it may end a block."""
        self._add(_Line(check(f"{name}: __attribute__((unused));")))

    def source(self, source: Source | None) -> None:
        """Add a comment with the P4 line that the next statements come from, once for each line."""
        if source is None or self._source == (source.file, source.line):
            return
        self._source = (source.file, source.line)
        self.comment(str(source))

    @contextmanager
    def block(self, head: str = "", tail: str = "", note: str = "") -> Iterator[None]:
        """Write `head {`, indent the lines written inside, then write `}` and the tail."""
        self.line(f"{head} {{".lstrip())
        self._depth += 1
        yield
        self._depth -= 1
        self.line(f"}}{tail}", note)

    def inner(self, deeper: int = 0) -> Writer:
        """Return a writer whose lines can be appended here later."""
        inner = Writer(traced=self.traced)
        inner._depth = self._depth + deeper
        return inner

    def append(self, inner: Writer) -> None:
        """Append the lines of an inner writer."""
        for line in inner._lines:
            self._add(line)

    def mentions(self, word: str) -> bool:
        """Return whether a line's code contains this word."""
        pattern = re.compile(rf"\b{re.escape(word)}\b")
        return any(pattern.search(line.code) for line in self._lines)

    def text(self) -> str:
        """Return everything written."""
        return "".join(f"{line.code}{line.note}\n" for line in self._lines)

    def _add(self, line: _Line) -> None:
        self._bytes += len(line.code) + len(line.note)
        if self._bytes > MAX_C_BYTES:
            raise ProgramError(f"the program's C would be over {MAX_C_BYTES >> 20} MiB")
        self._lines.append(line)
