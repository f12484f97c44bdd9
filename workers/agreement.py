"""Numbers that all workers of an all-reduce must share, and how they detect a difference.

The first chunk of a vector carries none of its values (tensor.py), but digits of the numbers below. The switches add
them up as they do all values: if all workers agree, each sum is `workers` times a worker's own digit. A rank that
differs from the mean sees the difference and stops. A rank that equals the mean cannot finish without the others, since
no value has been sent.
"""

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

_CALL = "call"
_BITS = 15  # bits of a digit: the sum over quantization.MAX_WORKERS fits int32


class Agreement:
    """The numbers of one worker's call and lease, as digits.

    Attributes:
        digits: The digits that the worker sends, int32 [DIGITS].

    Args:
        elements: Length of the vector.
        call: The purpose of the all-reduce, as text.
        number: Number of earlier calls in the lease.
        workers: Number of workers in the lease.
        values: Values in a packet.
        window: Chunks in flight.
    """

    def __init__(
        self, elements: int, call: str = "", number: int = 0, *, workers: int, values: int, window: int
    ) -> None:
        self._workers = workers
        self._call = call
        self._numbers = (
            ("elements", elements, 3),
            ("window", window, 2),
            ("values in a packet", values, 1),
            ("workers", workers, 2),
            ("calls before", number % (1 << 2 * _BITS), 2),
            (_CALL, crc32(call.encode()) >> 2, 2),
        )
        mask = (1 << _BITS) - 1
        self.digits = np.array(
            [number >> _BITS * i & mask for _, number, count in self._numbers for i in range(count)], np.int32
        )

    def holds(self, sums: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which rows of `sums` [m, DIGITS] agree with all workers having sent the same digits: [m]."""
        holds: NDArray[np.bool_] = (sums == self.digits.astype(np.int64) * self._workers).all(axis=1)
        return holds

    def explain(self, sums: NDArray[np.int64]) -> str:
        """Describe each number that differs between workers: this worker's value and the mean, from `sums` [DIGITS]."""
        found, start = [], 0
        for name, number, count in self._numbers:
            total = sum(int(digit) << _BITS * i for i, digit in enumerate(sums[start : start + count]))
            if name == _CALL and total != number * self._workers:
                found.append(f"{self._call or 'an all-reduce'} here, something else on others")
            elif total != number * self._workers:
                found.append(
                    f"{name}: {number} here, {total / self._workers:g} on average over {self._workers} workers"
                )
            start += count
        return "; ".join(found)


DIGITS = len(Agreement(1, workers=1, values=64, window=1).digits)
