"""Scopes of names, and the errors for names that are not declared."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields

from fanin.p4compiler import ir, nodes, types
from fanin.p4compiler.index import Definition, NameIndex
from fanin.p4compiler.source import CompileError, Reporter, Span, error, suggestion

Symbol = (
    types.Type | ir.Constant | ir.Text | ir.Aggregate | ir.Variable | ir.Action | ir.Table | ir.Instance | ir.Function
    | ir.Block | ir.ValueSet | list[types.Signature]
)  # fmt: skip

_PRINTING = ("printf", "print", "println", "log")
MAX_LISTED = 8  # the most names that a hint lists
MAX_MEMBERS = 3  # the most fields that a hint offers for one name


class Scope:
    """Scope that maps names to their meaning, nested in an outer scope."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
        self.names: dict[str, Symbol] = {}
        self.definitions: dict[str, Definition] = {}  # only with an index

    def definition(self, name: str) -> Definition | None:
        """Return where the name that is visible here is declared, or None if that has no place."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.definitions.get(name)
            scope = scope.outer
        return None

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
    """Stack of scopes during a check: `current` is the innermost, `top` the outermost one.

    The index, if there is one, receives all declarations and all names that are looked up.
    """

    def __init__(self, reporter: Reporter, index: NameIndex | None = None) -> None:
        self.reporter = reporter
        self.index = index
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
            if self.index is not None:
                self.index.use(name, span, self.current.definitions.get(name))
            return
        if old is not None:
            raise error(span, f"'{name}' is declared twice", "choose another name for one of them")
        self.current.names[name] = symbol
        if self.index is not None:
            self.current.definitions[name] = self.index.define(name, span, symbol)

    def declare_member(self, owner: Hashable, name: str, span: Span, symbol: object) -> None:
        """Note the declaration of a member, such as a field, in the index."""
        if self.index is not None:
            self.index.define(name, span, symbol, owner)

    def use_member(self, owner: Hashable, name: str, span: Span) -> None:
        """Note the use of a member in the index."""
        if self.index is not None:
            self.index.use_member(owner, name, span)

    def lookup(
        self, name: str, span: Span, rooted: bool = False, what: str = "name", likely: Collection[str] = ()
    ) -> Symbol:
        """Return what a name refers to.

        Args:
            name: The name.
            span: Its place.
            rooted: Whether a dot before it refers to the top level.
            what: What it should be, for the message.
            likely: The names that can stand here, for the hint. Empty if any of that kind can.

        Raises:
            CompileError: If the name is not declared. It has no diagnostics if the declaration has an error, which is
                reported already.
        """
        scope = self.top if rooted else self.current
        symbol = scope.find(name)
        if self.index is not None:
            self.index.use(name, span, scope.definition(name))
        if symbol is None and name in self.broken:
            raise CompileError([])  # the error in its declaration is reported already
        if symbol is None and name in self.places:
            raise _too_early(name, span, self.places)
        if symbol is None:
            if likely:
                raise no_such(what, name, span, likely)
            raise error(
                span, f"there is no {what} '{name}'", self._hint(what, name, scope), cause=(what, name)
            )
        return symbol

    def _hint(self, what: str, name: str, scope: Scope) -> str | None:
        """Return what may be meant by a name that is not declared."""
        if what == "type":
            counterpart = types.counterpart(name)
            names = [n for n in scope.all_names() if isinstance(scope.find(n), types.Type)]
            return f"write {counterpart}" if counterpart else suggestion(name, names)
        members = self._members_named(name) if what == "name" else []
        if members:
            return f"write {' or '.join(members)}"
        symbols = {n: scope.find(n) for n in scope.all_names()}
        if what == "action":
            near = suggestion(name, [n for n, s in symbols.items() if isinstance(s, ir.Action)])
            return near or f"declare it before this: action {name}() {{ }}"
        if name in _PRINTING:
            return 'write log_msg("x = {}", {x}); which goes to the switch\'s log'
        values = [n for n, s in symbols.items() if not isinstance(s, types.Type)]
        named_like_its_type = [
            n
            for n in values
            if isinstance(s := symbols[n], ir.Variable) and str(s.type) in (name, f"{name}_t")
        ]
        if len(named_like_its_type) == 1:
            return f"did you mean '{named_like_its_type[0]}'?"
        return suggestion(name, values) or suggestion(name, symbols)

    def _members_named(self, name: str) -> list[str]:
        """Return the fields of this name in the visible headers and structs, as a program writes them."""
        scope = self.current
        values = ((n, scope.find(n)) for n in scope.all_names())
        todo = [(n, s.type) for n, s in values if isinstance(s, ir.Variable)]
        found: list[str] = []
        while todo and len(found) < MAX_MEMBERS:
            text, of = todo.pop(0)
            if isinstance(of, types.Fields):
                found += [f"{text}.{name}"] if name in of.by_name else []
                todo += [(f"{text}.{f.name}", f.type) for f in of.fields]
        return found[:MAX_MEMBERS]

    @contextmanager
    def declaring(self, nodes_: Iterable[nodes.Node]) -> Iterator[None]:
        """Remember these declarations, so that using one before its declaration is reported as such."""
        before = self.places
        self.places = before | {n.name: n for n in nodes_ if isinstance(n, nodes.Declaration)}
        try:
            yield
        finally:
            self.places = before


def _too_early(name: str, use: Span, places: Mapping[str, nodes.Declaration]) -> Exception:
    """Return the error for a name that is used inside its own declaration, or before it."""
    declaration = places[name]
    span = declaration.span
    if span.contains(use):
        return error(use, f"'{name}' is used in its own declaration", "P4 has no recursion")
    user = next((other for other in places.values() if other.span.contains(use)), None)
    if user is not None and user.name in _used(declaration, places):
        hint = f"P4 has no recursion: move what both need into a third {_kind(declaration)}"
        return error(use, f"'{user.name}' and '{name}' use each other", hint, other=span)
    # most likely applied in an action; moving the table up would fail the other way round
    if isinstance(declaration, nodes.Table):
        hint = "apply it in the control's apply block, before or after the action"
        return error(use, f"table '{name}' cannot be applied in what is declared before it", hint)
    hint = f"move its declaration, {span.file.path}:{span.line}, before this"
    return error(use, f"'{name}' is declared only further down", hint)


def _kind(node: nodes.Declaration) -> str:
    return type(node).__name__.lower()


def _used(declaration: nodes.Declaration, places: Mapping[str, nodes.Declaration]) -> set[str]:
    """Return the declarations that one uses, directly or through others."""
    used: set[str] = set()
    todo: list[object] = [declaration]
    while todo:
        node = todo.pop()
        if isinstance(node, tuple):
            todo += node
        elif isinstance(node, nodes.Node):
            if isinstance(node, nodes.Name | nodes.NamedType) and node.name in places.keys() - used:
                used.add(node.name)
                todo.append(places[node.name])
            todo += [getattr(node, f.name) for f in fields(node)]
    return used


def no_such(what: str, name: str, span: Span, known: Collection[str]) -> Exception:
    """Return the error for a name that does not exist."""
    listed = f"write one of {', '.join(known)}" if 0 < len(known) <= MAX_LISTED else None
    return error(span, f"there is no {what} '{name}'", suggestion(name, known) or listed, cause=(what, name))


def no_member(of: str, what: str, name: str, span: Span, known: Collection[str]) -> Exception:
    """Return the error for a missing member."""
    few = f"it has {', '.join(known)}" if 0 < len(known) <= MAX_LISTED else None
    return error(span, f"{of} has no {what} '{name}'", suggestion(name, known) or few, cause=(of, what, name))
