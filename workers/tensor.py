"""The chunks of an all-reduce, and what each of them carries.

Let B = min(window, blocks). Chunk i carries the values of block i - B and announces the exponent of block i. The values
of a block are therefore sent when the largest exponent of that block is known. The first B chunks carry no values, and
the last B announce nothing.

A vector of at most as many blocks as the window has slots, and as long as one summed before, skips the first round
trip. Chunk i then announces the exponent of block i and carries its values, scaled for the exponent expected
(scaling.py). All workers have the same expectations, and see the same largest exponents. If an exponent differs from
the expected one, the sum of that block does not count. Once all exponents are known, chunk B + j carries the j-th such
block, scaled correctly.
"""

import ctypes
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from fanin.workers import wire
from fanin.workers.agreement import Agreement
from fanin.workers.values import quantization


def span(indices: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """Return consecutive indices [m] as a slice, others unchanged: a slice gives a view instead of a copy."""
    first, count = int(indices[0]), len(indices)
    if count == 1 or np.count_nonzero(indices[1:] - indices[:-1] == 1) == count - 1:
        return slice(first, first + count)
    return indices


class Tensor(ctypes.Structure):
    """The blocks of vectors of `elements` (at least one) float32 numbers, which are summed one after the other.

    The structure is laid out for native.c.

    Attributes:
        values: Elements of a block.
        bits: Bits of the integers that travel, 32 or 16.
        call: The purpose of the all-reduces, in words that must be the same at all workers.
        expected: Expected exponents by block. None if there are more blocks than the window has slots, or if no
            exponents are to be expected.
        delayed: Whether the first chunks carry values, scaled for the expected exponents.
        signature: A hash of everything that must be the same at all workers. Every packet carries it, added to the
            number of the call.
        most_chunks: Number of chunks of a vector if no exponent is as expected.
    """

    _fields_ = (
        ("_expected", ctypes.c_void_p),
        ("_agreement", ctypes.c_void_p),
        ("delayed", ctypes.c_int64),
        ("signature", ctypes.c_int64),
        ("most_chunks", ctypes.c_int64),
        ("values", ctypes.c_int64),
        ("bits", ctypes.c_int64),
    )
    delayed: int
    signature: int
    most_chunks: int
    values: int
    bits: int

    def __init__(
        self,
        elements: int,
        call: str = "",
        number: int = 0,
        *,
        workers: int,
        values: int,
        window: int,
        expects: bool = True,
    ) -> None:
        super().__init__()
        self.elements = elements
        self.call = call
        self.workers = workers
        self.values = values
        self.bits = wire.BITS[values]
        self.window = window
        self.blocks = -(-elements // values)
        self.lead = min(window, self.blocks)
        self.most_chunks = self.blocks + self.lead
        self.expected = np.zeros(self.blocks, np.int8) if expects and self.blocks == self.lead else None
        self.agreement = Agreement(elements, call, number, workers=workers, values=values, window=window)
        self._expected = None if self.expected is None else self.expected.ctypes.data
        self._agreement = self.agreement.digits.ctypes.data
        self._sign()

    def _sign(self) -> None:
        alike = (self.call, self.elements, self.workers, self.values, self.window, bool(self.delayed))
        self.signature = int.from_bytes(sha256(repr(alike).encode()).digest()[:4])

    @property
    def bare(self) -> int:
        """Return how many chunks carry no values: the first B, or none."""
        return 0 if self.delayed else self.lead

    @property
    def least_chunks(self) -> int:
        """Return how many chunks the next vector has if all exponents are as expected."""
        return self.blocks + self.bare

    def finish(self) -> bool:
        """Expect the next vector to be like this one, whose chunks have all been read.

        Returns:
            Whether this call switched `delayed` on.
        """
        if self.delayed or self.expected is None:
            return False
        self.delayed = True
        self._sign()
        return True

    def error_bound(self, factors: NDArray[np.float64], total: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the bound that quantization guarantees for each element of the last summed vector.

        Args:
            factors: The factor of each block [blocks].
            total: The sum [elements].

        Returns:
            The bounds [elements].
        """
        padded = np.pad(total, (0, self.blocks * self.values - total.size))
        rows = padded.reshape(self.blocks, self.values)
        return quantization.error_bound(factors, self.workers, rows).reshape(-1)[: total.size]
