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
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from fanin.workers.agreement import Agreement
from fanin.workers.values import quantization


def span(indices: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """The same indices [m] as a slice if they are consecutive: numpy then takes a view in place of a copy."""
    first, count = int(indices[0]), len(indices)
    if count == 1 or np.count_nonzero(indices[1:] - indices[:-1] == 1) == count - 1:
        return slice(first, first + count)
    return indices


class Tensor(ctypes.Structure):
    """The blocks of vectors of `elements` (at least one) float32 numbers, which are summed one after the other.

    Laid out for native.c.

    Attributes:
        call: What the vectors are summed for, in words that all workers must have alike.
        expected: Exponents by block; None where there are more blocks than the window has slots.
        delayed: Whether the first chunks carry values, scaled for the expected exponents.
        signature: A hash of all that the workers must have alike. Added to the call's number it is in every packet.
        most_chunks: How many chunks a vector has if no exponent is as expected.
    """

    _fields_ = (
        ("_expected", ctypes.c_void_p),
        ("_agreement", ctypes.c_void_p),
        ("delayed", ctypes.c_int64),
        ("signature", ctypes.c_int64),
        ("most_chunks", ctypes.c_int64),
    )
    delayed: int
    signature: int
    most_chunks: int

    def __init__(
        self, elements: int, call: str = "", number: int = 0, *, workers: int, values: int, window: int
    ) -> None:
        super().__init__()
        self.elements = elements
        self.call = call
        self.workers = workers
        self.values = values
        self.window = window
        self.blocks = -(-elements // values)
        self.lead = min(window, self.blocks)
        self.most_chunks = self.blocks + self.lead
        self.expected = np.zeros(self.blocks, np.int8) if self.blocks == self.lead else None
        self.agreement = Agreement(elements, call, number, workers=workers, values=values, window=window)
        self._expected = None if self.expected is None else self.expected.ctypes.data
        self._agreement = self.agreement.digits.ctypes.data
        self._sign()

    def _sign(self) -> None:
        alike = (self.call, self.elements, self.workers, self.values, self.window, bool(self.delayed))
        self.signature = int.from_bytes(sha256(repr(alike).encode()).digest()[:4])

    @property
    def bare(self) -> int:
        """How many chunks carry no values: the first B, or none."""
        return 0 if self.delayed else self.lead

    @property
    def least_chunks(self) -> int:
        """How many chunks the next vector has if all is as expected."""
        return self.blocks + self.bare

    def finish(self) -> bool:
        """Expect the next vector to be like this one, of which every chunk has been read.

        Returns:
            Whether it is delayed from now on.
        """
        if self.delayed or self.expected is None:
            return False
        self.delayed = True
        self._sign()
        return True

    def error_bound(self, factors: NDArray[np.float64], total: NDArray[np.float32]) -> NDArray[np.float64]:
        """The bound [elements] that quantization promises for each element of the vector summed last.

        Given the `factors` [blocks] and the sum `total` [elements].
        """
        padded = np.pad(total, (0, self.blocks * self.values - total.size))
        rows = padded.reshape(self.blocks, self.values)
        return quantization.error_bound(factors, self.workers, rows).reshape(-1)[: total.size]
