"""Indented lines of C."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from p4switch.codegen.names import comment
from p4switch.codegen.tracing import Kind
from p4switch.program import Source


class Writer:
    """Collects lines; `block` indents and braces."""

    def __init__(self, *, traced: bool = False) -> None:
        self.traced = traced
        self._lines: list[str] = []
        self._depth = 0
        self._source: tuple[str, int] | None = None

    def line(self, text: str = "") -> None:
        """One line at the current indentation."""
        self._lines.append("    " * self._depth + text if text else "")

    def trace(self, kind: Kind, number: object, *words: str) -> None:
        """A record of what happens here, in a traced program; see tracing.py."""
        self.trace_line(f"TRACE(TRACE_{', '.join([kind.name, str(number), *words])});")

    def trace_line(self, text: str) -> None:
        """A line that only a traced program has."""
        if self.traced:
            self.line(text)

    def label(self, name: str) -> None:
        """A label, with an empty statement so that it may end a block."""
        self._lines.append(f"{name}: __attribute__((unused));")

    def source(self, source: Source | None) -> None:
        """A comment with the P4 line that the next statements come from, once for each line."""
        if source is None or self._source == (source.file, source.line):
            return
        self._source = (source.file, source.line)
        self.line(f"/* {comment(source.file)}:{source.line}: {comment(source.fragment)} */")

    @contextmanager
    def block(self, head: str = "", tail: str = "") -> Iterator[None]:
        """`head {`, the lines written inside one level deeper, `}` and the tail."""
        self.line(f"{head} {{".lstrip())
        self._depth += 1
        yield
        self._depth -= 1
        self.line(f"}}{tail}")

    def inner(self, deeper: int = 0) -> Writer:
        """A writer for lines to be appended here later."""
        inner = Writer(traced=self.traced)
        inner._depth = self._depth + deeper
        return inner

    def append(self, inner: Writer) -> None:
        """The lines of an inner writer."""
        self._lines += inner._lines

    def mentions(self, word: str) -> bool:
        """Whether a line has this word."""
        pattern = re.compile(rf"\b{re.escape(word)}\b")
        return any(pattern.search(line) for line in self._lines)

    def text(self) -> str:
        """Everything written."""
        return "\n".join(self._lines) + "\n"
