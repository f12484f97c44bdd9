"""One all-reduce's data: what each of its chunks carries, and what the results mean.

Chunk i carries the values of block i - B and announces the exponent of block i, B = min(window, blocks): a
block's values are sent when the largest exponent of its kind is known. The first B chunks carry no values,
the last B announce nothing.

A vector of at most as many blocks as the window has slots, as long as one summed before, skips the first
round trip: chunk i announces the exponent of block i and carries its values, scaled for the exponent expected
(scaling.py). All workers have the same expectations, and see the same largest exponents. Where these turn out otherwise
the sum does not count, and once all are known chunk B + j carries the j-th such block, scaled as it should be.
"""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from workers import quantization, scaling, wire
from workers.agreement import DIGITS, Agreement


def span(indices: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """The same indices as a slice if they are consecutive: numpy then takes a view in place of a copy."""
    first, count = int(indices[0]), len(indices)
    if count == 1 or np.count_nonzero(indices[1:] - indices[:-1] == 1) == count - 1:
        return slice(first, first + count)
    return indices


class Tensor(ABC):
    """The blocks of vectors of `elements` (at least one) float32 numbers, which are summed one after the other.

    chunks: how many the vector begun last has, as far as it is known. expected: exponents by block; None where there
    are more blocks than the window has slots. delayed: whether the first chunks carry values scaled for those. tag:
    in every packet; each length that may be delayed has one of its own.
    """

    def __init__(self, elements: int, *, workers: int, values: int, window: int) -> None:
        self.elements = elements
        self.workers = workers
        self.values = values
        self.blocks = -(-elements // values)
        self.lead = min(window, self.blocks)
        self.chunks = 0
        self.expected = np.zeros(self.blocks, np.int8) if self.blocks == self.lead else None
        self.delayed = False
        self.tag = 0
        self.agreement = Agreement(elements, workers=workers, values=values, window=window)

    @property
    def bare(self) -> int:
        """How many chunks carry no values: the first B, or none."""
        return 0 if self.delayed else self.lead

    @property
    def least_chunks(self) -> int:
        """How many chunks the next vector has if all is as expected."""
        return self.blocks + self.bare

    @property
    def most_chunks(self) -> int:
        """How many chunks the next vector has if nothing is as expected."""
        return self.blocks + self.lead

    @property
    @abstractmethod
    def factors(self) -> NDArray[np.float64]:
        """What the integers were multiplied by, by block, once its exponent is known."""

    @property
    @abstractmethod
    def quantizable(self) -> NDArray[np.bool_]:
        """Which blocks of this worker are, once announced."""

    @abstractmethod
    def begin(self, x: NDArray[np.float32], out: NDArray[np.float32]) -> int:
        """Begin to sum the flat vector `x` into `out`, which both stay as they are until finish().

        How many of its blocks cannot be quantized.
        """

    def finish(self, tag: int) -> bool:
        """Every chunk has been read; the next vector is expected to be like this one.

        Whether it can be delayed from now on, under `tag`.
        """
        if self.delayed or self.expected is None:
            return False
        self.delayed, self.tag = True, tag
        return True

    def error_bound(self, total: NDArray[np.float32]) -> NDArray[np.float64]:
        """The bound that quantization promises for each element of the vector summed last, given its sum."""
        padded = np.pad(total, (0, self.blocks * self.values - total.size))
        rows = padded.reshape(self.blocks, self.values)
        return quantization.error_bound(self.factors, self.workers, rows).reshape(-1)[: total.size]


class NumpyTensor(Tensor):
    """A Tensor whose packets are written and read by numpy, many at once."""

    def __init__(self, elements: int, *, workers: int, values: int, window: int) -> None:
        super().__init__(elements, workers=workers, values=values, window=window)
        self._factors = np.empty(self.blocks)
        # By chunk, of which there are as many at most: the last ones announce what changes no maximum.
        self.e0 = np.full(self.least_chunks, quantization.SMALLEST_EXPONENT, np.int8)
        self.e1 = np.zeros(self.least_chunks, np.uint8)  # without the tag
        self.accepted = np.zeros(self.least_chunks, np.bool_)  # whose results are there

    @property
    def factors(self) -> NDArray[np.float64]:
        """See Tensor."""
        return self._factors

    @property
    def quantizable(self) -> NDArray[np.bool_]:
        """See Tensor."""
        return self.e1[: self.blocks] < wire.NOT_QUANTIZABLE

    def begin(self, x: NDArray[np.float32], out: NDArray[np.float32]) -> int:
        """See Tensor."""
        padding = self.blocks * self.values - x.size
        self._out = out
        self._x_rows = self._rows(np.pad(x, (0, padding)) if padding else x)
        self._out_rows = self._rows(np.empty(x.size + padding, np.float32) if padding else out)
        self.chunks = self.least_chunks
        self.accepted[:] = False
        self._missed = np.zeros(0, np.int64)  # blocks whose exponents are not as expected
        self._undecided = np.ones(self.blocks, np.bool_)
        exponents, quantizable = quantization.block_exponents(self._x_rows, self.workers)
        self.e0[: self.blocks] = exponents
        self.e1[: self.blocks] = np.where(quantizable, 0, wire.NOT_QUANTIZABLE)
        return int(np.count_nonzero(~quantizable))

    def _rows(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        return vector.reshape(self.blocks, self.values)

    def write(self, chunks: NDArray[np.int64], packets: NDArray[np.void]) -> None:
        """Fill exponents and values of `packets` for these chunks: all among the first B, or none."""
        packets["e0"] = self.e0[chunks]
        packets["e1"] = self.e1[chunks] | self.tag
        if chunks[0] < self.bare:
            packets["values"] = 0
            packets["values"][chunks == 0, :DIGITS] = self.agreement.digits
            return
        rows = span(self._blocks_of(chunks))
        factors = self._factors[rows] if chunks[0] >= self.lead else self._expected_factors(rows)
        integers = quantization.quantize(self._x_rows[rows], factors)
        undefined = np.isnan(factors)
        if np.count_nonzero(undefined):
            integers[undefined] = 0
        packets["values"] = integers

    def possible(
        self, chunks: NDArray[np.int64], e0: NDArray[np.int8], e1: NDArray[np.uint8]
    ) -> NDArray[np.bool_]:
        """Of which of these chunks that can be the result: what this worker has announced is in the maxima."""
        own = self.e1[chunks]
        same: NDArray[np.bool_] = (e1 & (own | wire.MAX_TAG)) == (own | self.tag)
        return same & (e0 >= self.e0[chunks])

    def read(self, chunks: NDArray[np.int64], packets: NDArray[np.void]) -> None:
        """Take over the results of these chunks, each once."""
        announcing = chunks < self.blocks
        carrying = chunks >= self.lead
        if np.count_nonzero(announcing):
            fits = self._learn(
                chunks[announcing],
                packets["e0"][announcing],
                packets["e1"][announcing] < wire.NOT_QUANTIZABLE,
            )
            carrying[announcing] |= fits
        if np.count_nonzero(carrying) < len(chunks):
            chunks, packets = chunks[carrying], packets[carrying]
        if len(chunks):
            rows = span(self._blocks_of(chunks))
            values = self._out_rows[rows]
            quantization.dequantize(packets["values"], self._factors[rows], values)
            if not isinstance(rows, slice):  # a copy
                self._out_rows[rows] = values

    def _learn(
        self, blocks: NDArray[np.int64], largest: NDArray[np.int8], quantizable: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Take over the largest exponents of these blocks; of which the sums that came with them count."""
        fits = np.zeros(len(blocks), np.bool_)
        used = largest
        if self.expected is not None:
            expected = self.expected[blocks]
            self.expected[blocks] = scaling.expect(largest)
            if self.delayed:
                fits = scaling.fits(expected, largest) & quantizable
                used = np.where(fits, expected, largest)
                self._undecided[blocks] = False
                self._missed = np.union1d(self._missed, blocks[~fits])
        self._factors[blocks] = np.where(quantizable, quantization.scales(used, self.workers), np.nan)
        return fits

    def repeat_missed(self) -> NDArray[np.int64]:
        """The chunks to send beside once all exponents are known, for blocks whose were not as expected."""
        if not self.delayed or self.chunks > self.lead or np.count_nonzero(self._undecided):
            return self._missed[:0]
        self.chunks += len(self._missed)
        return np.arange(self.lead, self.chunks)

    def _expected_factors(self, rows: slice | NDArray[np.int64]) -> NDArray[np.float64]:
        """NaN for the blocks that are known not to be as expected."""
        assert self.expected is not None
        factors = quantization.scales(self.expected[rows], self.workers)
        factors[(self.e1[rows] >= wire.NOT_QUANTIZABLE) | (self.e0[rows] > self.expected[rows])] = np.nan
        return factors

    def _blocks_of(self, chunks: NDArray[np.int64]) -> NDArray[np.int64]:
        """The blocks whose values these chunks carry, all among the first B, or none."""
        if not self.delayed:
            return chunks - self.lead
        return chunks if chunks[0] < self.lead else self._missed[chunks - self.lead]

    def finish(self, tag: int) -> bool:
        """See Tensor; complete the caller's array, and let go of it."""
        if self._out_rows.size != self._out.size:
            self._out[:] = self._out_rows.reshape(-1)[: self._out.size]
        del self._x_rows, self._out_rows, self._out
        return super().finish(tag)
