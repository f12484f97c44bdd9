"""What all-reduces must give, bit for bit: exact integers, or float32 added in the algorithm's order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.recording import Vector
from experiments.virtual import JobSpec
from workers import quantization, scaling
from workers.summation import float32_sum


class QuantizedSum(NamedTuple):
    """A sum, how many results saturate on the way (at the upper limit), and how many chunks it takes."""

    result: Vector
    saturated: int
    chunks: int


class QuantizedSums:
    """The in-network all-reduces of one lease, one after the other.

    values: of a packet. window: slots. counted: how many workers each believes there are.
    """

    def __init__(self, values: int, window: int, counted: int) -> None:
        self._values = values
        self._window = window
        self._counted = counted
        self._expected: dict[int, NDArray[np.int8]] = {}  # by the vectors' length, see workers/scaling.py

    def next(self, inputs: Sequence[Vector]) -> QuantizedSum:
        """The next one: exact integers, dequantized."""
        length = len(inputs[0])
        blocks = [_blocks(x, self._values) for x in inputs]
        exponents = [quantization.block_exponents(x, self._counted)[0] for x in blocks]
        largest = np.max(exponents, axis=0)
        factors = quantization.scales(largest, self._counted)
        sums = _sums(blocks, [factors] * len(blocks))
        expected = self._expected.get(length)
        if len(largest) <= self._window:
            self._expected[length] = scaling.expect(largest)
        if expected is None:
            saturated, chunks = _saturated(sums), len(largest) + min(self._window, len(largest))
        else:
            hoped_for = quantization.scales(expected, self._counted)
            first = _sums(blocks, [np.where(own <= expected, hoped_for, 0.0) for own in exponents])
            fits = scaling.fits(expected, largest)
            saturated = _saturated(first) + _saturated(sums[~fits])
            chunks = len(largest) + int(np.count_nonzero(~fits))
            factors = np.where(fits, hoped_for, factors)
            sums[fits] = first[fits]
        result = np.minimum(sums, quantization.LARGEST_SUM) / factors[:, np.newaxis]
        return QuantizedSum(result.astype(np.float32).reshape(-1)[:length], saturated, chunks)


def expected_sum(spec: JobSpec, inputs: Sequence[Vector]) -> Vector:
    """Of a job's first all-reduce."""
    if spec.algorithm == "in-network":
        return QuantizedSums(spec.values, spec.window, spec.counted or len(inputs)).next(inputs).result
    return float32_sum(spec.algorithm, inputs, spec.shards)


def _sums(blocks: Sequence[Vector], factors: Sequence[NDArray[np.float64]]) -> NDArray[np.int64]:
    total = np.zeros(blocks[0].shape, np.int64)
    for x, factor in zip(blocks, factors, strict=True):
        total += np.rint(x.astype(np.float64) * factor[:, np.newaxis]).astype(np.int64)
    return total


def _saturated(sums: NDArray[np.int64]) -> int:
    return int(np.count_nonzero((sums > quantization.LARGEST_SUM).any(axis=1)))


def _blocks(x: Vector, values: int) -> Vector:
    padding = -len(x) % values
    return (np.pad(x, (0, padding)) if padding else x).reshape(-1, values)
