"""Traces as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import PurePath

from fanin.native.text import counted
from fanin.p4switch.bmv2json.primitive_kind import Message
from fanin.p4switch.bmv2json.program import Source
from fanin.p4switch.entries import HIGHEST_PRIORITY
from fanin.p4switch.trace.events import (
    Access,
    ActionRun,
    Alternative,
    Assign,
    Call,
    Choice,
    Condition,
    Copy,
    Deparse,
    Dequeue,
    DirectCount,
    Drop,
    Egress,
    Enqueue,
    Event,
    Extract,
    Ingress,
    Invalid,
    Jump,
    Lookup,
    NamedValue,
    NamedValues,
    NotEmitted,
    Output,
    PacketTrace,
    Parse,
    Parsed,
    PortNotSet,
    Request,
    Select,
    State,
    UpdateChecksum,
    VerifyChecksum,
)

TEMPORARY = "tmp$"  # begins the names of the compiler's own variables
_MOST_REGISTERS = 2  # named in the last line
_SMALLEST_OF_THRIFT = HIGHEST_PRIORITY >> 1  # an entry with a larger priority came over Thrift
_FIRST_LINES, _LAST_LINES = 400, 100
_MOST_OUTPUTS = 16  # named in the last line
_FEWEST = 4  # values shown as a series: v0..v63 = 1, 2, 3, … 64

Series = list[Access] | list[Assign]


def as_text(trace: PacketTrace, *, verbose: bool = False) -> str:
    """Format a trace as lines indented by nesting. `verbose` adds assignments and the headers of packets that leave.

    Of a very long trace, such as that of a packet that is recirculated indefinitely, it has the beginning and the end.
    """
    lines = [f"packet on port {trace.port}, {len(trace.packet)} bytes, at {trace.time / 1e6:.6f} s"]
    depth = 3  # of the statements of the current state or action
    previous: Event | None = None
    for part in _in_series(e for e in trace.events if _is_shown(e, verbose)):
        match part:
            case list():
                lines.append(f"{'  ' * depth}{_series_text(part)}")
                continue
            case State() | Select() | Extract():
                depth = 3
            case ActionRun(implied=True):
                depth = 2
                continue
            case ActionRun():
                depth = 4 if isinstance(previous, (Lookup, DirectCount, Choice)) else 3
        lines += [f"{'  ' * (depth + shift)}{line}" for shift, line in _render(part, depth)]
        previous = part
    if len(lines) > _FIRST_LINES + _LAST_LINES:
        left_out = len(lines) - _FIRST_LINES - _LAST_LINES
        lines[_FIRST_LINES:-_LAST_LINES] = [f"  … {left_out:,} lines are left out here …"]
    lines.append(f"  => {verdict(trace)}")
    return "\n".join(lines)


def _is_shown(event: Event, verbose: bool) -> bool:
    if isinstance(event, Assign) and event.target.startswith(TEMPORARY):
        return False
    return verbose or not isinstance(event, Assign | Deparse)


def event_lines(event: Event) -> list[str]:
    """Return the lines of one event, the first without indentation."""
    rendered = list(_render(event, 3))
    return [f"{'  ' * (shift - rendered[0][0])}{line}" for shift, line in rendered]


def _render(event: Event, depth: int) -> Iterator[tuple[int, str]]:
    """Yield the lines of an event, each with its indentation relative to that of a statement."""
    section, step = 1 - depth, 2 - depth
    match event:
        case Parse():
            yield section, "parser"
        case State(name):
            yield step, f"state {name}"
        case Extract(header, fields):
            yield 0, f"extract {header}: {_values_text(fields)}"
        case Select(key, case, following):
            yield 0, f"select {_values_text(key)}: {case} -> {following}"
        case Parsed(error):
            yield step, "accept" if error == "NoError" else f"stops with error.{error}"
        case VerifyChecksum(_, correct, target, value, computed):
            said = "correct" if correct else f"wrong, it should be {computed}"
            yield section, f"checksum verified: {target} = {value}: {said}"
        case UpdateChecksum(_, target, value):
            yield section, f"checksum computed: {target} = {value}"
        case Ingress(instance):
            yield section, "ingress" if instance == "normal" else f"ingress ({instance})"
        case Egress(port, replica, instance):
            said = f", replica {replica}" if replica else ""
            yield section, f"egress to port {port}{said}" + ("" if instance == "normal" else f" ({instance})")
        case Condition(_, text, outcome, values, invalid, source):
            reasons = [_values_text(values)] if values else []
            reasons += [f"{header} is not valid" for header in invalid]
            said = f" ({', '.join(reasons)})" if reasons else ""
            yield step, f"if {text}: {_truth(outcome)}{said}{_at(source)}"
        case Lookup(table, key, hit, entry, source):
            yield step, f"table {table}: {'hit' if hit else 'miss'}{_at(source)}"
            if key:
                yield step + 1, f"key {_values_text(key)}"
            if entry is not None:
                exact = [value.text for value in key] == list(entry.match.values())
                matches = ", ".join(f"{name}={text}" for name, text in entry.match.items())
                priority = "" if entry.priority is None else f", {_priority_text(entry.priority)}"
                yield step + 1, f"entry {entry.index}{'' if exact else f': {matches}'}{priority}"
            elif hit:
                yield step + 1, "the entry has been removed since"
        case Choice(_, kind, number, chosen, alternatives):
            name = kind if number is None else f"{kind} {number}"
            others = ", ".join(map(call_text, alternatives))
            if kind == "member":
                yield step + 1, name
            elif chosen is None:
                yield step + 1, f"{name}: empty, nothing happens"
            else:
                member = alternatives[chosen].member
                which = f"action {chosen + 1}" if member is None else f"member {member}"
                yield step + 1, f"{name}: {which} of {len(alternatives)}: {others}"
        case DirectCount(counter, packets, size):
            yield step + 1, f"count {counter}: {counted(packets, 'packet')}, {counted(size, 'byte')}"
        case ActionRun(name, arguments, _):
            yield -1, f"action {name}({_values_text(arguments)})"
        case Invalid(header):
            yield 0, f"{header} is not valid: its fields have no defined value"
        case NotEmitted(header):
            yield step, f"{header} is valid but not emitted"
        case PortNotSet():
            yield step, "egress_spec was never set: the packet goes to port 0"
        case Jump(text, outcome, source):
            yield 0, f"if {text}: {_truth(outcome)}{_at(source)}"
        case Assign() | Access():
            yield 0, f"{_place_text(event)}{_reached(event)}{_at(event.source)}"
        case Call(operation, source):
            yield 0, f"{source.fragment if source else operation}{_at(source)}"
        case Message(_, text):
            yield 0, f"log: {text}"
        case Request(what, number, copies):
            of = {"clone": "session", "multicast": "group", "digest": "list"}.get(what, "field list")
            said = "" if copies is None else f": {counted(copies, 'copy', 'copies')}"
            yield section, f"{what}, {of} {number}{said}"
        case Enqueue(port):
            yield section, f"waits in the queue of port {port}"
        case Dequeue(port, waited):
            yield section, f"out of the queue of port {port} after {waited} us"
        case Drop(reason, source):
            yield section, f"drop: {reason}{_at(source)}"
        case Deparse(header, fields):
            yield step, f"emit {header}: {_values_text(fields)}"
        case Output(port, _, packet, attached):
            nowhere = "" if attached else ", which the switch does not have"
            yield section, f"out of port {port}{nowhere}: {len(packet)} bytes"


def _priority_text(priority: int) -> str:
    if priority < _SMALLEST_OF_THRIFT:
        return f"priority {priority}"
    return f"priority {HIGHEST_PRIORITY - priority} over Thrift, where the smallest wins"


def call_text(alternative: Alternative) -> str:
    """Return the action of a member with its arguments."""
    return f"{alternative.action}({_values_text(alternative.arguments)})"


def _truth(outcome: bool) -> str:
    return "true" if outcome else "false"


def _at(source: Source | None) -> str:
    return f"  [{_file_name(source.file)}:{source.line}]" if source else ""


@lru_cache
def _file_name(path: str) -> str:
    return PurePath(path).name


def verdict(trace: PacketTrace) -> str:
    """Return what became of a packet, in one line."""
    out = [e for e in trace.events if isinstance(e, Output)]
    parts = []
    if out:
        ports = ", ".join(
            f"port {e.port} ({f'replica {e.replica}, ' if e.replica else ''}{len(e.packet)} bytes)"
            for e in out[:_MOST_OUTPUTS]
        )
        more = f" and {len(out) - _MOST_OUTPUTS:,} more" if len(out) > _MOST_OUTPUTS else ""
        parts.append(f"{counted(len(out), 'packet')} out: {ports}{more}")
    for event, owner in zip(trace.events, trace.owners, strict=True):
        if isinstance(event, Drop):
            which = f"{_copy_text(trace.copies[owner])} is " if out else ""
            parts.append(f"{which}dropped{_left_behind(trace.events)}: {event.reason}{_at(event.source)}")
    parts += [f"waits for port {e.port}" for e in trace.events if isinstance(e, Enqueue)]
    return "; ".join(parts) or "nothing leaves"


def _copy_text(copy: Copy) -> str:
    if copy.cause == "arrival":
        return "the packet itself"
    return f"replica {copy.replica}" if copy.cause == "replication" else f"the {copy.cause} packet"


def _left_behind(events: Iterable[Event]) -> str:
    """Tell what a packet has left in registers: it was perhaps dropped because it was added to something there."""
    written = dict.fromkeys(
        e.name for e in events if isinstance(e, Access) and e.operation == "write" and e.in_range
    )
    if not written:
        return ""
    if len(written) > _MOST_REGISTERS:
        return f" after writing {counted(len(written), 'register')}"
    return f" after writing register{'s' * (len(written) > 1)} {' and '.join(written)}"


# Values


def _place_text(event: Access | Assign) -> str:
    if isinstance(event, Assign):
        return event.target
    return f"{event.operation} {event.name}[{f'{event.index} {event.constant}'.rstrip()}]"


def _reached(event: Access | Assign) -> str:
    """Format the result of a statement."""
    if isinstance(event, Access) and not event.in_range:
        return ": out of range, nothing happens"
    return f" = {event.value}" if event.value is not None else ""


def _values_text(values: NamedValues) -> str:
    """Format names and values. Fields with consecutive numbers become a series."""
    parts: list[str] = []
    at = 0
    while at < len(values):
        end = at + 1
        while end < len(values) and _follows(values[end - 1].name, values[end].name):
            end += 1
        if end - at >= _FEWEST:
            parts.append(f"{_span(values[at].name, values[end - 1].name)}={_list_text(values[at:end])}")
        else:
            parts += [f"{value.name}={value}" for value in values[at:end]]
        at = end
    return ", ".join(parts)


def _list_text(values: Sequence[NamedValue]) -> str:
    texts = [value.text for value in values]
    if len(set(texts)) == 1:
        return f"{texts[0]} ({len(texts)} times)"
    if len(texts) <= _FEWEST + 1:
        return f"[{', '.join(texts)}]"
    return f"[{', '.join(texts[:_FEWEST])}, … {texts[-1]}]"


def _follows(name: str, other: str) -> bool:
    """Return whether the names differ only in their last number, by one."""
    one, two = _split(name), _split(other)
    return one is not None and two is not None and one[::2] == two[::2] and two[1] == one[1] + 1


def _split(name: str) -> tuple[str, int, str] | None:
    found = re.fullmatch(r"(.*?)(\d+)(\D*)", name)
    return (found[1], int(found[2]), found[3]) if found else None


def _span(first: str, last: str) -> str:
    """Return the names of a series: the last one without the parts that it has in common with the first."""
    if first == last:
        return first
    parts, others = first.split("."), last.split(".")
    common = next((n for n, (a, b) in enumerate(zip(parts, others, strict=False)) if a != b), len(others) - 1)
    return f"{first}..{'.'.join(others[common:])}"


def _in_series(events: Iterator[Event]) -> Iterator[Event | Series]:
    """Yield events, with statements of one action that do the same to numbered fields joined to a series."""
    stretch: list[Access | Assign] = []
    for event in events:
        if isinstance(event, (Access, Assign)):
            stretch.append(event)
            continue
        yield from _grouped(stretch)
        stretch = []
        yield event
    yield from _grouped(stretch)


def _grouped(stretch: list[Access | Assign]) -> Iterator[Event | Series]:
    series: list[list[Access | Assign]] = []
    last: dict[object, list[Access | Assign]] = {}
    for event in stretch:
        key = _alike(event)
        before = last.get(key)
        if before and (_name(before[-1]) == _name(event) or _follows(_name(before[-1]), _name(event))):
            before.append(event)
        else:
            last[key] = [event]
            series.append(last[key])
    long = {id(event): found for found in series if len(found) >= _FEWEST for event in found}
    for event in stretch:
        found = long.get(id(event))
        if found is None:
            yield event
        elif found[0] is event:
            yield found  # type: ignore[misc]


def _name(event: Access | Assign) -> str:
    return event.target if isinstance(event, Assign) else event.name


def _alike(event: Access | Assign) -> object:
    """Return a key that is equal for statements that may form a series."""
    parts = _split(_name(event))
    shape = (parts[0], parts[2]) if parts else (_name(event),)
    if isinstance(event, Assign):
        return shape
    return (event.operation, event.index, event.in_range, *shape)


def _series_text(series: Series) -> str:
    first, last = series[0], series[-1]
    values = [event.value for event in series if event.value is not None]
    reached = f" = {_list_text(values)}" if values else f", {len(series)} times"
    span = _span(_name(first), _name(last))
    if isinstance(first, Assign):
        return f"{span}{reached}{_at(first.source)}"
    if not first.in_range:
        reached = ": out of range, nothing happens"
    return f"{first.operation} {span}[{first.index}]{reached}{_at(first.source)}"
