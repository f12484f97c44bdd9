"""The sums that all-reduces must give, compared with Python integers."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanin.experiments.models.expected_sums import QuantizedSums
from tests.sizes import sized
from tests.workers.faulty_network import ExactSums
from tests.workers.vectors import SIZES, gradients

pytestmark = pytest.mark.slow

VALUES = st.sampled_from([64, 128])  # integers of 32 bits, and of 16


@settings(max_examples=sized(16, 50))
@given(st.integers(1, 5), st.integers(1, 9), SIZES, st.integers(0, 2**32), VALUES)
def test_the_sums_of_a_lease_are_those_of_block_floating_point_by_the_book(
    workers: int, window: int, sizes: list[int], seed: int, values: int
) -> None:
    ours, book = QuantizedSums(values, window, workers), ExactSums(values, window)
    for step, size in enumerate(size for size in sizes if size):
        inputs = gradients(workers, size, seed, step)
        assert not ours.next(inputs).wrong(book.next(inputs)).any()


def test_chunks_are_those_ahead_and_those_of_the_blocks_or_the_blocks_and_those_sent_again() -> None:
    sums = QuantizedSums(64, 4, 2)
    x = np.ones(3 * 64, np.float32)
    assert sums.next([x, x]).chunks == 3 + 3
    assert sums.next([x, x]).chunks == 3
    x[:64] *= 8
    assert sums.next([x, x]).chunks == 3 + 1
    long = np.ones(5 * 64, np.float32)
    assert [sums.next([long, long]).chunks for _ in range(2)] == [5 + 4, 5 + 4]


def test_a_result_saturates_when_it_is_hoped_for_and_when_it_is_sent_again() -> None:
    """Where workers count fewer than they are."""
    sums = QuantizedSums(64, 4, 1)
    x = np.full(64, 0.9, np.float32)
    assert sums.next([x, x]).saturated == (1, 1)
    assert sums.next([x, x]).saturated == (0, 0)  # there is a bit more room than needed
    assert sums.next([8 * x, 8 * x]).saturated == (1, 1)
    assert sums.next([x / 8, x / 8]).saturated == (1, 1)


def test_whether_a_sum_of_both_signs_saturates_depends_on_the_order() -> None:
    x = np.full(64, 0.9, np.float32)
    total = QuantizedSums(64, 4, 1).next([x, x, -x])
    assert total.saturated == (0, 1)
    assert not total.wrong(np.full(64, 1e30, np.float32)).any()


SPECIAL = (
    0.0,
    -0.0,
    2.0**-149,
    2.0**-127,
    2.0**-126,
    1.0,
    -1.0,
    2.0**127,
    -(2.0**127),
    np.inf,
    -np.inf,
    np.nan,
)
FLOATS = st.one_of(st.sampled_from(SPECIAL), st.floats(width=32), st.floats(-1, 1, width=32))


@settings(max_examples=sized(66, 200))
@given(st.lists(st.lists(FLOATS, min_size=64, max_size=64), min_size=1, max_size=4), st.integers(0, 63))
def test_a_sum_is_in_rational_numbers_what_the_promise_says(vectors: list[list[float]], at: int) -> None:
    """NaN where some worker has none, an infinity or 2^127 and more; else within n / (2 f), and not far beyond."""
    inputs = [np.array(vector, np.float32) for vector in vectors]
    total = QuantizedSums(64, 4, len(inputs)).next(inputs)
    if not all((np.abs(x) < np.float32(2**127)).all() for x in inputs):
        assert np.isnan(total.result).all()
        assert total.wrong(np.zeros(64, np.float32)).all()
        return
    peak = max(float(np.abs(x).max()) for x in inputs)
    exponent = max(math.frexp(peak)[1] if peak else -128, -128)
    step = Fraction(len(inputs)) * Fraction(2) ** exponent / (2**31 - 1)
    exact = sum(Fraction(float(x[at])) for x in inputs)
    result = total.result
    assert not total.wrong(result).any()
    if np.isfinite(result[at]):
        half_ulp = Fraction(float(np.spacing(np.abs(result[at])))) / 2
        bound = len(inputs) * step / 2 + half_ulp
        assert abs(Fraction(float(result[at])) - exact) <= bound * (1 + Fraction(1, 2**19))
        with np.errstate(over="ignore"):
            result[at] = np.float32(float(exact + 3 * bound))
        assert total.wrong(result)[at]
