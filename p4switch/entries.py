"""Data that the control plane gives to the engine: matches, table entries, multicast replicas and counter values.

Values are unsigned integers as wide as the P4 field. Priorities are P4Runtime's: the larger one wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Exact:
    """Match of a field that equals `value`."""

    value: int


@dataclass(frozen=True, slots=True)
class Lpm:
    """Match of a field whose first `prefix_length` bits equal those of `value`; 0 matches everything."""

    value: int
    prefix_length: int


@dataclass(frozen=True, slots=True)
class Ternary:
    """Match of a field that equals `value` where `mask` has ones; mask 0 matches everything."""

    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class Range:
    """Match of a field in `low`..`high`, both included."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Optional_:  # noqa: N801 - "optional" is the match kind's name, typing.Optional another thing
    """Match of a field that equals `value`; None matches everything."""

    value: int | None


# P4Runtime's priorities are an int32. Over Thrift the smallest wins: priority N is this one less N in the engine.
HIGHEST_PRIORITY = (1 << 31) - 1

Match = Exact | Lpm | Ternary | Range | Optional_


@dataclass(frozen=True, slots=True)
class EntryKey:
    """Key of an entry: one match for each key field, in the table's order.

    `priority` is only used if entries can overlap.
    """

    match: tuple[Match, ...]
    priority: int = 0


@dataclass(frozen=True, slots=True)
class ActionCall:
    """Action by its JSON name, with its data in the order of its parameters."""

    name: str
    args: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberReference:
    """Reference to a member of the table's action profile, whose action is used."""

    id: int


@dataclass(frozen=True, slots=True)
class GroupReference:
    """Reference to a group of the table's action selector, one member of which is chosen for each packet."""

    id: int


@dataclass(frozen=True, slots=True)
class OneShot:
    """Group that belongs to one entry: actions with weights, chosen by the hash or at random."""

    choices: tuple[tuple[ActionCall, int], ...]
    random: bool = False


EntryAction = ActionCall | MemberReference | GroupReference | OneShot


@dataclass(frozen=True, slots=True)
class Entry:
    """Table entry; `is_const` if the program declares it constant."""

    key: EntryKey
    action: EntryAction
    is_const: bool = False


@dataclass(frozen=True, slots=True)
class Replica:
    """Copy of a multicast packet: the port it leaves through and the `egress_rid` it carries."""

    port: int
    instance: int


@dataclass(frozen=True, slots=True)
class Clones:
    """Options of the clones of a mirroring session: the largest length in bytes, and a priority unless it is 0."""

    longest: int = (1 << 32) - 1
    service_class: int = 0


DEFAULT_CLONE_OPTIONS = Clones()


@dataclass(frozen=True, slots=True)
class CounterValue:
    """Packets and bytes counted by one counter cell."""

    packets: int
    bytes: int


@dataclass(frozen=True, slots=True)
class MeterConfig:
    """Committed and peak rate in packets or bytes per second, each with its burst (RFC 2698).

    With an excess burst there is a single rate (RFC 2697), and the peak rate equals the committed one.
    """

    cir: int
    cburst: int
    pir: int
    pburst: int
    eburst: int = 0


MeterCounters = tuple[CounterValue, CounterValue, CounterValue]
"""Packets and bytes that a meter has marked green, yellow and red."""


@dataclass(frozen=True, slots=True)
class Digest:
    """Digest sent by generate_digest: the name of its list, and the values of the fields."""

    name: str
    values: tuple[int, ...]


class TableErrorCode(Enum):
    """Reason why a control-plane request was rejected, one of gRPC's canonical codes."""

    ALREADY_EXISTS = "ALREADY_EXISTS"
    NOT_FOUND = "NOT_FOUND"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"


class TableError(Exception):
    """Control-plane read or write that cannot be done; `code` gives the kind of error."""

    def __init__(self, code: TableErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
