"""Warnings about keys of entries and select cases: those that never match, and values that match none."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from fanin.p4compiler import ir, types
from fanin.p4compiler.source import Reporter

_MOST_BITS = 10  # of the keys of which all values are tried


def warn_of_keys(block: ir.Block, reporter: Reporter) -> None:
    """Warn about selects that may match nothing, and about entries and cases that never match."""
    for state in block.states:
        if state.subjects:
            _warn_of_select(state, reporter)
    for table in block.tables:
        seen: dict[tuple[ir.KeyValue, ...], ir.Entry] = {}
        for entry in table.entries or ():
            first = seen.setdefault(entry.keys, entry)
            if first is not entry:
                message = f"table '{table.name}' has two entries with this key: only one of them ever matches"
                hint = "remove one of them, or correct its key"
                reporter.warn(entry.span, message, hint, option="duplicate-keys", other=first.span)


def _warn_of_select(state: ir.State, reporter: Reporter) -> None:
    seen: dict[tuple[ir.KeyValue, ...], ir.SelectCase] = {}
    for case in state.cases:
        first = seen.setdefault(case.keys, case)
        catch_all = next((c for c in seen.values() if c is not case and _always(c)), None)
        if first is not case:
            message = "this select has the same case above: this one never matches"
            hint = "remove one of them, or correct its value"
            reporter.warn(case.span, message, hint, option="duplicate-keys", other=first.span)
        elif catch_all is not None:
            message = "this case never matches: the default above it comes first"
            reporter.warn(
                case.span, message, "move the default to the end", option="unreachable", other=catch_all.span
            )
    if not any(map(_always, state.cases)) and not _is_complete(state):
        message = (
            f"the select of state '{state.name}' has no default: BMv2 accepts a packet that no case matches"
        )
        hint = "write default: accept; or default: reject; as its last case"
        reporter.warn(
            state.cases[-1].span if state.cases else state.span, message, hint, option="select-default"
        )


def _always(case: ir.SelectCase) -> bool:
    return all(key.anything for key in case.keys)


def _is_complete(state: ir.State) -> bool:
    """Return whether all values meet a case, as far as it can be tried: keys of many bits may only be left open."""
    if any(key.value_set is not None for case in state.cases for key in case.keys):
        return False  # a value set of structs is one key for several subjects
    tried = [n for n in range(len(state.subjects)) if not all(case.keys[n].anything for case in state.cases)]
    types_ = [state.subjects[n].type for n in tried]
    if sum(types.width(of) or 0 for of in types_) > _MOST_BITS:
        return False
    cases = [[case.keys[n] for n in tried] for case in state.cases]
    return all(
        any(all(map(_meets, values, keys)) for keys in cases) for values in product(*map(_values, types_))
    )


def _values(of: types.Type) -> Iterable[int]:
    if isinstance(of, types.Enum) and of.underlying is None:
        return of.members.values()
    return range(1 << (types.width(of) or 0))


def _meets(value: int, key: ir.KeyValue) -> bool:
    if key.high is not None:
        return key.value <= value <= key.high
    return value == key.value if key.mask is None else value & key.mask == key.value
