"""A host's network card: the connections between hosts take turns on its link."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from fanin.topologies.model import Link

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
    """

    def __init__(self, link: Link, ahead: float) -> None:
        rate = link.rate_bits_per_second
        self.byte_seconds = 0.0 if rate is None else 8 / rate
        self.overhead = link.properties.virtual_overhead
        self.ahead = ahead
        self._acknowledgements = deque[Frames]()
        self._connections: dict[Hashable, deque[Frames]] = {}  # those with data, in the order of their turns
        self._in_turn = 0  # packets that the first connection has sent in its turn
        self._free_at = 0.0  # when the link has sent what it was given

    @property
    def ready_at(self) -> float | None:
        """Return when to take() again, in seconds; None if nothing waits."""
        return self._free_at if self._acknowledgements or self._connections else None

    def acknowledge(self, frames: Frames) -> None:
        """Send acknowledgements [m, length] before any data."""
        self._acknowledgements.append(frames)

    def send(self, connection: Hashable, frames: Frames) -> None:
        """Send data [m, length] of a connection, after what it has to send already."""
        self._connections.setdefault(connection, deque()).append(frames)

    def take(self, now: float) -> list[Frames]:
        """Return what to give the link now, in batches [m, length]."""
        self._free_at = max(self._free_at, now)
        taken = []
        while self._acknowledgements and (room := self._room(self._acknowledgements, now)):
            taken.append(self._give(self._acknowledgements, room))
        while self._connections:
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
