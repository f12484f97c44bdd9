"""What can happen to a packet, in the program's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from fanin.p4switch.bmv2json.program import Source


@dataclass(frozen=True, slots=True)
class NamedValue:
    """A number with the name of what held it, as people write it (10.1.0.1, 0x0800), and what the source calls it."""

    name: str
    number: int
    text: str
    constant: str = ""

    def __str__(self) -> str:
        return f"{self.text} {self.constant}".rstrip()


NamedValues = tuple[NamedValue, ...]


@dataclass(frozen=True, slots=True)
class Parse:
    """The parser begins, for a packet that comes or that comes again."""


@dataclass(frozen=True, slots=True)
class State:
    """The parser enters a state."""

    name: str


@dataclass(frozen=True, slots=True)
class Extract:
    """The parser takes a header from the packet."""

    header: str
    fields: NamedValues


@dataclass(frozen=True, slots=True)
class Select:
    """The parser chooses the next state: the key, and the case of the select that it met."""

    key: NamedValues
    case: str
    next: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """The parser is done; `error` is NoError, or where in the core library or program it stopped."""

    error: str


@dataclass(frozen=True, slots=True)
class VerifyChecksum:
    """A checksum has been compared with the packet's."""

    name: str
    correct: bool


@dataclass(frozen=True, slots=True)
class Ingress:
    """The ingress pipeline begins; `instance`: normal, resubmitted, recirculated."""

    instance: str


@dataclass(frozen=True, slots=True)
class Egress:
    """The egress pipeline begins for a packet that is to leave by `port`; `replica`: egress_rid."""

    port: int
    replica: int
    instance: str


@dataclass(frozen=True, slots=True)
class Condition:
    """An if: its outcome, and the values that led to it."""

    text: str
    outcome: bool
    values: NamedValues
    source: Source | None


@dataclass(frozen=True, slots=True)
class HitEntry:
    """The table entry that matched: the matches by key field, the priority where there is one."""

    index: int
    match: dict[str, str]
    priority: int | None


@dataclass(frozen=True, slots=True)
class Lookup:
    """A table is applied. `entry` is None on a miss, and if the entry has been removed since."""

    table: str
    key: NamedValues
    hit: bool
    entry: HitEntry | None
    source: Source | None


@dataclass(frozen=True, slots=True)
class ActionRun:
    """An action begins; arguments by name. `implied`: made by the compiler from statements outside of actions."""

    name: str
    arguments: NamedValues
    implied: bool


@dataclass(frozen=True, slots=True)
class Assign:
    """A field has been given a value."""

    target: str
    value: NamedValue
    source: Source | None


@dataclass(frozen=True, slots=True)
class Access:
    """A register read or written, a counter counted, a meter executed: the index, and what is there now.

    `in_range` false: nothing happened. `constant`: what the source calls the index, "" if nothing.
    """

    operation: str
    name: str
    index: int
    in_range: bool
    value: NamedValue | None
    source: Source | None
    constant: str = ""


@dataclass(frozen=True, slots=True)
class Jump:
    """A condition inside an action, and its outcome."""

    text: str
    outcome: bool
    source: Source | None


@dataclass(frozen=True, slots=True)
class Call:
    """Another primitive."""

    operation: str
    source: Source | None


@dataclass(frozen=True, slots=True)
class Request:
    """clone, multicast, digest, resubmit or recirculate: of which session, group or list, and for how many copies."""

    what: str
    number: int
    copies: int | None


@dataclass(frozen=True, slots=True)
class Enqueue:
    """The packet waits for its port before egress; a trace of its own begins when it leaves the queue."""

    port: int


@dataclass(frozen=True, slots=True)
class Dequeue:
    """The packet leaves the queue of a port, in which it was for so many microseconds."""

    port: int
    waited: int


@dataclass(frozen=True, slots=True)
class Drop:
    """The packet ends here, or this copy of it."""

    reason: str
    source: Source | None


@dataclass(frozen=True, slots=True)
class Deparse:
    """A header of a packet that leaves."""

    header: str
    fields: NamedValues


@dataclass(frozen=True, slots=True)
class Output:
    """A packet leaves; `attached`: false where a running switch has no such port."""

    port: int
    replica: int
    packet: bytes
    attached: bool


Event = (
    Parse
    | State
    | Extract
    | Select
    | Parsed
    | VerifyChecksum
    | Ingress
    | Egress
    | Condition
    | Lookup
    | ActionRun
    | Assign
    | Access
    | Jump
    | Call
    | Request
    | Enqueue
    | Dequeue
    | Drop
    | Deparse
    | Output
)


@dataclass(frozen=True, slots=True)
class PacketTrace:
    """A packet as it came (time in microseconds), and what happened to it, in order."""

    port: int
    time: int
    packet: bytes
    events: Sequence[Event]

    def document(self) -> dict[str, Any]:
        """The trace for JSON: each event an object whose `event` is its kind. Numbers may exceed 2^53."""
        told = [{"event": type(event).__name__, **_members(event)} for event in self.events]
        return {"port": self.port, "time": self.time, "packet": self.packet.hex(), "events": told}


def _members(part: Any) -> dict[str, Any]:
    return {member.name: _plain(getattr(part, member.name)) for member in fields(part)}


def _plain(part: Any) -> Any:
    match part:
        case bytes():
            return part.hex()
        case NamedValue():
            return part.number
        case tuple():
            return {value.name: value.number for value in part}
        case Source() | HitEntry():
            return _members(part)
    return part
