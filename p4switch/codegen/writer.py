"""Indented lines of C; every one is checked, and comments are made only here (names.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fanin.p4switch.bmv2json.program import ProgramError, Source
from fanin.p4switch.codegen.names import check, comment
from fanin.p4switch.codegen.tracing import RecordKind

MAX_C_BYTES = 64 << 20  # of a program


@dataclass(frozen=True, slots=True)
class _Line:
    code: str
    note: str = ""


class Writer:
    """Collects lines; `block` indents and braces."""

    def __init__(self, *, traced: bool = False) -> None:
        self.traced = traced
        self._lines: list[_Line] = []
        self._bytes = 0
        self._depth = 0
        self._source: tuple[str, int] | None = None

    def line(self, code: str = "", note: str = "") -> None:
        """One line at the current indentation, and what there is to say of it."""
        indented = "    " * self._depth + check(code) if code else ""
        self._add(_Line(indented, f" {comment(note)}" if note else ""))

    def comment(self, text: str) -> None:
        """A line that is a comment."""
        self._add(_Line("", "    " * self._depth + comment(text)))

    def trace(self, kind: RecordKind, number: object, *words: str) -> None:
        """A record of what happens here, in a traced program; see tracing.py."""
        self.trace_line(f"TRACE(TRACE_{', '.join([kind.name, str(number), *words])});")

    def trace_line(self, text: str) -> None:
        """A line that only a traced program has."""
        if self.traced:
            self.line(text)

    def label(self, name: str) -> None:
        """A label, with an empty statement so that it may end a block."""
        self._add(_Line(check(f"{name}: __attribute__((unused));")))

    def source(self, source: Source | None) -> None:
        """A comment with the P4 line that the next statements come from, once for each line."""
        if source is None or self._source == (source.file, source.line):
            return
        self._source = (source.file, source.line)
        self.comment(str(source))

    @contextmanager
    def block(self, head: str = "", tail: str = "", note: str = "") -> Iterator[None]:
        """`head {`, the lines written inside one level deeper, `}` and the tail."""
        self.line(f"{head} {{".lstrip())
        self._depth += 1
        yield
        self._depth -= 1
        self.line(f"}}{tail}", note)

    def inner(self, deeper: int = 0) -> Writer:
        """A writer for lines to be appended here later."""
        inner = Writer(traced=self.traced)
        inner._depth = self._depth + deeper
        return inner

    def append(self, inner: Writer) -> None:
        """The lines of an inner writer."""
        for line in inner._lines:
            self._add(line)

    def mentions(self, word: str) -> bool:
        """Whether a line's code has this word."""
        pattern = re.compile(rf"\b{re.escape(word)}\b")
        return any(pattern.search(line.code) for line in self._lines)

    def text(self) -> str:
        """Everything written."""
        return "".join(f"{line.code}{line.note}\n" for line in self._lines)

    def _add(self, line: _Line) -> None:
        self._bytes += len(line.code) + len(line.note)
        if self._bytes > MAX_C_BYTES:
            raise ProgramError(f"the program's C would be over {MAX_C_BYTES >> 20} MiB")
        self._lines.append(line)
