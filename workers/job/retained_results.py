"""What a worker keeps of its sums in the network, in case that its lease is lost (handover.py). No sockets."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_MAX_BUFFERS = 1024  # that are remembered


class Kept:
    """finished: all-reduces in the network so far. last: the result of the last one, [elements], or its end."""

    def __init__(self, finished: int = 0) -> None:
        self.finished = finished
        self._memory = self.last = self._pending = np.empty(0, np.float32)
        self._buffers: dict[int, NDArray[np.float32]] = {}  # of it, by size: the same ones for the same sums

    def buffer(self, size: int) -> NDArray[np.float32]:
        """For the next result, which is kept there in case that others do not get it.

        It may lie where the last one is kept: the first of it arrives when all have begun it, and have the last one.
        """
        buffer = self._buffers.get(size)
        if buffer is None:
            buffer = self._new_buffer(size)
        self._pending = buffer
        return buffer

    def _new_buffer(self, size: int) -> NDArray[np.float32]:
        if len(self._memory) < size:
            self._memory = np.empty(size, np.float32)
            self._buffers.clear()
        if len(self._buffers) == _MAX_BUFFERS:
            self._buffers.clear()
        buffer = self._buffers[size] = self._memory[:size]
        return buffer

    def take_into(self, array: NDArray[np.float32]) -> None:
        """Where the next result goes if others have it, [elements]; it is kept elsewhere."""
        self._pending = array

    def finish(self) -> None:
        """The result is there."""
        self.finished += 1
        self.last = self._pending


@dataclass(frozen=True, slots=True)
class ProgressSnapshot:
    """How many all-reduces each worker had finished in the network when it heard of the loss, by rank.

    None: that worker has ended. They are one apart at most.
    """

    finished: Sequence[int | None]

    @property
    def most(self) -> int:
        """What all will have finished."""
        return max(count for count in self.finished if count is not None)

    @property
    def giver(self) -> int:
        """The rank whose last result those behind are sent."""
        return self.finished.index(self.most)

    @property
    def behind(self) -> list[int]:
        """Ranks in an all-reduce that others have finished."""
        return [rank for rank, count in enumerate(self.finished) if count is not None and count < self.most]
