"""Unique names for what the compiler creates."""

from __future__ import annotations

import itertools
from collections.abc import Iterable


class Names:
    """Generator of unused names; `first` is the number of the first serial name."""

    def __init__(self, taken: Iterable[str] = (), first: int = 0) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}  # by name: every smaller number is taken
        self._serial = itertools.count(first)

    def take(self, names: Iterable[str]) -> None:
        """Reserve these names."""
        self._taken.update(names)

    def unique(self, name: str) -> str:
        """Return the name itself, or a numbered one if it is taken."""
        if name in self._taken:
            return self.numbered(name)
        self._taken.add(name)
        return name

    def numbered(self, name: str) -> str:
        """Return the name with the first free number: `name_0`, `name_1` and so on."""
        number = self._next.get(name, 0)
        while f"{name}_{number}" in self._taken:
            number += 1
        self._next[name] = number + 1
        self._taken.add(f"{name}_{number}")
        return f"{name}_{number}"

    def serial(self, name: str) -> str:
        """Return `name$N`, which no program can write. N counts all serial names."""
        return f"{name}${next(self._serial)}"
