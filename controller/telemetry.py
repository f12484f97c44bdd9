"""The switches' counters, read over P4Runtime; this works with BMv2, too, since no register is read."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType
from typing import Self

from finsy.proto import p4i

from fanin.controller.connection import Connection, Count
from fanin.controller.errors import ControllerError
from fanin.controller.network import Network
from fanin.controller.schema import schema_of

_LOOK_SECONDS = 2.0  # for an answer to Telemetry


class Reason(IntEnum):
    """The reason for a dropped packet: the index of ingress.drops (p4src/reasons.p4)."""

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
    NO_CHECKSUM = 18


class Event(IntEnum):
    """A counted event in aggregation: the index of ingress.aggregation.events (p4src/reasons.p4)."""

    NEW_CHUNK = 0
    ADDED = 1
    COMPLETED = 2
    RESULT_DOWN = 3
    SERVED_AGAIN = 4
    SENT_UP_AGAIN = 5
    SATURATED = 6


@dataclass(frozen=True, slots=True)
class PortCounts:
    """The traffic of a port. Packets that the emulated link lost are included in `received` and `sent`.

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
    """The counters of one switch since its program was pushed; subtract two for what happened in between."""

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

# The names of a counter's cells, by the counter's name; the cells of PORT_COUNTERS are ports.
CELLS: Mapping[str, type[IntEnum]] = {_DROPS: Reason, _EVENTS: Event}


def cells_read(ports: Iterable[int]) -> list[tuple[str, int]]:
    """Return the counters and indices that hold everything that a switch with these ports has counted."""
    cells = [(name, port) for port in ports for name in PORT_COUNTERS]
    return cells + [(name, int(cell)) for name, kind in CELLS.items() for cell in kind]


async def read_counts(connection: Connection, network: Network) -> SwitchCounts:
    """Return everything that the switch has counted, at its ports that have links."""
    ports = list(network.interfaces(connection.switch.name))
    read = await connection.read_counters(cells_read(ports))
    return SwitchCounts(
        {port: PortCounts(*(read[name, port] for name in PORT_COUNTERS)) for port in ports},
        {reason: read[_DROPS, reason] for reason in Reason},
        {event: read[_EVENTS, event] for event in Event},
    )


class Telemetry:
    """Reads the switches' counters without involving their controller. An asynchronous context manager.

    Args:
        network: The network.
        p4info: The P4Info of the program that the switches run.
        device_config: The program, BMv2 JSON.
    """

    def __init__(self, network: Network, p4info: p4i.P4Info, device_config: bytes) -> None:
        schema = schema_of(p4info, device_config)
        self._network = network
        # Reads need no session.
        self._connections = {switch.name: Connection(switch, schema) for switch in network.switches}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        for connection in self._connections.values():
            await connection.close()

    async def counts(self) -> Mapping[str, SwitchCounts | str]:
        """Return what each switch has counted since its program was pushed, or why that is not known."""
        found = await asyncio.gather(*map(self._counts, self._connections.values()))
        return dict(zip(self._connections, found, strict=True))

    async def register(self, switch: str, name: str) -> list[int]:
        """Return all cells of a register; not available from BMv2.

        Raises:
            ControllerError: If the switch does not answer, or refuses.
            ValueError: If the program has no such register.
        """
        return await self._connections[switch].read_register(name)

    async def _counts(self, connection: Connection) -> SwitchCounts | str:
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                return await read_counts(connection, self._network)
        except TimeoutError:
            return f"{connection.switch.name} has not answered for {_LOOK_SECONDS:g} s"
        except ControllerError as error:
            return str(error)
        except ValueError as error:  # a user's program
            return f"the program of {connection.switch.name} lacks some of fanin's counters: {error}"
