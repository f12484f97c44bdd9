"""Memory of packets in flight: rows of one array, so that whole batches are copied at once."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_CACHE_LINE = 64
NO_LINK = -1


class Packets(Protocol):
    """Packets as an observer sees them, by number: rows, uint8 [packets, room], and lengths, int64 [packets]."""

    @property
    def rows(self) -> NDArray[np.uint8]: ...  # noqa: D102
    @property
    def lengths(self) -> NDArray[np.int64]: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Packets that C has copied; see Packets."""

    rows: NDArray[np.uint8]
    lengths: NDArray[np.int64]

    def addresses(self) -> tuple[int, int]:
        """Return the addresses of both arrays."""
        return self.rows.ctypes.data, self.lengths.ctypes.data


class PacketStore:
    """Rows for packets of up to `longest` bytes. It grows as needed. A packet's number is that of its row.

    Attributes:
        rows: uint8 [capacity, room].
        lengths: int64 [capacity].
        came_by: The link on which the cause of the packet reached the switch that sends it, or NO_LINK if a host sends
            it.
    """

    def __init__(self, longest: int) -> None:
        self._room = -(-longest // _CACHE_LINE) * _CACHE_LINE
        self.rows = np.zeros((0, self._room), np.uint8)
        self.lengths = np.zeros(0, np.int64)
        self.came_by = np.zeros(0, np.int64)
        self._free = np.zeros(0, np.int64)  # a stack: the first `_left` are free
        self._left = 0

    @property
    def in_use(self) -> int:
        """Return the number of packets that have been added and not been freed."""
        return len(self.lengths) - self._left

    def add(
        self,
        frames: NDArray[np.uint8],
        lengths: NDArray[np.int64] | int,
        came_by: NDArray[np.int64] | int = NO_LINK,
    ) -> NDArray[np.int64]:
        """Store packets, rows of `frames` [m, at most room] bytes, and return their numbers [m].

        Raises:
            ValueError: A frame is longer than the network's longest.
        """
        count, width = frames.shape
        if width > self._room:
            raise ValueError(f"a frame of {width} bytes does not fit the network's longest, {self._room}")
        if count > self._left:
            self._grow(count)
        self._left -= count
        numbers = self._free[self._left : self._left + count].copy()
        self.rows[numbers, :width] = frames
        self.lengths[numbers] = lengths
        self.came_by[numbers] = came_by
        return numbers

    def free(self, numbers: NDArray[np.int64]) -> None:
        """Free packets, by their numbers [m]."""
        self._free[self._left : self._left + len(numbers)] = numbers
        self._left += len(numbers)

    def _grow(self, count: int) -> None:
        old = len(self.lengths)
        capacity = max(1024, 2 * old, old + count)
        # In place: a large block moves without being copied. There are no views of it.
        self.rows.resize((capacity, self._room), refcheck=False)
        self.lengths.resize(capacity, refcheck=False)
        self.came_by.resize(capacity, refcheck=False)
        free = np.empty(capacity, np.int64)
        free[: self._left] = self._free[: self._left]
        # Backwards, so that rows are used in order.
        free[self._left : self._left + capacity - old] = np.arange(capacity - 1, old - 1, -1)
        self._free = free
        self._left += capacity - old
