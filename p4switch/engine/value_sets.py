"""Parser value sets: their members as they were written, and as masked keys in the lookup structure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import prod

from fanin.p4switch.bmv2json.program import Program, TableKey, ValueSet
from fanin.p4switch.engine.match_table import MatchTable, TableShape
from fanin.p4switch.engine.switch import RunningSwitch, locked
from fanin.p4switch.entries import (
    ActionCall,
    Entry,
    EntryKey,
    Match,
    Range,
    TableError,
    TableErrorCode,
    Ternary,
)

_MAX_KEYS = 1 << 16  # that all members together may need: a range takes several


class ValueSetState:
    """Members of one value set."""

    def __init__(self, switch: RunningSwitch, program: Program, value_set: ValueSet, address: int) -> None:
        self._switch = switch
        self.members: list[EntryKey] = []
        self._name = value_set.name
        self._size = value_set.table.max_size
        table = replace(value_set.table, max_size=_MAX_KEYS)
        self._table = MatchTable(switch, TableShape.of(program, table), address)

    @locked
    def write(self, members: list[EntryKey]) -> None:
        """Replace all members.

        Raises:
            TableError: INVALID_ARGUMENT, ALREADY_EXISTS (a duplicate), RESOURCE_EXHAUSTED.
        """
        if len(members) > self._size:
            raise self._error(TableErrorCode.RESOURCE_EXHAUSTED, f"full: {self._size} members")
        if len(set(members)) < len(members):
            raise self._error(TableErrorCode.ALREADY_EXISTS, "a member is given twice")
        keys = dict.fromkeys(key for member in members for key in self._masked(member))
        before = self._table.entries()
        self._table.clear()
        try:
            for key in keys:
                self._table.insert(Entry(key, ActionCall("")))
        except TableError:
            self._table.clear()
            for entry in before:
                self._table.insert(entry)
            raise
        self.members = list(members)

    def _masked(self, member: EntryKey) -> Iterator[EntryKey]:
        """Yield a member as keys without ranges."""
        fields = zip(member.match, self._table.table.keys, strict=True)
        choices = [
            self._prefixes(match, key) if isinstance(match, Range) else [match] for match, key in fields
        ]
        if prod(map(len, choices)) > _MAX_KEYS:
            raise self._error(TableErrorCode.RESOURCE_EXHAUSTED, "a member with too many, too wide ranges")
        for match in product(*choices):
            yield EntryKey(match, member.priority)

    def _prefixes(self, match: Range, key: TableKey) -> list[Match]:
        """Return the smallest set of prefixes that covers a range."""
        low, end = match.low, match.high + 1
        if not 0 <= low < end <= 1 << key.width:
            raise self._error(
                TableErrorCode.INVALID_ARGUMENT, f"{key.name}: {match} is empty or does not fit"
            )
        found: list[Match] = []
        while low < end:
            size = low & -low or 1 << key.width
            while low + size > end:
                size //= 2
            found.append(Ternary(low, (1 << key.width) - size))
            low += size
        return found

    def _error(self, code: TableErrorCode, message: str) -> TableError:
        return TableError(code, f"value set {self._name}: {message}")
