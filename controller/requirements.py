"""A check that a program has everything that the controller writes and reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path

from finsy.proto import p4i

from fanin.controller.errors import ProgramMismatchError
from fanin.controller.plan import Plan, TableEntry

PROGRAM = Path(__file__).parents[1] / "p4src" / "fanin.p4"  # has everything that our plans write

_LPM, _EXACT = p4i.MatchField.LPM, p4i.MatchField.EXACT


@dataclass(slots=True)
class _Wanted:
    """A table that plans write to: its keys, and the parameters of each action, by name."""

    keys: Mapping[str, p4i.MatchField.MatchType.ValueType]
    purpose: str
    actions: dict[str, Sequence[str]] = field(default_factory=dict)


class _Described:
    """The tables, actions and counters of a P4Info by their full names."""

    def __init__(self, info: p4i.P4Info) -> None:
        self.tables = {table.preamble.name: table for table in info.tables}
        self.actions = {action.preamble.name: action for action in info.actions}
        self.counters = {counter.preamble.name: counter for counter in info.counters}
        self._names = {action.preamble.id: action.preamble.name for action in info.actions}

    def actions_of(self, table: str) -> set[str]:
        return {self._names[ref.id] for ref in self.tables[table].action_refs}

    def key_width(self, table: str, key: str) -> int | None:
        """Return a key's width in bits; None if there is no such key."""
        found = self.tables.get(table, p4i.Table()).match_fields
        return next((one.bitwidth for one in found if one.name == key), None)

    def param_width(self, action: str, param: str) -> int | None:
        """Return a parameter's width in bits; None if there is no such parameter."""
        found = self.actions.get(action, p4i.Action()).params
        return next((one.bitwidth for one in found if one.name == param), None)


def check_program(
    program: p4i.P4Info,
    ours: p4i.P4Info,
    plans: Mapping[str, Plan],
    cells: Iterable[tuple[str, int]] = (),
) -> None:
    """Check that a program has every table, action and parameter of some plans, and some cells of counters.

    Args:
        program: The program's P4Info.
        ours: The P4Info of p4src/fanin.p4. It gives the widths of keys and parameters, which plans only name.
        plans: The plans, by their purpose.
        cells: Names of counters and indices of cells.

    Raises:
        ProgramMismatchError: If something is missing; the message has a line for each.
    """
    theirs, reference = _Described(program), _Described(ours)
    problems = [
        problem
        for table, wanted in _wanted(plans).items()
        for problem in _lacking(table, wanted, theirs, reference)
    ]
    problems += _counters(cells, theirs)
    if problems:
        raise ProgramMismatchError("\n".join(problems))


def _wanted(plans: Mapping[str, Plan]) -> dict[str, _Wanted]:
    found: dict[str, _Wanted] = {}
    for purpose, plan in plans.items():
        for entry in (entry for part in plan.values() for entry in part.entries):
            table = found.setdefault(entry.table, _Wanted(_keys(entry), purpose))
            table.actions.setdefault(entry.action, tuple(entry.params))
    return found


def _keys(entry: TableEntry) -> dict[str, p4i.MatchField.MatchType.ValueType]:
    return {key: _LPM if isinstance(value, IPv4Network) else _EXACT for key, value in entry.match.items()}


def _lacking(table: str, wanted: _Wanted, theirs: _Described, reference: _Described) -> Iterator[str]:
    """Yield a line for everything that a program lacks of a table."""
    actions = [_action(action, params, reference) for action, params in wanted.actions.items()]
    if table not in theirs.tables:
        keys = ", ".join(_key(table, key, kind, reference) for key, kind in wanted.keys.items())
        yield f"table {table} with the keys {keys} and the actions {', '.join(actions)}, for {wanted.purpose}"
        return
    there = {one.name: one for one in theirs.tables[table].match_fields}
    for key, kind in wanted.keys.items():
        width = reference.key_width(table, key)
        if key not in there or there[key].match_type != kind or width not in (None, there[key].bitwidth):
            yield f"key {_key(table, key, kind, reference)} of table {table}, for {wanted.purpose}" + (
                f"; its {key} is {_kind(there[key].match_type)}, {there[key].bitwidth} bits"
                if key in there
                else ""
            )
    for name, one in there.items():
        if one.match_type == _EXACT and name not in wanted.keys:
            yield f"table {table} without the key {name}, which the controller does not know"
    for shown, (action, params) in zip(actions, wanted.actions.items(), strict=True):
        if action not in theirs.actions_of(table):
            yield f"action {shown} in table {table}, for {wanted.purpose}"
            continue
        widths = {param: reference.param_width(action, param) for param in params}
        has = {param.name: param.bitwidth for param in theirs.actions[action].params}
        if has.keys() != widths.keys() or any(width not in (None, has[p]) for p, width in widths.items()):
            own = ", ".join(f"{name}: {width} bits" for name, width in has.items())
            yield f"action {shown} in table {table}, for {wanted.purpose}; its parameters are ({own})"


def _counters(cells: Iterable[tuple[str, int]], theirs: _Described) -> Iterator[str]:
    sizes: dict[str, int] = {}
    for name, index in cells:
        sizes[name] = max(sizes.get(name, 0), index + 1)
    for name, size in sizes.items():
        if name not in theirs.counters:
            yield f"counter {name} with {size} cells, for results"
        elif theirs.counters[name].size < size:
            yield f"counter {name} with {size} cells, for results; it has {theirs.counters[name].size}"


def _key(table: str, key: str, kind: p4i.MatchField.MatchType.ValueType, reference: _Described) -> str:
    width = reference.key_width(table, key)
    return f"{key} ({'' if width is None else f'{width} bits, '}{_kind(kind)})"


def _kind(kind: p4i.MatchField.MatchType.ValueType) -> str:
    return str(p4i.MatchField.MatchType.Name(kind)).lower()


def _action(action: str, params: Iterable[str], reference: _Described) -> str:
    shown = []
    for param in params:
        width = reference.param_width(action, param)
        shown.append(param if width is None else f"{param}: {width} bits")
    return f"{action.rpartition('.')[2]}({', '.join(shown)})"
