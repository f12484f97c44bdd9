"""Warnings about keys of entries and select cases: those that never match, and values that match none."""

from __future__ import annotations

from fanin.p4compiler import ir, types
from fanin.p4compiler.source import Reporter

_FEW = 10  # the most bits of a key of which all values are tried


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
    """Return whether every value of the only key meets a case. A key of many bits or several keys: False."""
    if len(state.subjects) != 1:
        return False
    of = state.subjects[0].type
    width = types.width(of) or 0
    if any(case.keys[0].value_set is not None for case in state.cases) or width > _FEW:
        return False
    if isinstance(of, types.Enum) and of.underlying is not None:
        values = {value & ((1 << width) - 1) for value in of.members.values()}
    elif isinstance(of, types.Enum):
        values = set(of.members.values())
    else:
        values = set(range(1 << width))
    return all(any(_meets(value, case.keys[0]) for case in state.cases) for value in values)


def _meets(value: int, key: ir.KeyValue) -> bool:
    if key.high is not None:
        return key.value <= value <= key.high
    return value == key.value if key.mask is None else value & key.mask == key.value
