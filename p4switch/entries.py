"""What the control plane hands to the engine: matches, table entries, multicast replicas and counter values.

Values are unsigned integers as wide as the P4 field. Priorities have P4Runtime's sense: the larger one wins.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from enum import Enum

_MAX_TEXT = 200  # characters of a key in a message


@dataclass(frozen=True, slots=True)
class Exact:
    """The field equals `value`."""

    value: int


@dataclass(frozen=True, slots=True)
class Lpm:
    """The field's first `prefix_length` bits equal those of `value`; 0 matches everything."""

    value: int
    prefix_length: int


@dataclass(frozen=True, slots=True)
class Ternary:
    """The field equals `value` where `mask` has ones; mask 0 matches everything."""

    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class Range:
    """The field lies in `low`..`high`, both included."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Optional_:  # noqa: N801 - "optional" is the match kind's name, typing.Optional another thing
    """The field equals `value`; None matches everything."""

    value: int | None


Match = Exact | Lpm | Ternary | Range | Optional_


@dataclass(frozen=True, slots=True)
class EntryKey:
    """One match for each key field, in the table's order; `priority` only where a kind may overlap."""

    match: tuple[Match, ...]
    priority: int = 0

    def __str__(self) -> str:
        """For messages, of any width: Python refuses to write very large numbers in decimal."""
        matches = []
        for match in self.match:
            numbers = ("any" if number is None else f"{number:#x}" for number in astuple(match))
            matches.append(f"{type(match).__name__.rstrip('_').lower()} {'/'.join(numbers)}")
        text = ", ".join(matches)
        return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


@dataclass(frozen=True, slots=True)
class ActionCall:
    """An action by its JSON name, with its action data in the order of its parameters."""

    name: str
    args: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberReference:
    """The action of a member of the table's action profile."""

    id: int


@dataclass(frozen=True, slots=True)
class GroupReference:
    """The action of one member of a group of the table's action selector, chosen for each packet."""

    id: int


@dataclass(frozen=True, slots=True)
class OneShot:
    """A group of an entry's own: actions with their weights, of which the hash chooses, or chance."""

    choices: tuple[tuple[ActionCall, int], ...]
    random: bool = False


EntryAction = ActionCall | MemberReference | GroupReference | OneShot


@dataclass(frozen=True, slots=True)
class Entry:
    """A table entry; `is_const` marks those that the program itself declares."""

    key: EntryKey
    action: EntryAction
    is_const: bool = False


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of a multicast packet: where it leaves and the `egress_rid` it carries."""

    port: int
    instance: int


@dataclass(frozen=True, slots=True)
class Clones:
    """What a mirroring session says of its clones: how many bytes they have at most, and a priority unless it is 0."""

    longest: int = (1 << 32) - 1
    service_class: int = 0


DEFAULT_CLONE_OPTIONS = Clones()


@dataclass(frozen=True, slots=True)
class CounterValue:
    """Packets and bytes seen by one counter cell."""

    packets: int
    bytes: int


@dataclass(frozen=True, slots=True)
class MeterConfig:
    """Committed and peak rate in packets or bytes a second, each with its burst (RFC 2698).

    With an excess burst there is a single rate (RFC 2697), and the peak one is the committed one again.
    """

    cir: int
    cburst: int
    pir: int
    pburst: int
    eburst: int = 0


MeterCounters = tuple[CounterValue, CounterValue, CounterValue]
"""What a meter has found green, yellow and red."""


@dataclass(frozen=True, slots=True)
class Digest:
    """What generate_digest sent: the name of its list, and the fields' values."""

    name: str
    values: tuple[int, ...]


class TableErrorCode(Enum):
    """Why a control-plane write was refused, in the words of gRPC's canonical codes."""

    ALREADY_EXISTS = "ALREADY_EXISTS"
    NOT_FOUND = "NOT_FOUND"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"


class TableError(Exception):
    """A control-plane read or write that cannot be done; `code` says which way."""

    def __init__(self, code: TableErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
