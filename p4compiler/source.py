"""Source files, places in them, and errors with places."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple


@dataclass(frozen=True, slots=True, eq=False)
class SourceFile:
    """Text of one file: its path as the user gave it, its lines without line ends, and the number of the first line."""

    path: str
    lines: tuple[str, ...] = field(repr=False)
    first: int = 1

    def line(self, number: int) -> str:
        """Return the text of a line; empty if there is no such line."""
        index = number - self.first
        return self.lines[index] if 0 <= index < len(self.lines) else ""


class Expansion(NamedTuple):
    """Place of a token inside the macro that produced it: the macro, its file, 1-based line and 0-based column."""

    macro: str
    file: SourceFile
    line: int
    column: int


class Span(NamedTuple):
    """Range of source text: 1-based lines, 0-based columns, with an exclusive end.

    A token produced by a macro has the place of the macro call, as with cpp's line markers; `expansion` is its place in
    the macro.
    """

    file: SourceFile
    line: int
    column: int
    end_line: int
    end_column: int
    expansion: Expansion | None = None

    def to(self, last: Span) -> Span:
        """Return the range from this span to the end of `last`, or this span if `last` does not follow in its file."""
        if last.file is not self.file or (last.end_line, last.end_column) < (self.end_line, self.end_column):
            return self
        return Span(self.file, self.line, self.column, last.end_line, last.end_column, self.expansion)

    def contains(self, inner: Span) -> bool:
        """Return whether another span begins in this one."""
        begin, end = (self.line, self.column), (self.end_line, self.end_column)
        return self.file is inner.file and begin <= (inner.line, inner.column) < end

    def fragment(self) -> str:
        """Return the text of the span. Only its first line, followed by ` ...`, if it has several."""
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
    """Error or warning about a place in the source. Its string is what the user reads.

    Attributes:
        span: The place.
        message: What is wrong.
        hint: What to do about it, or None.
        severity: "error", "warning" or "info".
        option: The name of the warning, as --Wdisable and @noWarn take it, or None.
        other: The place of another declaration that conflicts with this one, or None.
        cause: What several errors may have in common, such as a name that is not declared, or None. Only the first
            error with this cause is reported.
    """

    span: Span
    message: str
    hint: str | None = None
    severity: str = "error"
    option: str | None = None
    other: Span | None = None
    cause: Hashable = None

    @property
    def identity(self) -> tuple[str, int, int, str]:
        """Return what distinguishes it from other diagnostics: its place and its message."""
        return self.span.file.path, self.span.line, self.span.column, self.message

    def __str__(self) -> str:
        span = self.span
        width = (
            span.end_column - span.column if span.end_line == span.line else len(span.file.line(span.line))
        )
        head = f"{_place(span.file, span.line, span.column)}: {self.severity}: {self.message}"
        if self.option is not None:
            head += f" [--W{self.severity.removesuffix('ing')}={self.option}]"
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
    """Failure to compile a program. `diagnostics` holds all errors found, and str() is their text."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        super().__init__("\n".join(map(str, diagnostics)))
        self.diagnostics = diagnostics


def graded(
    warnings: Iterable[Diagnostic],
    disabled: Collection[str],
    errors: Collection[str],
    warned: Collection[str],
) -> tuple[list[Diagnostic], list[Diagnostic]]:
    """Apply --Wdisable, --Werror and --Wwarn to warnings.

    Args:
        warnings: The warnings.
        disabled: Names of those to omit; "" stands for all.
        errors: Names of those that are errors; "" stands for all.
        warned: Names of those that stay warnings even so; "" stands for all.

    Returns:
        The warnings and the errors.
    """
    wanted = [w for w in warnings if "" not in disabled and w.option not in disabled]
    shown: list[Diagnostic] = []
    refused: list[Diagnostic] = []
    for warning in wanted:
        names = {"", warning.option}
        if names.intersection(errors) and not names.intersection(warned):
            refused.append(replace(warning, severity="error"))
        else:
            shown.append(warning)
    return shown, refused


TOO_DEEP = ("this is nested too deeply", "compute parts of it first, and keep them in variables or actions")


def error(
    span: Span, message: str, hint: str | None = None, *, other: Span | None = None, cause: Hashable = None
) -> CompileError:
    """Return a CompileError with one diagnostic, to be raised."""
    return CompileError([Diagnostic(span, message, hint, other=other, cause=cause)])


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with the known name closest to this one, or None. Case and underscores count least.

    Names that differ only in a number, such as parse_ipv4 and parse_ipv6, are different things rather than typos.
    """
    numbered = _NUMBERS.sub("0", name)
    names = [other for other in known if other == name or _NUMBERS.sub("0", other) != numbered]
    alike = [other for other in names if _folded(other) == _folded(name)]
    close = alike or difflib.get_close_matches(name, names, n=1)
    return f"did you mean '{close[0]}'?" if close else None


_NUMBERS = re.compile(r"\d+")


def _folded(name: str) -> str:
    return name.replace("_", "").lower()


# The names of all warnings, as --Wdisable and @noWarn take them. Those that p4c has, too, are called as there.
WARNINGS = (
    "duplicate-keys", "duplicate-priorities", "egress-port", "egress-spec", "emit-order", "emitted-twice",
    "index-out-of-range", "invalid", "invalid-header", "lost-swap", "macro-redefined", "mismatch", "never-emitted",
    "no-default-action", "no-implementation", "overflow", "parser-transition", "select-default", "stale-checksum",
    "uninitialized-out-param", "uninitialized-use", "unknown-property", "unnamed-object", "unreachable",
    "unsupported", "unused",
)  # fmt: skip


def page_of(code: str | None) -> str:
    """Return the section of the documentation that explains a warning, or a finding of `fanin lint` such as P101.

    Args:
        code: The name or code; None for a warning that the program itself gives, with #warning.
    """
    if code is None:
        return "docs/reference/messages.md"
    return f"docs/reference/{'messages' if code in WARNINGS else 'lint'}.md#{code.lower()}"


@dataclass(slots=True)
class Reporter:
    """Collector of diagnostics, so that one run reports several errors.

    A repeated message at one place counts once, and so do errors with the same cause.
    """

    errors: list[Diagnostic] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)
    silenced: list[tuple[Span, str]] = field(
        default_factory=list
    )  # declarations, and a warning not wanted in them

    def add(self, failure: CompileError) -> None:
        """Keep the diagnostics of an error and continue."""
        known = {d.identity for d in self.errors}
        causes = {d.cause for d in self.errors if d.cause is not None}
        self.errors += [d for d in failure.diagnostics if d.identity not in known and d.cause not in causes]

    def retract(self, cause: Hashable) -> None:
        """Forget the errors with this cause, which another error is about to report."""
        self.errors = [d for d in self.errors if d.cause != cause]

    def warn(
        self,
        span: Span,
        message: str,
        hint: str | None = None,
        *,
        option: str | None = None,
        other: Span | None = None,
    ) -> None:
        """Keep a warning, unless it is in a declaration marked with @noWarn and its name.

        Args:
            span: The place.
            message: What is wrong.
            hint: What to do about it.
            option: The warning's name, one of WARNINGS. None only for the program's own #warning.
            other: The place of another declaration that conflicts with this one.
        """
        assert option is None or option in WARNINGS, option
        if any(option == name and declaration.contains(span) for declaration, name in self.silenced):
            return
        warning = Diagnostic(span, message, hint, "warning", option, other)
        if all(warning.identity != w.identity for w in self.warnings):
            self.warnings.append(warning)

    def check(self) -> None:
        """Raise all errors collected so far, if any.

        Raises:
            CompileError: If there are errors.
        """
        if self.errors:
            raise CompileError(self.errors)
