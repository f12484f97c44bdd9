"""Which chunks an all-reduce has, and what each of them carries.

Chunk i carries the values of block i - B and announces the exponent of block i, B = min(window, blocks): a
block's values are sent when the largest exponent of its kind is known. The first B chunks carry no values,
the last B announce nothing.

A vector of at most as many blocks as the window has slots, as long as one summed before, skips the first
round trip: chunk i announces the exponent of block i and carries its values, scaled for the exponent expected
(scaling.py). All workers have the same expectations, and see the same largest exponents. Where these turn out otherwise
the sum does not count, and once all are known chunk B + j carries the j-th such block, scaled as it should be.
"""

import ctypes

import numpy as np
from numpy.typing import NDArray

from workers.agreement import Agreement
from workers.values import quantization


def span(indices: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """The same indices [m] as a slice if they are consecutive: numpy then takes a view in place of a copy."""
    first, count = int(indices[0]), len(indices)
    if count == 1 or np.count_nonzero(indices[1:] - indices[:-1] == 1) == count - 1:
        return slice(first, first + count)
    return indices


class Tensor(ctypes.Structure):
    """The blocks of vectors of `elements` (at least one) float32 numbers, which are summed one after the other.

    call: what for, in words that all workers must have alike. expected: exponents by block; None where there are more
    blocks than the window has slots. delayed: whether the first chunks carry values scaled for those. tag: in every
    packet; each length and call that may be delayed has one of its own. most_chunks: how many a vector has if nothing
    is as expected. Laid out for native.c.
    """

    _fields_ = (
        ("_expected", ctypes.c_void_p),
        ("_agreement", ctypes.c_void_p),
        ("delayed", ctypes.c_int64),
        ("tag", ctypes.c_int64),
        ("most_chunks", ctypes.c_int64),
    )
    delayed: int
    tag: int
    most_chunks: int

    def __init__(self, elements: int, call: str = "", *, workers: int, values: int, window: int) -> None:
        super().__init__()
        self.elements = elements
        self.call = call
        self.workers = workers
        self.values = values
        self.blocks = -(-elements // values)
        self.lead = min(window, self.blocks)
        self.most_chunks = self.blocks + self.lead
        self.expected = np.zeros(self.blocks, np.int8) if self.blocks == self.lead else None
        self.agreement = Agreement(elements, call, workers=workers, values=values, window=window)
        self._expected = None if self.expected is None else self.expected.ctypes.data
        self._agreement = self.agreement.digits.ctypes.data

    @property
    def bare(self) -> int:
        """How many chunks carry no values: the first B, or none."""
        return 0 if self.delayed else self.lead

    @property
    def least_chunks(self) -> int:
        """How many chunks the next vector has if all is as expected."""
        return self.blocks + self.bare

    def finish(self, tag: int) -> bool:
        """Every chunk has been read; the next vector is expected to be like this one.

        Whether it can be delayed from now on, under `tag`.
        """
        if self.delayed or self.expected is None:
            return False
        self.delayed, self.tag = True, tag
        return True

    def error_bound(self, factors: NDArray[np.float64], total: NDArray[np.float32]) -> NDArray[np.float64]:
        """The bound [elements] that quantization promises for each element of the vector summed last.

        Given the `factors` [blocks] and the sum `total` [elements].
        """
        padded = np.pad(total, (0, self.blocks * self.values - total.size))
        rows = padded.reshape(self.blocks, self.values)
        return quantization.error_bound(factors, self.workers, rows).reshape(-1)[: total.size]
