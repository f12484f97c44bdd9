"""Enforcement of `@entry_restriction`, `@action_restriction` and `@refers_to` on the entries of tables.

References are counted, so that each check takes the same time however many entries there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import grpc

from fanin.p4constraints.annotations import (
    ACTION_RESTRICTION,
    ENTRY_RESTRICTION,
    MULTICAST_GROUPS,
    AnnotationError,
    action_types,
    entry_types,
    referenced_table,
    references,
    restriction,
)
from fanin.p4constraints.language import Constraint, ConstraintError, Type, Value
from fanin.p4switch.entries import (
    ActionCall,
    Entry,
    EntryAction,
    EntryKey,
    Exact,
    Lpm,
    Match,
    OneShot,
    Optional_,
    Range,
    Ternary,
)
from fanin.p4switch.p4runtime.codec.matches import MatchField
from fanin.p4switch.p4runtime.codec.tables import P4InfoTable
from fanin.p4switch.p4runtime.codec.translation import Translations
from fanin.p4switch.p4runtime.errors import P4RuntimeError, invalid
from fanin.p4switch.p4runtime.proto import p4i


class _Source(NamedTuple):
    """Key field or parameter whose value refers to a key field: its position, how to encode it, and the target."""

    position: int
    encode: Callable[[int], bytes]
    table: int | None  # None: the multicast groups
    target: int  # the position of the field in the key of the table


class _Referred(NamedTuple):
    """Contents that a reference demands: values of some fields of a table's key, or the number of a multicast group."""

    table: int | None
    positions: tuple[int, ...]
    values: tuple[bytes, ...]


class Constraints:
    """Constraints of one pipeline, and the references between the entries that are installed.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT if an annotation is malformed.
    """

    def __init__(
        self,
        p4info: p4i.P4Info,
        tables: Mapping[int, P4InfoTable],
        translations: Translations,
        group_exists: Callable[[int], bool],
    ) -> None:
        self._p4info = p4info
        self._tables = tables
        self._group_exists = group_exists
        self._entries = {
            table.preamble.id: found
            for table in p4info.tables
            if (found := _parsed(table.preamble, ENTRY_RESTRICTION, entry_types(table)))
        }
        self._actions = {
            action.preamble.name: found
            for action in p4info.actions
            if (found := _parsed(action.preamble, ACTION_RESTRICTION, action_types(action)))
        }
        self._parameters = {
            action.preamble.name: [
                (
                    parameter.name,
                    None if parameter.bitwidth else translations.named(parameter.type_name.name).encode,
                )
                for parameter in action.params
            ]
            for action in p4info.actions
        }
        self._key_sources = {number: list(self._of_key(table)) for number, table in tables.items()}
        self._action_sources = {
            action.preamble.name: sources
            for action in p4info.actions
            if (sources := list(self._of_action(action, translations)))
        }
        every = [*self._key_sources.values(), *self._action_sources.values()]
        self._shapes: dict[int, set[tuple[int, ...]]] = {}
        for sources in every:
            for target, positions in _shapes(sources):
                if target is not None:
                    self._shapes.setdefault(target, set()).add(positions)
        self._later = False
        self._present: Counter[_Referred] = Counter()
        self._referring: Counter[_Referred] = Counter()
        self.is_empty = not (self._entries or self._actions or any(every))
        if not self.is_empty:
            for number, table in tables.items():
                for entry in table.installed.entries():
                    self.added(number, entry)

    def check_entry(self, table_id: int, key: EntryKey | None, action: EntryAction | None) -> None:
        """Check an entry that is to be written, before it is. `key` is None for the default entry.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT, with the constraint and the values that violate it.
        """
        table = self._tables[table_id]
        constraint = self._entries.get(table_id)
        if constraint is not None and key is not None:
            values: dict[str, Value] = {"::priority": key.priority}
            for field, info, match in zip(table.fields, table.info.match_fields, key.match, strict=True):
                values[info.name] = _value(field, match) if info.bitwidth else _string_value(field, match)
            _require(constraint, values, f"table {table.name}: @{ENTRY_RESTRICTION}")
        for call in _calls(action):
            self.check_action(call)
        if key is not None:
            self._check_references(self._key_references(table_id, key), f"table {table.name}")

    def check_action(self, call: ActionCall) -> None:
        """Check an action with its arguments.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT, with the constraint and the values that violate it.
        """
        constraint = self._actions.get(call.name)
        if constraint is not None:
            values = {
                name: value if encode is None else int.from_bytes(encode(value), "big")
                for (name, encode), value in zip(self._parameters[call.name], call.args, strict=True)
            }
            _require(constraint, values, f"action {call.name}: @{ACTION_RESTRICTION}")
        self._check_references(self._action_references(call), f"action {call.name}")

    def check_removal(self, table_id: int, key: EntryKey) -> None:
        """Check that no entry refers to one that is to be removed, unless another one has the same values.

        Raises:
            P4RuntimeError: FAILED_PRECONDITION if one does.
        """
        for referred in self._referable(table_id, key):
            if self._referring[referred] and self._present[referred] == 1:
                raise P4RuntimeError(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    f"table {self._tables[table_id].name}: {self._described(referred)} is referred to by "
                    f"{self._referring[referred]} others with @refers_to: remove those first",
                )

    @contextmanager
    def references_later(self) -> Iterator[None]:
        """Check references at the end of a `with` block, in which entries are written in any order.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT if one is not there.
        """
        self._later = True
        try:
            yield
        finally:
            self._later = False
        self._check_references(self._referring, "the entries")

    def added(self, table_id: int, entry: Entry) -> None:
        """Count an entry that has been added."""
        self._present.update(self._referable(table_id, entry.key))
        self._referring.update(self._references(table_id, entry))

    def removed(self, table_id: int, entry: Entry) -> None:
        """Forget an entry that has been removed, or replaced."""
        self._present -= Counter(self._referable(table_id, entry.key))
        self._referring -= Counter(self._references(table_id, entry))

    def member_added(self, call: ActionCall) -> None:
        """Count a member of an action profile that has been added."""
        self._referring.update(self._action_references(call))

    def member_removed(self, call: ActionCall) -> None:
        """Forget a member of an action profile that has been removed, or replaced."""
        self._referring -= Counter(self._action_references(call))

    # References

    def _of_key(self, table: P4InfoTable) -> Iterator[_Source]:
        for position, (field, info) in enumerate(zip(table.fields, table.info.match_fields, strict=True)):
            yield from self._sources(position, field.codec.encode, info.annotations, f"table {table.name}")

    def _of_action(self, action: p4i.Action, translations: Translations) -> Iterator[_Source]:
        for position, parameter in enumerate(action.params):
            encode = translations.named(parameter.type_name.name).encode
            yield from self._sources(
                position, encode, parameter.annotations, f"action {action.preamble.name}"
            )

    def _sources(
        self, position: int, encode: Callable[[int], bytes], annotations: Iterable[str], what: str
    ) -> Iterator[_Source]:
        try:
            found = list(references(annotations))
        except AnnotationError as error:
            raise invalid(f"{what}: {error}") from None
        for reference in found:
            target = referenced_table(self._p4info, reference.table)
            if target is None or target.preamble.id not in self._tables:
                if reference.table == MULTICAST_GROUPS:
                    yield _Source(position, encode, None, 0)
                continue  # a table of a larger program
            names = [field.name for field in target.match_fields]
            if reference.field not in names:
                raise invalid(f"{what}: @refers_to: table {reference.table} has no key {reference.field}")
            yield _Source(position, encode, target.preamble.id, names.index(reference.field))

    def _references(self, table_id: int, entry: Entry) -> Iterator[_Referred]:
        yield from self._key_references(table_id, entry.key)
        for call in _calls(entry.action):
            yield from self._action_references(call)

    def _key_references(self, table_id: int, key: EntryKey) -> Iterator[_Referred]:
        sources = self._key_sources[table_id]
        if sources:
            yield from _referred(sources, [_single(match) for match in key.match])

    def _action_references(self, call: ActionCall) -> Iterator[_Referred]:
        sources = self._action_sources.get(call.name)
        if sources:
            yield from _referred(sources, call.args)

    def _referable(self, table_id: int, key: EntryKey) -> Iterator[_Referred]:
        """Yield what others may refer to with the values of this key."""
        for positions in self._shapes.get(table_id, ()):
            fields = self._tables[table_id].fields
            values = [(fields[position], _single(key.match[position])) for position in positions]
            encoded = tuple(field.codec.encode(value) for field, value in values if value is not None)
            if len(encoded) == len(positions):
                yield _Referred(table_id, positions, encoded)

    def _check_references(self, referred: Iterable[_Referred], what: str) -> None:
        if self._later:
            return
        for each in referred:
            if each.table is None:
                if self._group_exists(int.from_bytes(each.values[0], "big")):
                    continue
            elif self._present[each]:
                continue
            raise invalid(f"{what}: @refers_to: there is no {self._described(each)}")

    def _described(self, referred: _Referred) -> str:
        if referred.table is None:
            return f"multicast group {int.from_bytes(referred.values[0], 'big')}"
        table = self._tables[referred.table]
        names = [table.info.match_fields[position].name for position in referred.positions]
        fields = [table.fields[position] for position in referred.positions]
        values = [
            f"{name} = {field.text(field.codec.decode(value, field.width, name))}"
            for name, field, value in zip(names, fields, referred.values, strict=True)
        ]
        return f"entry of table {table.name} with {', '.join(values)}"


def _parsed(preamble: p4i.Preamble, name: str, types: Mapping[str, Type]) -> Constraint | None:
    try:
        text = restriction(preamble.annotations, name)
        return None if text is None else Constraint.parse(text, types)
    except (AnnotationError, ConstraintError) as error:
        raise invalid(f"@{name} of {preamble.name} is malformed: {error}") from None


def _require(constraint: Constraint, values: Mapping[str, Value], what: str) -> None:
    clause = constraint.violated(values)
    if clause is not None:
        given = ", ".join(f"{name} = {_shown(values[name])}" for name in clause.names)
        raise invalid(f"{what} is violated: {clause.text}" + (f"; here {given}" if given else ""))


def _shown(value: Value) -> str:
    return f"{value:#x}" if isinstance(value, int) else f"({value[0]:#x}, {value[1]:#x})"


def _value(field: MatchField, match: Match) -> Value:
    """Return a match as constraints see it."""
    full = (1 << min(field.width, field.given)) - 1
    match match:
        case Lpm(value, length):
            return value, length + field.given - field.width if length else 0
        case Ternary(value, mask):
            return value, mask
        case Range(low, high):
            return low, high
        case Optional_(value):
            return (0, 0) if value is None else (value, full)
        case Exact(value):
            return value if field.kind == "exact" else (value, full)


def _string_value(field: MatchField, match: Match) -> Value:
    """Return what constraints see for a match of a string of the control plane: the number that its bytes make."""
    value = _single(match)
    number = 0 if value is None else int.from_bytes(field.codec.encode(value), "big")
    return (number, 0 if value is None else -1) if field.kind == "optional" else number


def _single(match: Match) -> int | None:
    """Return the value of a match that has a single one, to which others may refer; else None."""
    match match:
        case Exact(value) | Optional_(int() as value):
            return value
    return None


def _calls(action: EntryAction | None) -> Iterator[ActionCall]:
    match action:
        case ActionCall():
            yield action
        case OneShot(choices):
            yield from (call for call, _ in choices)


def _shapes(sources: Iterable[_Source]) -> Iterator[tuple[int | None, tuple[int, ...]]]:
    """Yield each table that is referred to, with the positions of the fields that one of its entries must have."""
    targets: dict[int | None, set[int]] = {}
    for source in sources:
        targets.setdefault(source.table, set()).add(source.target)
    for table, positions in targets.items():
        yield table, tuple(sorted(positions))


def _referred(sources: Iterable[_Source], values: Iterable[int | None]) -> Iterator[_Referred]:
    """Yield what these values refer to. All references to one table mean the same entry of it."""
    by_position = list(values)
    found: dict[int | None, dict[int, bytes]] = {}
    for source in sources:
        value = by_position[source.position]
        if value is not None:
            found.setdefault(source.table, {})[source.target] = source.encode(value)
    for table, fields in found.items():
        positions = tuple(sorted(fields))
        yield _Referred(table, positions, tuple(fields[position] for position in positions))
