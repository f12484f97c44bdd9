"""An index of a program: what each name means and where it is declared. The checker fills it, for editors."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path

from fanin.p4compiler import ir
from fanin.p4compiler.source import Span


@dataclass(slots=True, eq=False)
class Definition:
    """Declaration of a name.

    Attributes:
        name: The name.
        span: Where the declaration gives it.
        symbol: What it stands for: a type, variable, action, table, and so on, as in the checker's scopes; for a field
            its type, for a macro the macro.
        owner: The type, parser or other object that it is a member of, or None.
        uses: All places with this name that mean it, including those of its declarations.
    """

    name: str
    span: Span
    symbol: object
    owner: object = None
    uses: list[Span] = field(default_factory=list)


class Index:
    """All definitions of a program, and the places that use them.

    Names that come out of a macro have no place of their own, and are left out.
    """

    def __init__(self) -> None:
        self.definitions: list[Definition] = []
        self.paths: dict[str, Path] = {}  # the files, by their names in spans
        self.includes: list[tuple[Span, Path]] = []  # the files that directives name
        self._places: dict[tuple[str, int], dict[int, tuple[Span, Definition]]] = {}
        self._members: dict[tuple[Hashable, str], Definition] = {}
        self._variables: dict[ir.Variable, Definition] = {}

    def define(self, name: str, span: Span, symbol: object, owner: Hashable = None) -> Definition:
        """Add a declaration, of a member if it has an owner."""
        made = Definition(name, span, symbol, owner)
        if owner is not None:
            made = self._members.setdefault((owner, name), made)
        if made.span is span:
            self.definitions.append(made)
            if isinstance(symbol, ir.Variable):
                self._variables[symbol] = made
        self.use(name, span, made)
        return made

    def use(self, name: str, span: Span, definition: Definition | None) -> None:
        """Add a place that means a definition. The name is at the beginning of the span, perhaps after a dot."""
        if definition is None or span.expansion is not None:
            return
        file, number, column = span[:3]
        text = file.line(number)
        while text[column : column + 1] in (".", " "):
            column += 1
        if not text.startswith(name, column):
            return
        line = self._places.setdefault((file.path, number), {})
        if column not in line:
            place = Span(file, number, column, number, column + len(name))
            line[column] = (place, definition)
            definition.uses.append(place)

    def use_member(self, owner: Hashable, name: str, span: Span) -> None:
        """Add a place that means a member."""
        self.use(name, span, self._members.get((owner, name)))

    def use_variable(self, variable: ir.Variable, name: str, span: Span) -> None:
        """Add a place that means a variable or parameter."""
        self.use(name, span, self._variables.get(variable))

    def at(self, path: Path, line: int, column: int) -> tuple[Span, Definition] | None:
        """Return the name at a place, which may also be the end of the name, and what it means."""
        for shown in (shown for shown, real in self.paths.items() if real == path):
            for place, definition in self._places.get((shown, line), {}).values():
                if place.column <= column <= place.end_column:
                    return place, definition
        return None
