"""Scopes: names and what they mean, and the errors for those that mean nothing."""

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

MAX_LISTED = 8  # names that a hint lists


class Scope:
    """Names and what they mean, inside an outer scope."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
        self.names: dict[str, Symbol] = {}

    def find(self, name: str) -> Symbol | None:
        """What the name means here, or None."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None

    def all_names(self) -> Iterable[str]:
        """Every name that can be seen from here."""
        scope: Scope | None = self
        while scope is not None:
            yield from scope.names
            scope = scope.outer


class Scopes:
    """The scopes around what is being checked: `current` is the innermost, `top` the outermost one."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self.top = self.current = Scope()
        self.broken: set[str] = set()  # names whose declarations have errors
        self.places: dict[str, nodes.Declaration] = {}  # at the top level and in the block around

    @contextmanager
    def nested(self, outer: Scope | None = None) -> Iterator[Scope]:
        """A new scope for the body of `with`, inside `outer` (None: the current one)."""
        before = self.current
        self.current = Scope(outer or before)
        try:
            yield self.current
        finally:
            self.current = before

    def declare(self, name: str, span: Span, symbol: Symbol) -> None:
        """Give a name its meaning in the current scope.

        Raises:
            CompileError: it has one already.
        """
        old = self.current.names.get(name)
        if isinstance(old, list) and isinstance(symbol, list):
            old += symbol  # another signature of the same extern function
            return
        if old is not None:
            raise error(span, f"'{name}' is declared twice", "choose another name for one of them")
        self.current.names[name] = symbol

    def lookup(self, name: str, span: Span, rooted: bool = False, what: str = "name") -> Symbol:
        """What a name means.

        Raises:
            CompileError: it means nothing; without a text if its declaration is what is wrong, and reported.
        """
        scope = self.top if rooted else self.current
        symbol = scope.find(name)
        if symbol is None and name in self.broken:
            raise CompileError([])  # the error is in its declaration, and reported there
        if symbol is None and name in self.places:
            raise _too_early(name, span, self.places[name])
        if symbol is None:
            raise no_such(what, name, span, scope.all_names())
        return symbol

    @contextmanager
    def declaring(self, nodes_: Iterable[nodes.Node]) -> Iterator[None]:
        """While these are checked one after the other, an error for one that is used too early says so."""
        before = self.places
        self.places = before | {n.name: n for n in nodes_ if isinstance(n, nodes.Declaration)}
        try:
            yield
        finally:
            self.places = before


def _too_early(name: str, use: Span, declaration: nodes.Declaration) -> Exception:
    """The error for a name that is used inside its own declaration, or before it."""
    span = declaration.span
    begin, end = (span.line, span.column), (span.end_line, span.end_column)
    if span.file is use.file and begin <= (use.line, use.column) < end:
        return error(use, f"'{name}' is used in its own declaration", "P4 has no recursion")
    if isinstance(declaration, nodes.Table):  # an action, most likely; the other way round would be as wrong
        hint = "apply it in the control's apply block, before or after the action"
        return error(use, f"table '{name}' cannot be applied in what is declared before it", hint)
    hint = f"move its declaration, {span.file.path}:{span.line}, before this"
    return error(use, f"'{name}' is declared only further down", hint)


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """A hint with the known name that is most like this one."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean '{close[0]}'?" if close else None


def no_such(what: str, name: str, span: Span, known: Iterable[str]) -> Exception:
    """The error for a name that does not exist."""
    return error(span, f"there is no {what} '{name}'", suggestion(name, known))


def no_member(of: str, what: str, name: str, span: Span, known: Collection[str]) -> Exception:
    """The error for a member that something does not have."""
    few = f"it has {', '.join(known)}" if 0 < len(known) <= MAX_LISTED else None
    return error(span, f"{of} has no {what} '{name}'", suggestion(name, known) or few)
