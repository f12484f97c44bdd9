"""Source files, places in them, and the errors that name those places."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True, eq=False)
class SourceFile:
    """One file's text: its path as the user named it, its lines without line ends, and the number of the first."""

    path: str
    lines: tuple[str, ...] = field(repr=False)
    first: int = 1

    def line(self, number: int) -> str:
        """The text of a line; nothing if there is no such line."""
        index = number - self.first
        return self.lines[index] if 0 <= index < len(self.lines) else ""


class Expansion(NamedTuple):
    """Where a token that a macro wrote is spelled: the macro, its file, 1-based line and 0-based column."""

    macro: str
    file: SourceFile
    line: int
    column: int


class Span(NamedTuple):
    """A piece of source: 1-based lines, 0-based columns, the end exclusive.

    What a macro wrote is placed where the macro was called (as cpp's line markers would have it); `expansion` says
    where it is spelled.
    """

    file: SourceFile
    line: int
    column: int
    end_line: int
    end_column: int
    expansion: Expansion | None = None

    def to(self, last: Span) -> Span:
        """From this span's start to the end of `last`; this span alone if `last` is not after it in the same file."""
        if last.file is not self.file or (last.end_line, last.end_column) < (self.end_line, self.end_column):
            return self
        return Span(self.file, self.line, self.column, last.end_line, last.end_column, self.expansion)

    def fragment(self) -> str:
        """The text of the span, its first line only (then with ` ...`)."""
        text = self.file.line(self.line)
        if self.end_line > self.line:
            return text[self.column :] + " ..."
        return text[self.column : self.end_column]


def _place(file: SourceFile, line: int, column: int) -> str:
    return f"{file.path}:{line}:{column + 1}"


def _excerpt(file: SourceFile, line: int, column: int, width: int) -> list[str]:
    text = file.line(line)
    if not text:
        return []
    # A caret line copies the tabs of the line above it, so that the caret stands below its character at any tab width.
    indent = "".join("\t" if c == "\t" else " " for c in text[:column])
    return [f"  {text}", f"  {indent}^" + "~" * (max(min(width, len(text) - column), 1) - 1)]


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error or warning about a place in the source; its string is what the user reads.

    `option` is p4c's name for such warnings, as its options --Wwarn and --Werror take it; None where it has none.
    `other` is where something else is that this collides with.
    """

    span: Span
    message: str
    hint: str | None = None
    severity: str = "error"
    option: str | None = None
    other: Span | None = None

    @property
    def identity(self) -> tuple[str, int, int, str]:
        """What makes it another diagnostic than others: its place, and what it says there."""
        return self.span.file.path, self.span.line, self.span.column, self.message

    def __str__(self) -> str:
        span = self.span
        width = (
            span.end_column - span.column if span.end_line == span.line else len(span.file.line(span.line))
        )
        head = f"{_place(span.file, span.line, span.column)}: {self.severity}: {self.message}"
        if self.option is not None:
            head += f" [--W{'warn' if self.severity == 'warning' else 'error'}={self.option}]"
        lines = [head]
        lines += _excerpt(span.file, span.line, span.column, width)
        if span.expansion is not None:
            macro, file, line, column = span.expansion
            lines.append(f"{_place(file, line, column)}: note: in the expansion of macro '{macro}'")
            lines += _excerpt(file, line, column, 1)
        if self.other is not None:
            file, line, column, _, end, _ = self.other
            lines.append(f"{_place(file, line, column)}: note: the other is here")
            lines += _excerpt(file, line, column, end - column)
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class CompileError(Exception):
    """The program cannot be compiled; `diagnostics` holds every error found, str() is all of them as text."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        super().__init__("\n".join(map(str, diagnostics)))
        self.diagnostics = diagnostics


TOO_DEEP = ("this is nested too deeply", "compute parts of it first, and keep them in variables or actions")


def error(span: Span, message: str, hint: str | None = None, *, other: Span | None = None) -> CompileError:
    """A CompileError of one diagnostic, to be raised."""
    return CompileError([Diagnostic(span, message, hint, other=other)])


@dataclass(slots=True)
class Reporter:
    """Collects diagnostics, so that one run reports several errors; the same message at the same place counts once."""

    errors: list[Diagnostic] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)

    def add(self, failure: CompileError) -> None:
        """Keep the diagnostics of an error and go on."""
        known = {d.identity for d in self.errors}
        self.errors += [d for d in failure.diagnostics if d.identity not in known]

    def warn(
        self,
        span: Span,
        message: str,
        hint: str | None = None,
        *,
        option: str | None = None,
        other: Span | None = None,
    ) -> None:
        """Keep a warning; `option` is p4c's name for it, `other` is where something else is that this collides with."""
        warning = Diagnostic(span, message, hint, "warning", option, other)
        if all(warning.identity != w.identity for w in self.warnings):
            self.warnings.append(warning)

    def check(self) -> None:
        """End here if there were errors.

        Raises:
            CompileError: there were, all of them.
        """
        if self.errors:
            raise CompileError(self.errors)
