"""The results that a worker keeps of its sums in the network, in case its lease is lost (ring_fallback.py)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_MAX_BUFFERS = 1024  # remembered at most


class RetainedResult:
    """The last result of the sums in the network.

    Attributes:
        finished: Number of finished all-reduces in the network.
        last: The result of the last one, [elements], or its end.
    """

    def __init__(self, finished: int = 0) -> None:
        self.finished = finished
        self._memory = self.last = self._pending = np.empty(0, np.float32)
        self._buffers: dict[
            int, NDArray[np.float32]
        ] = {}  # views of the memory, by size, reused for equal sizes

    def buffer(self, size: int) -> NDArray[np.float32]:
        """Return memory for the next result, which is kept there in case other workers do not get it.

        It may overlap the last result: the first part of the next one arrives when all workers have begun it, and so
        have the last one.
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
        """Set where the next result goes if it comes from another worker, [elements]; else it is kept elsewhere."""
        self._pending = array

    def finish(self) -> None:
        """Record that the next result is complete."""
        self.finished += 1
        self.last = self._pending


@dataclass(frozen=True, slots=True)
class ProgressSnapshot:
    """The number of all-reduces that each worker had finished in the network when it learned of the loss, by rank.

    The number of a worker that has ended is None. The numbers differ by at most one.
    """

    finished: Sequence[int | None]

    @property
    def most(self) -> int:
        """Return how many all-reduces all workers will have finished."""
        return max(count for count in self.finished if count is not None)

    @property
    def giver(self) -> int:
        """Return the rank that sends its last result to those behind."""
        return self.finished.index(self.most)

    @property
    def behind(self) -> list[int]:
        """Return the ranks in an all-reduce that others have finished."""
        return [rank for rank, count in enumerate(self.finished) if count is not None and count < self.most]
