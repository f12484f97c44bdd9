"""Every result of every worker is held against the exact sum; times are those of the slowest worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.recording import Recording, Vector
from workers import quantization, ring

# Takes the workers' inputs, float32 [workers, elements], and returns what is promised of each element of the result:
# the largest distance from the exact sum, float64 [elements].
ErrorBound = Callable[[Vector], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Errors:
    """The distance of a run's results from the exact sums, and how many elements lie outside their own bound."""

    largest: float
    bound: float
    violations: int


def compare_with_exact_sum(recordings: Sequence[Recording], error_bound: ErrorBound) -> Errors:
    """Hold the result of every step and every worker against the float64 sum of what all workers put in."""
    largest = widest = 0.0
    violations = 0
    for step in range(len(recordings[0].starts)):
        inputs = np.stack([recording.inputs[step] for recording in recordings])
        exact = inputs.sum(axis=0, dtype=np.float64)
        bounds = error_bound(inputs)
        widest = max(widest, float(bounds.max()))
        for recording in recordings:
            error = np.abs(recording.outputs[step] - exact)
            violations += int(np.count_nonzero(~(error <= bounds)))  # a NaN is outside, too
            largest = max(largest, float(error.max()))
    return Errors(largest, widest, violations)


def float32_sum_bound(inputs: Vector) -> NDArray[np.float64]:
    """The promise of ring all-reduce, from the inputs alone."""
    return ring.error_bound(len(inputs), np.abs(inputs).sum(axis=0, dtype=np.float64))


def quantized_sum_bound(inputs: Vector, values: int = 256) -> NDArray[np.float64]:
    """The promise of block floating point with blocks of `values` (workers/quantization.py), from the inputs alone."""
    workers, elements = inputs.shape
    padded = np.pad(inputs, ((0, 0), (0, -elements % values)))
    exponents = [quantization.block_exponents(row.reshape(-1, values), workers)[0] for row in padded]
    factors = quantization.scales(np.max(exponents, axis=0), workers)
    exact = padded.sum(axis=0, dtype=np.float64).astype(np.float32).reshape(-1, values)
    # The result may be the float32 next to the exact sum's, whose unit in the last place is at most twice as large.
    bound = quantization.error_bound(factors, workers, 2 * exact)
    return bound.reshape(-1)[:elements]


def durations(recordings: Sequence[Recording]) -> NDArray[np.float64]:
    """Seconds of each all-reduce [steps]: from the last worker's call to the last worker's result.

    Workers share a machine and so CLOCK_MONOTONIC.
    """
    starts = np.max([recording.starts for recording in recordings], axis=0)
    ends = np.max([recording.ends for recording in recordings], axis=0)
    return np.asarray(ends - starts, dtype=np.float64)
