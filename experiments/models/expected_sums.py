"""The expected sums of all-reduces: an oracle of in-network sums that shares no code with the workers.

A float32 is m * 2^k with integers m and k. A worker sends rint(x * f), f = q / (n * 2^e), for the largest exponent e
among the workers, and the largest integer q of 32 or 16 bits; here that is a division of integers. The sum S of these
integers must come back as the float32 next to S / f, which is within n / (2 f) of the exact sum of the inputs, apart
from that rounding. Both properties are checked.

Workers compute x * f in float64, which differs from the quotient by less than 2^-21. A value that is so close to
half an integer may be rounded to either side.

Sums between hosts are float32, compared to the bit, added in the algorithm's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fanin.simulator.hosts.stations import Vector
from fanin.simulator.job_spec import JobSpec
from fanin.workers.host_based.algorithms.registry import algorithm_named

_Integers = NDArray[np.int64]
_Flags = NDArray[np.bool_]
_Longs = NDArray[np.longdouble]

_BITS = {64: 32, 256: 32, 128: 16, 512: 16}  # of an integer, by the number of integers in a packet
SMALLEST_EXPONENT, LARGEST_EXPONENT = -128, 127
# Delayed scaling: workers expect the last largest exponent plus one, and accept exponents that are up to two too large.
HEADROOM, SLACK = 1, 2
# Relative errors that float64 may add to the promised bound, and to the rounding of a quotient to float32.
_ARITHMETIC, _TWICE_ROUNDED = 2.0**-19, 2.0**-20

_BELOW_LARGEST = np.nextafter(np.finfo(np.float32).max, np.float32(0))


@dataclass(frozen=True, slots=True)
class QuantizedSum:
    """The expected result of one all-reduce; arrays are [blocks, values] or [blocks].

    Attributes:
        length: Elements of the vector.
        counted: Number of workers that each worker believes in.
        largest: The largest integer.
        integers: The sums of integers.
        uncertain: By how much each sum may differ.
        free: Sums that depend on the order of the additions, because partial sums exceed the limits of integers.
        exponents: The exponents of the scales.
        undefined: Blocks whose sums are NaN.
        exact: The sums of the inputs; None if workers count fewer workers than there are, so that no bound is promised.
        saturated: The least and the largest possible number of results that are flagged as saturated.
        chunks: Number of chunks.
    """

    length: int
    counted: int
    largest: int
    integers: _Integers
    uncertain: _Integers
    free: _Flags
    exponents: _Integers
    undefined: _Flags
    exact: _Longs | None
    saturated: tuple[int, int]
    chunks: int

    @property
    def result(self) -> Vector:
        """Return the float32 next to S / f, [elements]."""
        return self._flat(self._results())

    def wrong(self, output: Vector) -> _Flags:
        """Return which elements of a worker's result, `output` [elements], break the promise: flags [elements]."""
        flat = np.zeros(self.integers.size, np.float32)
        flat[: self.length] = output
        y = flat.reshape(self.integers.shape)
        right, undefined = self._results(), np.isnan(y)
        finite = np.isfinite(y)
        half_ulps = (
            np.spacing(np.minimum(np.abs(np.where(finite, y, 0)), _BELOW_LARGEST)).astype(np.longdouble) / 2
        )
        steps = self._steps()[:, np.newaxis]
        off = np.abs(np.where(finite, y, 0) - self.integers * steps)
        wrong = np.where(finite, off > half_ulps * (1 + _TWICE_ROUNDED) + self.uncertain * steps, y != right)
        if self.exact is not None:
            off = np.abs(np.where(finite, y - self.exact, 0))
            wrong |= off > self.counted * steps / 2 * (1 + _ARITHMETIC) + half_ulps
        wrong &= ~self.free
        wrong[self.undefined] = False
        return self._flat(wrong | (undefined != self.undefined[:, np.newaxis]))

    def _results(self) -> Vector:
        with np.errstate(over="ignore"):  # beyond float32: an infinity
            results = (self.integers * self._steps()[:, np.newaxis]).astype(np.float32)
        results[self.undefined] = np.nan
        return results

    def _steps(self) -> _Longs:
        """Return 1 / f for each block."""
        return np.ldexp(np.longdouble(self.counted) / self.largest, self.exponents)

    def _flat(self, rows: NDArray[Any]) -> NDArray[Any]:
        return rows.reshape(-1)[: self.length]


class QuantizedSums:
    """The in-network all-reduces of one lease, one after another.

    Args:
        values: Integers in a packet; 128 and 512 are of 16 bits.
        window: Number of slots.
        counted: Number of workers that each worker believes in.
    """

    def __init__(self, values: int, window: int, counted: int) -> None:
        self._values = values
        self._largest = 2 ** (_BITS[values] - 1) - 1
        self._window = window
        self._counted = counted
        self._expected: dict[int, _Integers] = {}  # exponents, by the vectors' length

    def next(self, inputs: Sequence[Vector]) -> QuantizedSum:
        """Return the expected result of the next all-reduce, given each worker's vector [elements]."""
        length, counted = len(inputs[0]), self._counted
        floats = [_floats(_blocks(x, self._values)) for x in inputs]
        own = np.array([_block_exponents(x, counted, self._largest) for x in floats])
        bad = own > LARGEST_EXPONENT
        undefined: _Flags = np.any(bad, axis=0)
        own[bad] = SMALLEST_EXPONENT
        exponents = largest = own.max(axis=0)
        blocks = len(largest)
        totals = _totals(floats, largest, np.broadcast_to(undefined, own.shape), counted, self._largest)
        saturated, chunks = totals.saturated(), blocks + min(self._window, blocks)
        expected = self._expected.get(length)
        if expected is not None:
            # A worker whose block is larger than expected first sends zeros.
            first = _totals(floats, expected, bad | (own > expected), counted, self._largest)
            fits = (largest <= expected) & (expected <= largest + SLACK) & ~undefined
            again = totals.saturated(~fits)
            least, most = first.saturated()
            saturated = (least + again[0], most + again[1])
            chosen = [
                np.where(fits[:, np.newaxis], a, b) for a, b in zip(first.arrays, totals.arrays, strict=True)
            ]
            totals = _Totals(self._largest, *chosen)
            exponents = np.where(fits, expected, largest)
            chunks = blocks + int(np.count_nonzero(~fits))
        if blocks <= self._window:
            self._expected[length] = np.minimum(largest + HEADROOM, LARGEST_EXPONENT)
        return QuantizedSum(
            length=length,
            counted=counted,
            largest=self._largest,
            integers=np.clip(totals.integers, -self._largest - 1, self._largest),
            uncertain=totals.uncertain,
            free=totals.may_saturate & (totals.positive > 0) & (totals.negative < 0),
            exponents=exponents,
            undefined=undefined,
            exact=_exact(floats) if counted >= len(inputs) else None,
            saturated=saturated,
            chunks=chunks,
        )


def expected_sum(spec: JobSpec, inputs: Sequence[Vector]) -> Vector:
    """Return the sum of a job between hosts to the bit, [elements]."""
    assert spec.algorithm != "in-network"
    return algorithm_named(spec.algorithm).float32_sum(inputs, spec.shards)


def wrong(spec: JobSpec, inputs: Sequence[Vector], output: Vector) -> NDArray[np.bool_]:
    """Return flags [elements] for the elements of a job's first result, `output` [elements], that break the promise."""
    if spec.algorithm == "in-network":
        return QuantizedSums(spec.values, spec.window, spec.counted or len(inputs)).next(inputs).wrong(output)
    same: NDArray[np.bool_] = output.view(np.int32) == expected_sum(spec, inputs).view(np.int32)
    return ~same


class _Floats(NamedTuple):
    """Float32 values [blocks, values] as mantissa * 2^exponent.

    Attributes:
        mantissas: The mantissas with their signs.
        exponents: The exponents.
        finite: Which values are neither NaN nor infinite.
    """

    mantissas: _Integers
    exponents: _Integers
    finite: _Flags


class _Totals(NamedTuple):
    """Sums of integers [blocks, values].

    Attributes:
        largest: The largest integer.
        integers: The sums of all integers.
        positive: The sums of the positive ones.
        negative: The sums of the negative ones.
        uncertain: By how much each sum may differ.
    """

    largest: int
    integers: _Integers
    positive: _Integers
    negative: _Integers
    uncertain: _Integers

    @property
    def arrays(self) -> tuple[_Integers, ...]:
        """Return all arrays, in order."""
        return self.integers, self.positive, self.negative, self.uncertain

    @property
    def may_saturate(self) -> _Flags:
        """Return which sums saturate in some order of the additions."""
        return (self.positive > self.largest) | (self.negative < -self.largest - 1)

    def saturated(self, blocks: _Flags | slice = slice(None)) -> tuple[int, int]:
        """Return how many of these blocks saturate in all orders of the additions, and in some."""
        surely = (self.integers > self.largest) | (self.integers < -self.largest - 1)
        counts = (np.count_nonzero(flags[blocks].any(axis=1)) for flags in (surely, self.may_saturate))
        least, most = map(int, counts)
        return least, most


def _floats(x: Vector) -> _Floats:
    bits = x.view(np.uint32).astype(np.int64)
    field = bits >> 23 & 0xFF
    mantissas = (bits & 0x7FFFFF) | (field > 0) << 23
    return _Floats(np.where(bits >> 31, -mantissas, mantissas), np.maximum(field, 1) - 150, field < 0xFF)


def _exact(floats: Sequence[_Floats]) -> _Longs:
    """Return sums with errors far below that of one rounding; in blocks with infinities or NaN they are meaningless."""
    total = np.zeros(floats[0].mantissas.shape, np.longdouble)
    for x in floats:
        total += np.ldexp(x.mantissas.astype(np.longdouble), x.exponents)
    return total


def _block_exponents(x: _Floats, counted: int, largest: int) -> _Integers:
    """Return the smallest e of each block with 2^e > max|x| and room for half a step of each worker.

    It is above the largest exponent if there is none.
    """
    magnitudes = np.abs(x.mantissas)
    bits = np.frexp(magnitudes.astype(np.float64))[1]
    # 2^24 - m is how far a mantissa of 24 bits is below the power of two.
    below = (1 << 24) - (magnitudes << np.maximum(24 - bits, 0))
    close = below * (2 * largest + 2) < counted << 24
    exponents = np.where(magnitudes > 0, bits + x.exponents + close, SMALLEST_EXPONENT)
    exponents = np.where(x.finite, np.maximum(exponents, SMALLEST_EXPONENT), LARGEST_EXPONENT + 1)
    of_blocks: _Integers = exponents.max(axis=1)
    return of_blocks


def _totals(
    floats: Sequence[_Floats], exponents: _Integers, zero: _Flags, counted: int, largest: int
) -> _Totals:
    """Return the sums over workers, scaled with these exponents; blocks in `zero` [workers, blocks] do not count."""
    shape = floats[0].mantissas.shape
    totals = _Totals(largest, *(np.zeros(shape, np.int64) for _ in range(4)))
    for x, nothing in zip(floats, zero, strict=True):
        integers, uncertain = _quantized(x, exponents, counted, largest)
        integers[nothing], uncertain[nothing] = 0, False
        totals.integers[...] += integers
        totals.positive[...] += np.maximum(integers, 0)
        totals.negative[...] += np.minimum(integers, 0)
        totals.uncertain[...] += uncertain
    return totals


def _quantized(x: _Floats, exponents: _Integers, counted: int, largest: int) -> tuple[_Integers, _Flags]:
    """Return rint(m * 2^k * largest / (n * 2^e)), half to even.

    Returns:
        The integers, and flags for those that may be rounded to the other side.
    """
    numerators = np.abs(x.mantissas) * largest  # below 2^55
    shifts = exponents[:, np.newaxis] - x.exponents
    small = shifts + counted.bit_length() > 57  # the quotient is below a quarter
    divisors = counted << np.clip(shifts, 0, 57 - counted.bit_length())
    quotients, rests = np.divmod(numerators, divisors)
    above_half = 2 * rests - divisors
    quotients += (above_half > 0) | ((above_half == 0) & (quotients & 1 == 1))
    quotients[small] = 0
    uncertain = (np.abs(above_half) <= divisors >> 20) & ~small
    return np.where(x.mantissas < 0, -quotients, quotients), uncertain


def _blocks(x: Vector, values: int) -> Vector:
    padding = -len(x) % values
    return (np.pad(x, (0, padding)) if padding else x).reshape(-1, values)
