"""Comparison of every worker's results with the exact sums, and the times of the slowest workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.protocol import Protocol, exact_sum
from fanin.experiments.results.recording import Recording, Vector
from fanin.workers.collective import Algorithm, Operation
from fanin.workers.host_based.algorithms.all_reduce import float32_error_bound
from fanin.workers.host_based.pieces import bounds
from fanin.workers.values import quantization, scaling
from fanin.workers.values.compression import Compressor, decompressed

# Takes the workers' inputs, a vector [elements] each, and returns the promised bound of each element of the result: its
# largest distance from the exact sum, float64 [elements].
ErrorBound = Callable[[Sequence[Vector]], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Errors:
    """The distances of results from the exact sums.

    Attributes:
        largest: The largest distance.
        bound: The largest bound.
        violations: Number of elements that lie outside their own bound.
    """

    largest: float
    bound: float
    violations: int

    @staticmethod
    def of_all(parts: Iterable[Errors]) -> Errors:
        """Combine the errors of several all-reduces."""
        found = list(parts)
        return Errors(
            max((part.largest for part in found), default=0.0),
            max((part.bound for part in found), default=0.0),
            sum(part.violations for part in found),
        )


@dataclass(frozen=True, slots=True)
class Promise:
    """The result that a collective operation must give on certain inputs.

    Attributes:
        exact: The exact result [elements] of all workers, or that of each [workers, elements].
        bound: The largest distance from it, [elements].
        edges: Worker r is promised only the elements from edges[r] to edges[r + 1] - 1; None: all.
        exact_for: Returns the exact result of a worker [elements], given what it got, if results may lack workers;
            None: it is `exact`.
    """

    exact: NDArray[np.floating[Any]]
    bound: NDArray[np.float64]
    edges: Sequence[int] | None = None
    exact_for: Callable[[Vector], NDArray[np.float64]] | None = None

    def hold(self, outputs: Iterable[Vector], first: int = 0) -> Errors:
        """Compare the results of workers, [elements] each, with the promise.

        Args:
            outputs: The results, in the order of ranks.
            first: Rank of the first one.
        """
        largest, violations = 0.0, 0
        for rank, output in enumerate(outputs, start=first):
            part = slice(None) if self.edges is None else slice(self.edges[rank], self.edges[rank + 1])
            exact = self.exact if self.exact.ndim == 1 else self.exact[rank]
            if self.exact_for is not None:
                exact = self.exact_for(output)
            error = np.abs(output[part] - exact[part])
            violations += int(np.count_nonzero(~(error <= self.bound[part])))  # a NaN is outside, too
            largest = max(largest, float(error.max(initial=0.0)))
        return Errors(largest, float(self.bound.max()), violations)


# Takes the workers' inputs, a vector [elements] each, and returns the promise of an all-reduce.
Oracle = Callable[[Sequence[Vector]], Promise]


def sums_within(error_bound: ErrorBound) -> Oracle:
    """Return the oracle of all-reduces that promise the sum within a bound."""
    return lambda inputs: Promise(exact_sum(inputs), error_bound(inputs))


def promise_of(operation: Operation, inputs: Sequence[Vector], oracle: Oracle) -> Promise:
    """Return the promise of a collective operation.

    schedules.schedule() decides which worker has which segment. Values that are not summed must be equal to the bit.

    Args:
        operation: The operation.
        inputs: Each worker's input [elements], in the order of ranks.
        oracle: The oracle of an all-reduce.
    """
    edges = bounds(len(inputs[0]), len(inputs))
    nothing = np.zeros(len(inputs[0]))
    match operation:
        case "all-reduce":
            return oracle(inputs)
        case "reduce-scatter":
            return replace(oracle(inputs), edges=edges)
        case "all-gather":
            parts = [x[begin:end] for x, (begin, end) in zip(inputs, pairwise(edges), strict=True)]
            return Promise(np.concatenate(parts), nothing)
        case "broadcast":
            return Promise(inputs[0].copy(), nothing)
        case "all-to-all":
            columns = [np.concatenate([x[begin:end] for x in inputs]) for begin, end in pairwise(edges)]
            return Promise(np.stack(columns), nothing)
    assert_never(operation)


def compare_with_promise(recordings: Sequence[Recording], oracle: Oracle) -> Errors:
    """Compare each worker's result of every step with what the oracle promises for all workers' inputs."""
    return Errors.of_all(
        oracle([recording.inputs[step] for recording in recordings]).hold(
            recording.outputs[step] for recording in recordings
        )
        for step in range(len(recordings[0].starts))
    )


def oracle_of(
    protocol: Protocol,
    algorithm: Algorithm,
    values: int,
    window: int,
    compressor: Compressor | None = None,
    trees: int = 1,
) -> Oracle:
    """Return the oracle of an algorithm's all-reduces, to be called for each of them in order.

    Args:
        protocol: In-network: the protocol.
        algorithm: The algorithm.
        values: In-network: values in a packet.
        window: In-network: packets in flight along each tree.
        compressor: Compression of vectors, if any.
        trees: In-network: number of trees, each of which sums a part of a vector.
    """
    if compressor is not None:
        return sums_within(partial(compressed_sum_bound, compressor=compressor))
    if algorithm == "in-network":
        return _aggregated(protocol, values, window, trees)
    return sums_within(float32_sum_bound)


def _aggregated(protocol: Protocol, values: int, window: int, trees: int) -> Oracle:
    """Return the oracle of a protocol for vectors in as many parts as there are trees, each reduced separately."""
    exact_of: dict[int, list[Callable[[Sequence[Vector]], NDArray[np.float64]]]] = {}

    def oracle(inputs: Sequence[Vector]) -> Promise:
        workers = len(inputs)
        if workers not in exact_of:
            exact_of[workers] = [protocol.exact_of_calls(workers) for _ in range(trees)]
        parts = [
            part for part in zip(*(np.array_split(x, trees) for x in inputs), strict=True) if part[0].size
        ]
        exact = [of_part(part) for of_part, part in zip(exact_of[workers], parts, strict=False)]
        bound = np.concatenate([protocol.error_bound(part, values, window) for part in parts])
        if not protocol.partial:
            return Promise(np.concatenate(exact), bound)
        kept = [[x.copy() for x in part] for part in parts]  # results may replace the inputs

        def exact_for(output: Vector) -> NDArray[np.float64]:
            outputs = np.array_split(output, trees)
            found = [protocol.exact_for(part, out, values) for part, out in zip(kept, outputs, strict=False)]
            return np.concatenate(found)

        return Promise(np.concatenate(exact), bound, exact_for=exact_for)

    return oracle


def float32_sum_bound(inputs: Sequence[Vector]) -> NDArray[np.float64]:
    """Return the bound of all-reduces that add float32, for each element [elements], from the inputs alone."""
    return float32_error_bound(len(inputs), exact_sum(np.abs(x) for x in inputs))


def compressed_sum_bound(inputs: Sequence[Vector], compressor: Compressor) -> NDArray[np.float64]:
    """Return the bound of sums of compressed vectors, for each element [elements].

    It adds what compression changes to the bound of float32 sums.
    """
    changed, magnitude = np.zeros(len(inputs[0])), np.zeros(len(inputs[0]))
    for x in inputs:
        sent = decompressed(compressor, x).astype(np.float64)
        changed += np.abs(x - sent)
        magnitude += np.abs(sent)
    # Where only zeros are sent, the error is exactly what is left out, up to the rounding of float64.
    return changed * (1 + 2.0**-40) + float32_error_bound(len(inputs), magnitude)


def quantized_sum_bound(inputs: Sequence[Vector], values: int = 256, window: int = 0) -> NDArray[np.float64]:
    """Return the bound of block floating point sums (workers/values/quantization.py), for each element [elements].

    Args:
        inputs: Each worker's input [elements].
        values: Values in a block.
        window: Vectors of up to this many blocks may use exponents of earlier vectors (workers/values/scaling.py).
    """
    workers, elements = len(inputs), len(inputs[0])

    def blocks(x: NDArray[Any]) -> NDArray[Any]:
        return np.pad(x, (0, -elements % values)).reshape(-1, values)

    exponents = np.max([quantization.block_exponents(blocks(x), workers)[0] for x in inputs], axis=0)
    slack = scaling.SLACK if len(exponents) <= window else 0
    factors = quantization.scales(exponents, workers) / 2**slack
    # The result may be the float32 next to that of the exact sum; its unit in the last place is at most twice as large.
    results = np.minimum(2 * np.abs(exact_sum(inputs)), np.finfo(np.float32).max).astype(np.float32)
    bound = quantization.error_bound(factors, workers, blocks(results))
    return bound.reshape(-1)[:elements]


def durations(recordings: Sequence[Recording]) -> NDArray[np.float64]:
    """Return the seconds of each all-reduce [steps], from the last worker's call to the last worker's result.

    Workers share a machine, and so CLOCK_MONOTONIC.
    """
    starts = np.max([recording.starts for recording in recordings], axis=0)
    ends = np.max([recording.ends for recording in recordings], axis=0)
    return np.asarray(ends - starts, dtype=np.float64)
