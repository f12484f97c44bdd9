"""Events of a packet's path through the switch, with the program's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from fanin.p4switch.bmv2json.primitive_kind import Message
from fanin.p4switch.bmv2json.program import Source


@dataclass(frozen=True, slots=True)
class NamedValue:
    """Number with the name of its field, its text (10.1.0.1, 0x0800), and the name of a constant in the source.

    `width` is that of the field, in bits.
    """

    name: str
    number: int
    text: str
    constant: str = ""
    width: int = 0

    def __str__(self) -> str:
        return f"{self.text} {self.constant}".rstrip()


NamedValues = tuple[NamedValue, ...]


@dataclass(frozen=True, slots=True)
class Parse:
    """Beginning of the parser, for a packet that arrives or that is parsed again."""


@dataclass(frozen=True, slots=True)
class State:
    """State that the parser enters."""

    name: str


@dataclass(frozen=True, slots=True)
class Extract:
    """Header that the parser extracts."""

    header: str
    fields: NamedValues


@dataclass(frozen=True, slots=True)
class Select:
    """Choice of the next state: the key, and the case of the select that it met, or "no case matches"."""

    key: NamedValues
    case: str
    next: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """End of the parser; `error` is NoError, or the error in the core library or program."""

    error: str


@dataclass(frozen=True, slots=True)
class VerifyChecksum:
    """Comparison of a checksum: `value` is what the packet has in `target`, and `computed` what it should have."""

    name: str
    correct: bool
    target: str
    value: NamedValue
    computed: NamedValue


@dataclass(frozen=True, slots=True)
class UpdateChecksum:
    """Checksum that was computed before the packet leaves: the field and its new value."""

    name: str
    target: str
    value: NamedValue


@dataclass(frozen=True, slots=True)
class Ingress:
    """Beginning of the ingress pipeline; `instance` is normal, resubmitted or recirculated."""

    instance: str


@dataclass(frozen=True, slots=True)
class Egress:
    """Beginning of the egress pipeline for a packet that is to leave through `port`; `replica` is egress_rid."""

    port: int
    replica: int
    instance: str


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition of an if, with its outcome, the values that led to it, and the headers in it that are not valid.

    `node` is its name in the JSON.
    """

    node: str
    text: str
    outcome: bool
    values: NamedValues
    invalid: list[str]
    source: Source | None


@dataclass(frozen=True, slots=True)
class HitEntry:
    """Table entry that matched: the matches by key field, and the priority if it has one."""

    index: int
    match: dict[str, str]
    priority: int | None


@dataclass(frozen=True, slots=True)
class Lookup:
    """Application of a table. `entry` is None on a miss, and if the entry has been removed since."""

    table: str
    key: NamedValues
    hit: bool
    entry: HitEntry | None
    source: Source | None


@dataclass(frozen=True, slots=True)
class Alternative:
    """Action that a group may choose: its member unless the group belongs to one entry, its weight, its arguments."""

    member: int | None
    weight: int
    action: str
    arguments: NamedValues


@dataclass(frozen=True, slots=True)
class Choice:
    """Choice of an action by an entry of a table with an action profile.

    `kind` is "member", "group" or "action set", and `number` that of the member or group. `alternatives` are all
    actions that a packet with another hash could have run. `chosen` is the position of the one that ran. It is None in
    an empty group, which does nothing.
    """

    table: str
    kind: str
    number: int | None
    chosen: int | None
    alternatives: list[Alternative]


@dataclass(frozen=True, slots=True)
class ActionRun:
    """Beginning of an action, with arguments by name; `implied` if the compiler created it for statements."""

    name: str
    arguments: NamedValues
    implied: bool


@dataclass(frozen=True, slots=True)
class Assign:
    """Assignment to a field."""

    target: str
    value: NamedValue
    source: Source | None


@dataclass(frozen=True, slots=True)
class Access:
    """Access to a register, counter or meter: the index, and the value there afterwards.

    If `in_range` is False, nothing happened. `constant` is the name of the index in the source, or "".
    """

    operation: str
    name: str
    index: int
    in_range: bool
    value: NamedValue | None
    source: Source | None
    constant: str = ""


@dataclass(frozen=True, slots=True)
class DirectCount:
    """Packet that a direct counter counts for the entry of the lookup before, and what it has counted there now."""

    counter: str
    packets: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Jump:
    """Condition inside an action, and its outcome."""

    text: str
    outcome: bool
    source: Source | None


@dataclass(frozen=True, slots=True)
class Invalid:
    """Use of a field of a header that is not valid, by the event that follows: the value is undefined."""

    header: str


@dataclass(frozen=True, slots=True)
class NotEmitted:
    """Header of a packet that leaves: it is valid, but the deparser does not emit it."""

    header: str


@dataclass(frozen=True, slots=True)
class PortNotSet:
    """End of the ingress pipeline without any statement that set egress_spec: the packet goes to port 0."""


@dataclass(frozen=True, slots=True)
class Call:
    """Any other primitive."""

    operation: str
    source: Source | None


@dataclass(frozen=True, slots=True)
class Request:
    """Request `what`: clone, multicast, digest, resubmit or recirculate. `number` is the session, group or list."""

    what: str
    number: int
    copies: int | None


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Wait for a port before egress. Another trace begins when the packet leaves the queue."""

    port: int


@dataclass(frozen=True, slots=True)
class Dequeue:
    """Departure from the queue of a port, after this many microseconds."""

    port: int
    waited: int


@dataclass(frozen=True, slots=True)
class Drop:
    """End of the packet, or of this copy."""

    reason: str
    source: Source | None


@dataclass(frozen=True, slots=True)
class Deparse:
    """Header of a packet that leaves."""

    header: str
    fields: NamedValues


@dataclass(frozen=True, slots=True)
class Output:
    """Packet that leaves; `attached` is False if a running switch has no such port."""

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
    | UpdateChecksum
    | Ingress
    | Egress
    | Condition
    | Lookup
    | Choice
    | ActionRun
    | Assign
    | Access
    | DirectCount
    | Jump
    | Invalid
    | NotEmitted
    | PortNotSet
    | Call
    | Message
    | Request
    | Enqueue
    | Dequeue
    | Drop
    | Deparse
    | Output
)


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy of a packet: the number of the copy that it was made from, and the reason.

    The packet as it arrived is the first copy, and its parent is None. `cause` is "arrival", or an instance type:
    "ingress clone", "egress clone", "replication", "resubmitted" or "recirculated". `replica` is the replication id.
    """

    parent: int | None
    cause: str
    replica: int | None = None


@dataclass(frozen=True, slots=True)
class PacketTrace:
    """Packet as it arrived (time in microseconds), and the events that followed, in order.

    `copies` are the packet itself and all copies made of it. For each event, `owners` has the position of the copy that
    it happened to.
    """

    port: int
    time: int
    packet: bytes
    events: Sequence[Event]
    copies: Sequence[Copy]
    owners: Sequence[int]

    def document(self) -> dict[str, Any]:
        """Return the trace for JSON, as trace.schema.json describes it. Numbers may exceed 2^53."""
        told = [
            {"event": type(event).__name__, "copy": owner, **_members(event)}
            for event, owner in zip(self.events, self.owners, strict=True)
        ]
        copies = [{"copy": number, **_members(copy)} for number, copy in enumerate(self.copies)]
        return {
            "port": self.port,
            "time": self.time,
            "packet": self.packet.hex(),
            "copies": copies,
            "events": told,
        }


def _members(part: Any) -> dict[str, Any]:
    return {member.name: _plain(getattr(part, member.name)) for member in fields(part)}


def _plain(part: Any) -> Any:
    match part:
        case bytes():
            return part.hex()
        case NamedValue():
            return part.number
        case list():
            return [each if isinstance(each, str) else _members(each) for each in part]
        case tuple():
            return {value.name: value.number for value in part}
        case Source() | HitEntry():
            return _members(part)
    return part
