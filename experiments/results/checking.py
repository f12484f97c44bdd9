"""Comparison of every worker's results with the exact sums, and the times of the slowest workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.protocol import exact_sum
from fanin.experiments.results.recording import Recording, Vector
from fanin.experiments.scenario.settings import Check, Settings
from fanin.workers import wire
from fanin.workers.collective import Algorithm, Operation
from fanin.workers.host_based.algorithms.all_reduce import float32_error_bound
from fanin.workers.host_based.pieces import bounds
from fanin.workers.values import quantization, scaling
from fanin.workers.values.compression import Compressor, decompressed

# Takes the workers' inputs, a vector [elements] each, and returns the promised bound of each element of the result: its
# largest distance from the exact sum, float64 [elements].
ErrorBound = Callable[[Sequence[Vector]], NDArray[np.float64]]

# A sample has one block of so many successive ones. A single wrong block is missed with a probability of 15/16.
SAMPLED_FROM = 16
_BLOCK = 256  # elements of a block, if the algorithm has none
_SAMPLES = 5  # distinguishes the draws of samples from those of vectors


@dataclass(frozen=True, slots=True)
class Errors:
    """The distances of results from the exact sums.

    Attributes:
        largest: The largest distance.
        bound: The largest bound.
        violations: Number of elements that lie outside their own bound.
        compared: Number of elements that were compared.
        elements: Number of elements of the results.
    """

    largest: float = 0.0
    bound: float = 0.0
    violations: int = 0
    compared: int = 0
    elements: int = 0

    @staticmethod
    def of_all(parts: Iterable[Errors]) -> Errors:
        """Combine the errors of several all-reduces."""
        found = list(parts)
        return Errors(
            max((part.largest for part in found), default=0.0),
            max((part.bound for part in found), default=0.0),
            sum(part.violations for part in found),
            sum(part.compared for part in found),
            sum(part.elements for part in found),
        )

    @property
    def columns(self) -> dict[str, Any]:
        """Return columns of Measured. Nothing is known about errors if there are results and none was compared."""
        if self.elements and not self.compared:
            return {"violations": None, "max_abs_error": None, "error_bound": None, "checked_share": 0.0}
        return {
            "violations": self.violations,
            "max_abs_error": self.largest,
            "error_bound": self.bound,
            "checked_share": self.compared / self.elements if self.elements else 1.0,
        }


@dataclass(frozen=True, slots=True)
class Promise:
    """The result that a collective operation must give on certain inputs.

    Attributes:
        exact: The exact result [elements] of all workers, or that of each [workers, elements].
        bound: The largest distance from it, [elements].
        edges: Worker r is promised only the elements from edges[r] to edges[r + 1] - 1; None: all.
        chosen: The elements of a result that `exact` and `bound` are about, in ascending order; None: all.
        exact_for: Returns the exact result of a worker, given what it got, if results may lack workers: both as
            compared, [elements]. None: it is `exact`.
    """

    exact: NDArray[np.floating[Any]]
    bound: NDArray[np.float64]
    edges: Sequence[int] | None = None
    chosen: NDArray[np.intp] | None = None
    exact_for: Callable[[Vector], NDArray[np.float64]] | None = None

    def hold(self, outputs: Iterable[Vector], first: int = 0) -> Errors:
        """Compare the results of workers, [elements] each, with the promise.

        Args:
            outputs: The results, in the order of ranks.
            first: Rank of the first one.
        """
        found: list[Errors] = []
        before: Vector | None = None
        for rank, output in enumerate(outputs, start=first):
            comparable = before is not None and self.edges is None and self.exact.ndim == 1
            if comparable and np.array_equal(output.view(np.uint32), before.view(np.uint32)):  # type: ignore[union-attr]
                found.append(found[-1])  # usual, and much faster than comparing it with the promise
            else:
                found.append(self._errors(output, rank))
            before = output
        return Errors.of_all(found)

    def _errors(self, output: Vector, rank: int) -> Errors:
        begin, end = (0, len(output)) if self.edges is None else self.edges[rank : rank + 2]
        if self.chosen is None:
            part = slice(begin, end)
            compared = output[part]
        else:
            part = slice(*np.searchsorted(self.chosen, (begin, end)).tolist())
            compared = output[self.chosen[part]]
        exact = self.exact if self.exact.ndim == 1 else self.exact[rank]
        if self.exact_for is not None:
            exact = self.exact_for(compared)
        error = np.abs(compared - exact[part])
        violations = int(np.count_nonzero(~(error <= self.bound[part])))  # a NaN is outside, too
        bound = float(self.bound.max(initial=0.0))
        return Errors(float(error.max(initial=0.0)), bound, violations, len(compared), end - begin)


class Oracle:
    """The results that collective operations must give: sums within a bound, and everything else to the bit.

    Args:
        error_bound: Returns the bound of each element of a part, float64 [elements], from the workers' inputs and the
            length of the part. In a sample, the inputs contain the chosen blocks of the part only.
        exact: Returns the exact result of an all-reduce, float64 [elements], from the workers' inputs.
        exact_for: Returns that of a worker, given its result, too, if results may lack workers; None: all get `exact`.
        exact_of_calls: Returns, for a number of workers, a function that is called with the inputs of all all-reduces
            in order and replaces `exact`, if workers remember earlier inputs; None: they do not.
        parts: Number of parts of a vector, each of which is summed by itself.
        block: Elements of a block. Result and bound of a block depend on no other block.
        check: The elements of results to compare: all, a sample of blocks, or none.
        seed: Seed of the sample.
    """

    def __init__(
        self,
        error_bound: Callable[[Sequence[Vector], int], NDArray[np.float64]],
        exact: Callable[[Sequence[Vector]], NDArray[np.float64]] = exact_sum,
        *,
        exact_for: Callable[[Sequence[Vector], Vector], NDArray[np.float64]] | None = None,
        exact_of_calls: Callable[[int], Callable[[Sequence[Vector]], NDArray[np.float64]]] | None = None,
        parts: int = 1,
        block: int = _BLOCK,
        check: Check = "all",
        seed: int = 0,
    ) -> None:
        self._error_bound, self._exact, self._exact_for = error_bound, exact, exact_for
        # For a part and a number of workers.
        self._exact_of_calls = exact_of_calls and cache(lambda _, workers: exact_of_calls(workers))
        self._parts, self._block, self._check = parts, block, check
        self._draw = np.random.default_rng((seed, _SAMPLES))

    def promise(self, inputs: Sequence[Vector], operation: Operation = "all-reduce") -> Promise:
        """Return what a collective operation must give.

        schedules.schedule() decides which worker has which segment.

        Args:
            inputs: Each worker's input [elements], in the order of ranks.
            operation: The operation.
        """
        if self._check == "none":
            return Promise(np.zeros(0), np.zeros(0), chosen=np.zeros(0, np.intp))
        edges = bounds(len(inputs[0]), len(inputs))
        match operation:
            case "all-reduce":
                whole = range(len(inputs[0]))
                return self._sums(inputs, [part for part in np.array_split(whole, self._parts) if len(part)])
            case "reduce-scatter":
                owned = [np.arange(begin, end) for begin, end in pairwise(edges) if end > begin]
                return replace(self._sums(inputs, owned), edges=edges)
            case "all-gather":
                parts = [x[begin:end] for x, (begin, end) in zip(inputs, pairwise(edges), strict=True)]
                return self._moved(np.concatenate(parts))
            case "broadcast":
                return self._moved(inputs[0].copy())
            case "all-to-all":
                columns = [np.concatenate([x[begin:end] for x in inputs]) for begin, end in pairwise(edges)]
                return self._moved(np.stack(columns))
        assert_never(operation)

    def _sums(self, inputs: Sequence[Vector], parts: Sequence[NDArray[np.intp]]) -> Promise:
        """Return the promise of sums whose parts [elements each] are cut into blocks by themselves."""
        exact, bound, chosen, kept = [], [], [], []
        for number, part in enumerate(parts):
            own = [x[part[0] : part[-1] + 1] for x in inputs]
            if self._check == "sample":
                where = self._sample(len(part))
                own = [x[where] for x in own]
                chosen.append(part[where])
            of_part = self._exact_of_calls(number, len(inputs)) if self._exact_of_calls else self._exact
            exact.append(of_part(own))
            bound.append(self._error_bound(own, len(part)))
            kept.append([x.copy() for x in own] if self._exact_for else [])  # results may replace the inputs
        exact_for = partial(self._exact_in_parts, kept) if self._exact_for else None
        return Promise(
            np.concatenate(exact),
            np.concatenate(bound),
            chosen=np.concatenate(chosen) if chosen else None,
            exact_for=exact_for,
        )

    def _exact_in_parts(self, kept: Sequence[Sequence[Vector]], output: Vector) -> NDArray[np.float64]:
        assert self._exact_for
        ends = np.cumsum([len(part[0]) for part in kept])[:-1]
        return np.concatenate(
            [self._exact_for(part, out) for part, out in zip(kept, np.split(output, ends), strict=True)]
        )

    def _moved(self, exact: Vector) -> Promise:
        """Return the promise of values that are not summed, [elements] or [workers, elements]."""
        chosen = self._sample(exact.shape[-1]) if self._check == "sample" else None
        if chosen is not None:
            exact = exact[..., chosen]
        return Promise(exact, np.zeros(exact.shape[-1]), chosen=chosen)

    def _sample(self, elements: int) -> NDArray[np.intp]:
        """Draw one block of each SAMPLED_FROM successive ones; return the indices of their elements, ascending."""
        blocks = -(-elements // self._block)
        first = np.arange(0, blocks, SAMPLED_FROM)
        drawn = first + self._draw.integers(np.minimum(SAMPLED_FROM, blocks - first))
        found = (drawn[:, np.newaxis] * self._block + np.arange(self._block)).ravel()
        return found[found < elements]


def sums_within(error_bound: ErrorBound) -> Oracle:
    """Return the oracle of all-reduces that promise the sum within a bound."""
    return Oracle(lambda inputs, _: error_bound(inputs))


def compare_with_promise(recordings: Sequence[Recording], oracle: Oracle) -> Errors:
    """Compare each worker's result of every step with what the oracle promises for all workers' inputs."""
    return Errors.of_all(
        oracle.promise([recording.inputs[step] for recording in recordings]).hold(
            recording.outputs[step] for recording in recordings
        )
        for step in range(len(recordings[0].starts))
    )


def oracle_of(
    settings: Settings,
    algorithm: Algorithm,
    window: int,
    compressor: Compressor | None = None,
    trees: int = 1,
) -> Oracle:
    """Return the oracle of an algorithm's collective operations, which is to be asked for each of them in order.

    Args:
        settings: The point, with the protocol of in-network all-reduces, and what to compare.
        algorithm: The algorithm.
        window: In-network: packets in flight along each tree.
        compressor: Compression of vectors, if any.
        trees: In-network: number of trees, each of which sums a part of a vector.
    """
    make = partial(Oracle, check=settings.checks, seed=settings.seed)
    if compressor is not None:
        return make(lambda inputs, _: compressed_sum_bound(inputs, compressor))
    if algorithm != "in-network":
        return make(lambda inputs, _: float32_sum_bound(inputs))
    protocol, values = settings.implementation, settings.values

    def error_bound(inputs: Sequence[Vector], elements: int) -> NDArray[np.float64]:
        # A sample of a vector that is longer than the window may be shorter than it.
        longer = settings.checks == "sample" and elements > window * values
        return protocol.error_bound(inputs, values, 0 if longer else window)

    exact_for = None
    if protocol.partial:

        def exact_for(inputs: Sequence[Vector], output: Vector) -> NDArray[np.float64]:
            return protocol.exact_for(inputs, output, values)

    remembers = protocol.exact_of_calls if protocol.remembers else None
    return make(
        error_bound, protocol.exact, exact_for=exact_for, exact_of_calls=remembers, parts=trees, block=values
    )


def float32_sum_bound(inputs: Sequence[Vector]) -> NDArray[np.float64]:
    """Return the bound of all-reduces that add float32, for each element [elements], from the inputs alone."""
    return float32_error_bound(len(inputs), exact_sum(inputs, magnitudes=True))


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
        values: Integers in a packet; 128 and 512 are of 16 bits.
        window: Vectors of up to this many blocks may use exponents of earlier vectors (workers/values/scaling.py).
    """
    workers, elements = len(inputs), len(inputs[0])

    def blocks(x: NDArray[Any]) -> NDArray[Any]:
        return (np.pad(x, (0, -elements % values)) if elements % values else x).reshape(-1, values)

    bits = wire.BITS[values]
    exponents = np.max([quantization.block_exponents(blocks(x), workers, bits)[0] for x in inputs], axis=0)
    slack = scaling.SLACK if len(exponents) <= window else 0
    factors = quantization.scales(exponents, workers, bits) / 2**slack
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
