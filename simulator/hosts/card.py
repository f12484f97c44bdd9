"""A host's network card: the connections between hosts take turns on its link."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from ipaddress import IPv4Address
from math import inf

import numpy as np
from numpy.typing import NDArray

from fanin.simulator.hosts.circuits import Circuits
from fanin.topologies.model import Link

SMALL = 128  # bytes of frames that need no circuit
BURST = 8  # packets that a connection sends before the next one has its turn

Frames = NDArray[np.uint8]  # [m, length]


class Card:
    """Packets that the connections of a host have to send: acknowledgements first, then a burst of each one in turn.

    While several have something to send, the card gives its link no more than the link sends in `ahead` seconds. The
    rest waits with its connection, so a connection that has something to send later need not wait until the whole
    windows of all others have left. A connection that is alone gives the link all that it has.

    Attributes:
        byte_seconds: Seconds that a byte takes on the link; 0 if the link has no rate.
        overhead: Bytes of a frame on the link beyond its own.
        ahead: See above, in seconds.

    Args:
        link: The host's link.
        ahead: See above, in seconds.
        host: Address of the host; needed with circuits.
        circuits: Circuits that data needs; None if packets are switched.
    """

    def __init__(
        self, link: Link, ahead: float, host: IPv4Address | None = None, circuits: Circuits | None = None
    ) -> None:
        rate = link.rate_bits_per_second
        self.byte_seconds = 0.0 if rate is None else 8 / rate
        self.overhead = link.properties.virtual_overhead
        self.ahead = ahead
        self._acknowledgements = deque[Frames]()
        self._connections: dict[Hashable, deque[Frames]] = {}  # those with data, in the order of their turns
        self._in_turn = 0  # packets that the first connection has sent in its turn
        self._free_at = 0.0  # when the link has sent what it was given
        self._delay = link.properties.virtual_delay
        self._circuits = circuits
        self._destinations: dict[Hashable, IPv4Address] = {}  # by connection, with circuits
        self._dark_until = 0.0  # when data may leave over a circuit
        if circuits is not None:
            assert host is not None
            self._host = host
            circuits.attach(host, self._sends_until)

    @property
    def plain(self) -> bool:
        """Return whether packets need no circuits."""
        return self._circuits is None

    @property
    def ready_at(self) -> float | None:
        """Return when to take() again, in seconds; None if nothing waits."""
        if self._acknowledgements:
            return self._free_at
        return max(self._free_at, self._dark_until) if self._connections else None

    def acknowledge(self, frames: Frames) -> None:
        """Send acknowledgements [m, length] before any data."""
        self._acknowledgements.append(frames)

    def send(self, connection: Hashable, frames: Frames, destination: IPv4Address | None = None) -> None:
        """Send data [m, length] of a connection, after what it has to send already.

        With circuits, `destination` is the other host. Small messages then travel as acknowledgements do.
        """
        if self._circuits is not None:
            assert destination is not None
            if frames.shape[1] <= SMALL and connection not in self._connections:
                self._acknowledgements.append(frames)
                return
            self._destinations[connection] = destination
        self._connections.setdefault(connection, deque()).append(frames)

    def take(self, now: float) -> list[Frames]:
        """Return what to give the link now, in batches [m, length]."""
        self._free_at = max(self._free_at, now)
        taken = []
        while self._acknowledgements and (room := self._room(self._acknowledgements, now)):
            taken.append(self._give(self._acknowledgements, room))
        while self._connections and self._has_circuit(now):
            data = next(iter(self._connections.values()))
            if len(self._connections) == 1 and not self._acknowledgements:
                taken += [self._give(data, len(data[0])) for _ in range(len(data))]
                self._connections.clear()
                self._in_turn = 0
                break
            if not (room := self._room(data, now)):
                break
            frames = self._give(data, min(room, BURST - self._in_turn))
            taken.append(frames)
            self._in_turn += len(frames)
            if self._in_turn == BURST or not data:
                connection = next(iter(self._connections))
                del self._connections[connection]
                if data:
                    self._connections[connection] = data
                self._in_turn = 0
        return taken

    def _has_circuit(self, now: float) -> bool:
        """Return whether the first connection may send now; one whose circuit is there becomes the first."""
        if self._circuits is None:
            return True
        waits = []
        for connection in list(self._connections):
            self._dark_until = self._circuits.up_at(self._host, self._destinations[connection], now)
            if self._dark_until <= now:
                return True
            waits.append(self._dark_until)
            self._connections[connection] = self._connections.pop(connection)  # to the end
        self._dark_until = min(waits)
        return False

    def _sends_until(self, destination: IPv4Address, now: float) -> float:
        """Return until when data is on its way to the switch for another host; infinity while there is more."""
        if any(self._destinations[connection] == destination for connection in self._connections):
            return inf
        return max(now, self._free_at + self._delay)

    def _room(self, queue: deque[Frames], now: float) -> int:
        """Return how many of the packets at the front of a queue the link may be given."""
        count, seconds = len(queue[0]), self._packet_seconds(queue[0])
        left = now + self.ahead - self._free_at
        if left < 0:
            return 0
        return count if left >= count * seconds else 1 + int(left / seconds)

    def _give(self, queue: deque[Frames], most: int) -> Frames:
        """Take up to `most` packets from the front of a queue."""
        frames = queue.popleft()
        if most < len(frames):
            queue.appendleft(frames[most:])
            frames = frames[:most]
        self._free_at += len(frames) * self._packet_seconds(frames)
        return frames

    def _packet_seconds(self, frames: Frames) -> float:
        length: int = frames.shape[1]
        return (length + self.overhead) * self.byte_seconds
