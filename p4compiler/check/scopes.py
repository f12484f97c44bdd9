"""Scopes of names, and the errors for names that are not declared."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from fanin.p4compiler import ir, nodes, types
from fanin.p4compiler.source import CompileError, Reporter, Span, error

Symbol = (
    types.Type | ir.Constant | ir.Text | ir.Aggregate | ir.Variable | ir.Action | ir.Table | ir.Instance | ir.Function
    | ir.Block | ir.ValueSet | list[types.Signature]
)  # fmt: skip

MAX_LISTED = 8  # the most names that a hint lists


class Scope:
    """Scope that maps names to their meaning, nested in an outer scope."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
        self.names: dict[str, Symbol] = {}

    def find(self, name: str) -> Symbol | None:
        """Return what the name refers to here, or None."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None

    def all_names(self) -> Iterable[str]:
        """Yield every name that is visible here."""
        scope: Scope | None = self
        while scope is not None:
            yield from scope.names
            scope = scope.outer


class Scopes:
    """Stack of scopes during a check: `current` is the innermost, `top` the outermost one."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self.top = self.current = Scope()
        self.broken: set[str] = set()  # names whose declarations have errors
        # declarations at the top level and in the enclosing block
        self.places: dict[str, nodes.Declaration] = {}

    @contextmanager
    def nested(self, outer: Scope | None = None) -> Iterator[Scope]:
        """Open a new scope for the body of `with`.

        Args:
            outer: The enclosing scope. None uses the current one.
        """
        before = self.current
        self.current = Scope(outer or before)
        try:
            yield self.current
        finally:
            self.current = before

    def declare(self, name: str, span: Span, symbol: Symbol) -> None:
        """Bind a name in the current scope.

        Raises:
            CompileError: If the name is bound already.
        """
        old = self.current.names.get(name)
        if isinstance(old, list) and isinstance(symbol, list):
            old += symbol  # one more signature of the same extern function
            return
        if old is not None:
            raise error(span, f"'{name}' is declared twice", "choose another name for one of them")
        self.current.names[name] = symbol

    def lookup(self, name: str, span: Span, rooted: bool = False, what: str = "name") -> Symbol:
        """Return what a name refers to.

        Raises:
            CompileError: If the name is not declared. It has no diagnostics if the declaration has an error, which is
                reported already.
        """
        scope = self.top if rooted else self.current
        symbol = scope.find(name)
        if symbol is None and name in self.broken:
            raise CompileError([])  # the error in its declaration is reported already
        if symbol is None and name in self.places:
            raise _too_early(name, span, self.places[name])
        if symbol is None:
            raise no_such(what, name, span, scope.all_names())
        return symbol

    @contextmanager
    def declaring(self, nodes_: Iterable[nodes.Node]) -> Iterator[None]:
        """Remember these declarations, so that using one before its declaration is reported as such."""
        before = self.places
        self.places = before | {n.name: n for n in nodes_ if isinstance(n, nodes.Declaration)}
        try:
            yield
        finally:
            self.places = before


def _too_early(name: str, use: Span, declaration: nodes.Declaration) -> Exception:
    """Return the error for a name that is used inside its own declaration, or before it."""
    span = declaration.span
    begin, end = (span.line, span.column), (span.end_line, span.end_column)
    if span.file is use.file and begin <= (use.line, use.column) < end:
        return error(use, f"'{name}' is used in its own declaration", "P4 has no recursion")
    # most likely applied in an action; moving the table up would fail the other way round
    if isinstance(declaration, nodes.Table):
        hint = "apply it in the control's apply block, before or after the action"
        return error(use, f"table '{name}' cannot be applied in what is declared before it", hint)
    hint = f"move its declaration, {span.file.path}:{span.line}, before this"
    return error(use, f"'{name}' is declared only further down", hint)


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with the known name closest to this one, or None."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean '{close[0]}'?" if close else None


def no_such(what: str, name: str, span: Span, known: Iterable[str]) -> Exception:
    """Return the error for a name that does not exist."""
    return error(span, f"there is no {what} '{name}'", suggestion(name, known))


def no_member(of: str, what: str, name: str, span: Span, known: Collection[str]) -> Exception:
    """Return the error for a missing member."""
    few = f"it has {', '.join(known)}" if 0 < len(known) <= MAX_LISTED else None
    return error(span, f"{of} has no {what} '{name}'", suggestion(name, known) or few)
