"""A host's processor, which handles its packets one after another, as an operating system's network stack does."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

BUDGET = 64  # packets that it handles before others have their turn, as NAPI does in Linux

Frames = NDArray[np.uint8]  # [m, length]


class Handled(Protocol):
    """A Station; see network.py."""

    def receive(self, frames: Frames, lengths: NDArray[np.int64], now: float) -> None: ...  # noqa: D102
    def frames_to_send(self, now: float) -> Sequence[Frames]: ...  # noqa: D102
    def deadline(self) -> float | None: ...  # noqa: D102


class Processor:
    """A Station whose packets take time of a processor before the station receives them, and after it has sent them.

    The processor takes work in the order in which it comes. What a station computes takes no time.

    Args:
        station: The station.
        packet_time: Seconds for a packet.
    """

    def __init__(self, station: Handled, packet_time: float) -> None:
        self._station = station
        self._packet_time = packet_time
        self._free_at = 0.0
        # When the processor has handled them.
        self._arrived: deque[tuple[float, Frames, NDArray[np.int64]]] = deque()
        self._sent: deque[tuple[float, Frames]] = deque()

    def receive(self, frames: Frames, lengths: NDArray[np.int64], now: float) -> None:
        """See Station."""
        for first in range(0, len(frames), BUDGET):
            part = frames[first : first + BUDGET]
            self._arrived.append((self._handle(len(part), now), part, lengths[first : first + BUDGET]))

    def frames_to_send(self, now: float) -> list[Frames]:
        """See Station."""
        while self._arrived and self._arrived[0][0] <= now:
            _, frames, lengths = self._arrived.popleft()
            self._station.receive(frames, lengths, now)
        for frames in self._station.frames_to_send(now):
            for first in range(0, len(frames), BUDGET):
                part = frames[first : first + BUDGET]
                self._sent.append((self._handle(len(part), now), part))
        ready = []
        while self._sent and self._sent[0][0] <= now:
            ready.append(self._sent.popleft()[1])
        return ready

    def deadline(self) -> float | None:
        """See Station."""
        known = [queue[0][0] for queue in (self._arrived, self._sent) if queue]
        own = self._station.deadline()
        return min([*known, *([] if own is None else [own])], default=None)

    def _handle(self, packets: int, now: float) -> float:
        """Return when the processor has handled so many more packets."""
        self._free_at = max(self._free_at, now) + packets * self._packet_time
        return self._free_at
