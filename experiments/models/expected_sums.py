"""What all-reduces must give: an oracle of in-network sums that shares no code with the workers.

A float32 is m * 2^k with integers m and k, and a worker sends rint(x * f), f = (2^31 - 1) / (n * 2^e), for the largest
exponent e among the workers: a division of integers here. The sum S of these integers must come back as the float32
next to S / f, which is within n / (2 f) of the exact sum of the inputs but for that rounding. Both are checked.

Workers compute x * f in float64, where it is off by less than 2^-21 from the quotient: one that is as close to half an
integer may be rounded to either side.

Sums between hosts are float32, bit for bit, added in the algorithm's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fanin.simulator.hosts.stations import Vector
from fanin.simulator.job_spec import JobSpec
from fanin.workers.host_based.summation import float32_sum

_Integers = NDArray[np.int64]
_Flags = NDArray[np.bool_]
_Longs = NDArray[np.longdouble]

LARGEST, SMALLEST = 2**31 - 1, -(2**31)
SMALLEST_EXPONENT, LARGEST_EXPONENT = -128, 127
# Delayed scaling: what is expected is the last largest exponent and one; what is up to two too large is taken.
HEADROOM, SLACK = 1, 2
# Relative errors that float64 may add to the promise, and to the rounding of a quotient to float32.
_ARITHMETIC, _TWICE_ROUNDED = 2.0**-19, 2.0**-20

_BELOW_LARGEST = np.nextafter(np.finfo(np.float32).max, np.float32(0))


@dataclass(frozen=True, slots=True)
class QuantizedSum:
    """One all-reduce; arrays are [blocks, values] or [blocks].

    integers: the sums. uncertain: by how much each may differ. free: those that depend on the order of the additions,
    since a part of them meets the limits of int32. exponents: of the scales. undefined: blocks whose sums are NaN.
    exact: the sums of the inputs; None where workers count fewer than they are, which promises nothing. saturated: how
    many results are flagged, at least and at most. chunks: how many there are.
    """

    length: int
    counted: int
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
        """The float32 next to S / f [elements]."""
        return self._flat(self._results())

    def wrong(self, output: Vector) -> _Flags:
        """Which elements of what a worker has got, `output` [elements], are not as promised: [elements]."""
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
        """1 / f."""
        return np.ldexp(np.longdouble(self.counted) / LARGEST, self.exponents)

    def _flat(self, rows: NDArray[Any]) -> NDArray[Any]:
        return rows.reshape(-1)[: self.length]


class QuantizedSums:
    """The in-network all-reduces of one lease, one after the other.

    values: of a packet. window: slots. counted: how many workers each believes there are.
    """

    def __init__(self, values: int, window: int, counted: int) -> None:
        self._values = values
        self._window = window
        self._counted = counted
        self._expected: dict[int, _Integers] = {}  # exponents, by the vectors' length

    def next(self, inputs: Sequence[Vector]) -> QuantizedSum:
        """The next one, of each worker's vector [elements]."""
        length, counted = len(inputs[0]), self._counted
        floats = [_floats(_blocks(x, self._values)) for x in inputs]
        own = np.array([_block_exponents(x, counted) for x in floats])
        bad = own > LARGEST_EXPONENT
        undefined: _Flags = np.any(bad, axis=0)
        own[bad] = SMALLEST_EXPONENT
        exponents = largest = own.max(axis=0)
        blocks = len(largest)
        totals = _totals(floats, largest, np.broadcast_to(undefined, own.shape), counted)
        saturated, chunks = totals.saturated(), blocks + min(self._window, blocks)
        expected = self._expected.get(length)
        if expected is not None:
            # At first a worker whose block is larger than expected sends zeros.
            first = _totals(floats, expected, bad | (own > expected), counted)
            fits = (largest <= expected) & (expected <= largest + SLACK) & ~undefined
            again = totals.saturated(~fits)
            least, most = first.saturated()
            saturated = (least + again[0], most + again[1])
            totals = _Totals(
                *(np.where(fits[:, np.newaxis], a, b) for a, b in zip(first, totals, strict=True))
            )
            exponents = np.where(fits, expected, largest)
            chunks = blocks + int(np.count_nonzero(~fits))
        if blocks <= self._window:
            self._expected[length] = np.minimum(largest + HEADROOM, LARGEST_EXPONENT)
        return QuantizedSum(
            length=length,
            counted=counted,
            integers=np.clip(totals.integers, SMALLEST, LARGEST),
            uncertain=totals.uncertain,
            free=totals.may_saturate & (totals.positive > 0) & (totals.negative < 0),
            exponents=exponents,
            undefined=undefined,
            exact=_exact(floats) if counted >= len(inputs) else None,
            saturated=saturated,
            chunks=chunks,
        )


def expected_sum(spec: JobSpec, inputs: Sequence[Vector]) -> Vector:
    """Of a job between hosts [elements], bit for bit."""
    assert spec.algorithm != "in-network"
    return float32_sum(spec.algorithm, inputs, spec.shards)


def wrong(spec: JobSpec, inputs: Sequence[Vector], output: Vector) -> NDArray[np.bool_]:
    """Which elements of a job's first all-reduce, `output` [elements], are not as promised: [elements]."""
    if spec.algorithm == "in-network":
        return QuantizedSums(spec.values, spec.window, spec.counted or len(inputs)).next(inputs).wrong(output)
    same: NDArray[np.bool_] = output.view(np.int32) == expected_sum(spec, inputs).view(np.int32)
    return ~same


class _Floats(NamedTuple):
    """Float32 [blocks, values] as mantissa * 2^exponent, with the mantissa's sign; finite: not NaN, not infinite."""

    mantissas: _Integers
    exponents: _Integers
    finite: _Flags


class _Totals(NamedTuple):
    """Sums of integers: all of them, the positive and the negative ones; all are [blocks, values]."""

    integers: _Integers
    positive: _Integers
    negative: _Integers
    uncertain: _Integers

    @property
    def may_saturate(self) -> _Flags:
        """In some order of the additions."""
        return (self.positive > LARGEST) | (self.negative < SMALLEST)

    def saturated(self, blocks: _Flags | slice = slice(None)) -> tuple[int, int]:
        """How many of these blocks do in all orders, and in some."""
        surely = (self.integers > LARGEST) | (self.integers < SMALLEST)
        counts = (np.count_nonzero(flags[blocks].any(axis=1)) for flags in (surely, self.may_saturate))
        least, most = map(int, counts)
        return least, most


def _floats(x: Vector) -> _Floats:
    bits = x.view(np.uint32).astype(np.int64)
    field = bits >> 23 & 0xFF
    mantissas = (bits & 0x7FFFFF) | (field > 0) << 23
    return _Floats(np.where(bits >> 31, -mantissas, mantissas), np.maximum(field, 1) - 150, field < 0xFF)


def _exact(floats: Sequence[_Floats]) -> _Longs:
    """Sums whose error is far below that of one rounding; of blocks that are not all finite they mean nothing."""
    total = np.zeros(floats[0].mantissas.shape, np.longdouble)
    for x in floats:
        total += np.ldexp(x.mantissas.astype(np.longdouble), x.exponents)
    return total


def _block_exponents(x: _Floats, counted: int) -> _Integers:
    """The smallest e with 2^e > max|x| and half a step of each worker to spare; above the largest: there is none."""
    magnitudes = np.abs(x.mantissas)
    bits = np.frexp(magnitudes.astype(np.float64))[1]
    # 2^24 - m is how far a mantissa of 24 bits is below the power of two.
    close = ((1 << 24) - (magnitudes << np.maximum(24 - bits, 0)) << 8) < counted
    exponents = np.where(magnitudes > 0, bits + x.exponents + close, SMALLEST_EXPONENT)
    exponents = np.where(x.finite, np.maximum(exponents, SMALLEST_EXPONENT), LARGEST_EXPONENT + 1)
    largest: _Integers = exponents.max(axis=1)
    return largest


def _totals(floats: Sequence[_Floats], exponents: _Integers, zero: _Flags, counted: int) -> _Totals:
    """Over the workers, scaled for these exponents; `zero` [workers, blocks] send none."""
    shape = floats[0].mantissas.shape
    totals = _Totals(*(np.zeros(shape, np.int64) for _ in _Totals._fields))
    for x, nothing in zip(floats, zero, strict=True):
        integers, uncertain = _quantized(x, exponents, counted)
        integers[nothing], uncertain[nothing] = 0, False
        totals.integers[...] += integers
        totals.positive[...] += np.maximum(integers, 0)
        totals.negative[...] += np.minimum(integers, 0)
        totals.uncertain[...] += uncertain
    return totals


def _quantized(x: _Floats, exponents: _Integers, counted: int) -> tuple[_Integers, _Flags]:
    """rint(m * 2^k * (2^31 - 1) / (n * 2^e)), half to even, and which of them may be rounded to the other side."""
    numerators = np.abs(x.mantissas) * LARGEST  # below 2^55
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
