"""One all-reduce's data: what each of its chunks carries, and what the results mean.

Chunk i carries the values of block i - B and announces the exponent of block i, B = min(window, blocks): a
block's values are sent when the largest exponent of its kind is known. The first B chunks carry no values,
the last B announce nothing.
"""

import numpy as np
from numpy.typing import NDArray

from workers import quantization

# e1 of the packet: some worker's block announced here cannot be quantized, so its sum is NaN. The switch
# keeps the larger.
NOT_QUANTIZABLE = 1


def span(indices: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """The same indices as a slice if they are consecutive: numpy then takes a view in place of a copy."""
    first, count = int(indices[0]), len(indices)
    if count == 1 or np.count_nonzero(indices[1:] - indices[:-1] == 1) == count - 1:
        return slice(first, first + count)
    return indices


class Tensor:
    """The blocks of a flat float32 array `x` with at least one element, summed into the flat array `out`.

    e0, e1: what chunks say of the exponents, int8. accepted: which chunks' results are there. factors: by
    block, once their exponent is known.
    """

    e0: NDArray[np.int8]
    e1: NDArray[np.int8]
    accepted: NDArray[np.bool_]
    factors: NDArray[np.float64]

    def __init__(
        self, x: NDArray[np.float32], out: NDArray[np.float32], *, workers: int, values: int, window: int
    ) -> None:
        self.workers = workers
        self.values = values
        self.blocks = -(-x.size // values)
        self.lead = min(window, self.blocks)
        self.chunks = self.blocks + self.lead
        self.x = x
        self.out = out

    def announce(self) -> int:
        """Find the blocks' exponents; how many blocks cannot be quantized."""
        raise NotImplementedError

    def require_quantizable(self) -> None:
        """ValueError, naming the first element at fault: NaN, infinite, or a magnitude of 2^127 and more."""
        if self.announce():
            index = quantization.first_unquantizable(self.x, self.values, self.e1 != NOT_QUANTIZABLE)
            raise ValueError(
                f"element {index} is {self.x[index]}: sums need finite numbers below 2^127 in magnitude. "
                "Clip or scale the input, or choose non_finite='propagate' to get NaN for its whole block"
            )

    def finish(self) -> None:
        """Every chunk has been read: complete the caller's array."""

    def error_bound(self) -> NDArray[np.float64]:
        """The bound that quantization promises for each element of the finished result."""
        padded = np.pad(self.out, (0, self.blocks * self.values - self.out.size))
        rows = padded.reshape(self.blocks, self.values)
        return quantization.error_bound(self.factors, self.workers, rows).reshape(-1)[: self.out.size]


class NumpyTensor(Tensor):
    """A Tensor whose packets are written and read by numpy, many at once."""

    def __init__(
        self, x: NDArray[np.float32], out: NDArray[np.float32], *, workers: int, values: int, window: int
    ) -> None:
        super().__init__(x, out, workers=workers, values=values, window=window)
        padding = self.blocks * values - x.size
        self._x_rows = (np.pad(x, (0, padding)) if padding else x).reshape(self.blocks, values)
        self._out_rows = (np.empty(x.size + padding, np.float32) if padding else out).reshape(
            self.blocks, values
        )
        # As long as there are chunks, so that the last ones announce what changes no maximum.
        self.e0 = np.full(self.chunks, quantization.SMALLEST_EXPONENT, np.int8)
        self.e1 = np.zeros(self.chunks, np.int8)
        self.accepted = np.zeros(self.chunks, np.bool_)
        self.factors = np.empty(self.blocks)

    def announce(self) -> int:
        """See Tensor."""
        exponents, quantizable = quantization.block_exponents(self._x_rows, self.workers)
        self.e0[: self.blocks] = exponents
        self.e1[: self.blocks][~quantizable] = NOT_QUANTIZABLE
        return int(np.count_nonzero(~quantizable))

    def write(self, chunks: NDArray[np.int64], packets: NDArray[np.void]) -> None:
        """Fill exponents and values of `packets` for these chunks: all among the first B, or none."""
        packets["e0"] = self.e0[chunks]
        packets["e1"] = self.e1[chunks]
        if chunks[0] < self.lead:
            packets["values"] = 0
            return
        rows = span(chunks - self.lead)
        factors = self.factors[rows]
        integers = quantization.quantize(self._x_rows[rows], factors)
        undefined = np.isnan(factors)
        if np.count_nonzero(undefined):
            integers[undefined] = 0
        packets["values"] = integers

    def read(self, chunks: NDArray[np.int64], packets: NDArray[np.void]) -> None:
        """Take over the results of these chunks, each once."""
        announcing = chunks < self.blocks
        if np.count_nonzero(announcing):
            factors = quantization.scales(packets["e0"][announcing], self.workers)
            factors[packets["e1"][announcing] >= NOT_QUANTIZABLE] = np.nan
            self.factors[chunks[announcing]] = factors
        carrying = chunks >= self.lead
        if np.count_nonzero(carrying) < len(chunks):
            chunks, packets = chunks[carrying], packets[carrying]
        if len(chunks):
            rows = span(chunks - self.lead)
            values = self._out_rows[rows]
            quantization.dequantize(packets["values"], self.factors[rows], values)
            if not isinstance(rows, slice):  # a copy
                self._out_rows[rows] = values

    def finish(self) -> None:
        """Every chunk has been read: complete the caller's array."""
        if self._out_rows.size != self.out.size:
            self.out[:] = self._out_rows.reshape(-1)[: self.out.size]
