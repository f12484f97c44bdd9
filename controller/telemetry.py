"""What the switches have counted, read over P4Runtime: works on BMv2 as well, since no register is read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from controller.connection import Connection, Count
from controller.network import Network


class Reason(IntEnum):
    """Why a packet was dropped: the index of ingress.drops (p4src/reasons.p4)."""

    NONE = 0
    LOST = 1
    TRUNCATED = 2
    MALFORMED = 3
    BAD_CHECKSUM = 4
    NOT_IP = 5
    NO_ROUTE = 6
    TTL = 7
    NOT_ADMITTED = 8
    BAD_TYPE = 9
    BAD_SLOT = 10
    BAD_SIZE = 11
    OLD_CHUNK = 12
    BAD_CHUNK = 13
    DUPLICATE = 14
    STALE_RESULT = 15
    MISMATCH = 16
    FORGED = 17


class Event(IntEnum):
    """What aggregation did with a packet: the index of ingress.aggregation.events (p4src/reasons.p4)."""

    NEW_CHUNK = 0
    ADDED = 1
    COMPLETED = 2
    RESULT_DOWN = 3
    SERVED_AGAIN = 4
    SENT_UP_AGAIN = 5
    SATURATED = 6


@dataclass(frozen=True, slots=True)
class PortCounts:
    """What crossed a port; what the emulated link lost is in `received` and `sent` too.

    `lost_in` and `lost_out` have no bytes.
    """

    received: Count
    sent: Count
    lost_in: Count
    lost_out: Count

    def __sub__(self, earlier: "PortCounts") -> "PortCounts":
        return PortCounts(
            self.received - earlier.received,
            self.sent - earlier.sent,
            self.lost_in - earlier.lost_in,
            self.lost_out - earlier.lost_out,
        )


@dataclass(frozen=True, slots=True)
class SwitchCounts:
    """What one switch has counted since its program was pushed; subtract two for what happened in between."""

    ports: Mapping[int, PortCounts]
    drops: Mapping[Reason, Count]
    events: Mapping[Event, Count]

    def __sub__(self, earlier: "SwitchCounts") -> "SwitchCounts":
        return SwitchCounts(
            {port: counts - earlier.ports[port] for port, counts in self.ports.items()},
            {reason: count - earlier.drops[reason] for reason, count in self.drops.items()},
            {event: count - earlier.events[event] for event, count in self.events.items()},
        )


PORT_COUNTERS = ("ingress.port_in", "egress.port_out", "ingress.loss_in.lost", "egress.loss_out.lost")
_DROPS = "ingress.drops"
_EVENTS = "ingress.aggregation.events"

# What the cells of a counter are called, by the counter's name; those of PORT_COUNTERS are ports.
CELLS: Mapping[str, type[IntEnum]] = {_DROPS: Reason, _EVENTS: Event}


def cells_read(ports: Iterable[int]) -> list[tuple[str, int]]:
    """Counters and indices that tell all that a switch with these ports has counted."""
    cells = [(name, port) for port in ports for name in PORT_COUNTERS]
    return cells + [(name, int(cell)) for name, kind in CELLS.items() for cell in kind]


async def read_counts(connection: Connection, network: Network) -> SwitchCounts:
    """All that the switch has counted, at its ports that have links."""
    ports = list(network.interfaces(connection.switch.name))
    read = await connection.read_counters(cells_read(ports))
    return SwitchCounts(
        {port: PortCounts(*(read[name, port] for name in PORT_COUNTERS)) for port in ports},
        {reason: read[_DROPS, reason] for reason in Reason},
        {event: read[_EVENTS, event] for event in Event},
    )
