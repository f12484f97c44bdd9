"""The JSON schema of a trace as `fanin trace --json` prints it, derived from the dataclasses of the events.

trace.schema.json is its text. A test compares the two, and `python -m tests.p4switch.trace.test_tree` writes the file.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from fanin.p4switch.trace.events import Copy, Event, NamedValue, NamedValues

_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "pattern": "^([0-9a-f]{2})*$", "description": "Bytes in hexadecimal."},
    NoneType: {"type": "null"},
    NamedValue: {"type": "integer"},
    NamedValues: {"type": "object", "additionalProperties": {"type": "integer"}},
    list[str]: {"type": "array", "items": {"type": "string"}},
    dict[str, str]: {"type": "object", "additionalProperties": {"type": "string"}},
}
_COPY = {
    "type": "integer",
    "minimum": 0,
    "description": "The copy that it happened to, by its number in `copies`.",
}


def trace_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of one line that `fanin trace --json` prints."""
    packet = {"port": {"type": "integer"}, "time": {"type": "integer"}, "packet": _PLAIN[bytes]}
    copies = {"type": "array", "minItems": 1, "items": _object(Copy, {"copy": {"type": "integer"}})}
    events = [_object(kind, {"event": {"const": kind.__name__}, "copy": _COPY}) for kind in get_args(Event)]
    members = {**packet, "copies": copies, "events": {"type": "array", "items": {"oneOf": events}}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Trace of a packet",
        "description": "A packet that arrived on a port (time in microseconds), the copies made of it, and what"
        " happened to each, in order.",
        **_closed(members),
    }


def _object(kind: type[Any], first: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    members = first | {member.name: _schema(hints[member.name]) for member in fields(kind)}
    return {"description": " ".join((kind.__doc__ or "").partition("\n\n")[0].split()), **_closed(members)}


def _closed(members: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}


def _schema(hint: Any) -> dict[str, Any]:
    if hint in _PLAIN:
        return _PLAIN[hint]
    if get_origin(hint) in (Union, UnionType):
        return {"anyOf": [_schema(part) for part in get_args(hint)]}
    if get_origin(hint) is list:
        return {"type": "array", "items": _schema(*get_args(hint))}
    assert isinstance(hint, type)
    assert is_dataclass(hint)
    return _object(hint, {})
