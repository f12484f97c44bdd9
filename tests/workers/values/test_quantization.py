"""Block floating point: what the exponent, the integers and the error are promised to be."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from fanin.workers.values import quantization
from tests.workers.numbers import FLOATS, LARGEST, WORKERS

SMALLEST = np.float32(2.0**-149)


def blocks(rows: int = 3, values: int = 8) -> st.SearchStrategy[NDArray[np.float32]]:
    """Rows of any magnitudes, and values close below a power of two, where rint meets the limits."""
    below = st.builds(
        lambda e: float(np.nextafter(np.float32(2.0**e), np.float32(0))), st.integers(-140, 127)
    )
    edges = st.one_of(below, below.map(lambda x: -x), st.builds(lambda e: 2.0**e, st.integers(-140, 126)))
    return arrays(np.float32, (rows, values), elements=st.one_of(FLOATS, edges))


@given(blocks(), WORKERS)
def test_two_to_the_exponent_exceeds_every_magnitude(x: NDArray[np.float32], workers: int) -> None:
    exponents, quantizable = quantization.block_exponents(x, workers)
    for row, exponent, good in zip(x, exponents, quantizable, strict=True):
        if good:
            assert Fraction(2) ** int(exponent) > Fraction(float(np.abs(row).max()))


@given(blocks())
def test_the_exponent_is_the_smallest_that_does_up_to_256_workers(x: NDArray[np.float32]) -> None:
    exponents, quantizable = quantization.block_exponents(x, 256)
    assert quantizable.all()
    for row, exponent in zip(x, exponents, strict=True):
        if exponent > -128:
            assert Fraction(2) ** (int(exponent) - 1) <= Fraction(float(np.abs(row).max()))


@pytest.mark.slow
@given(st.data(), WORKERS)
def test_the_sum_of_all_workers_integers_never_leaves_int32(data: st.DataObject, workers: int) -> None:
    """The worst case: every worker holds the block's largest value, and nobody has a larger exponent."""
    x = data.draw(blocks())
    exponents, quantizable = quantization.block_exponents(x, workers)
    factors = quantization.scales(exponents, workers)
    integers = quantization.quantize(x, factors)[quantizable]
    assert (np.abs(integers) * workers <= 2**31 - 1).all()


@pytest.mark.slow
@given(st.data(), st.integers(1, 6))
def test_the_result_is_within_the_promised_bound_of_the_exact_sum(data: st.DataObject, workers: int) -> None:
    inputs = [data.draw(blocks()) for _ in range(workers)]
    exponents = np.max([quantization.block_exponents(x, workers)[0] for x in inputs], axis=0)
    factors = quantization.scales(exponents, workers)
    total = np.sum([quantization.quantize(x, factors) for x in inputs], axis=0)
    result = quantization.dequantize(total.astype(np.int32), factors, np.empty_like(inputs[0]))
    bound = quantization.error_bound(factors, workers, result)
    for index in np.ndindex(result.shape):
        exact = sum(Fraction(float(x[index])) for x in inputs)
        if np.isfinite(result[index]):
            assert abs(Fraction(float(result[index])) - exact) <= Fraction(float(bound[index]))
        else:
            assert abs(exact) > Fraction(float(np.finfo(np.float32).max))


def test_the_bound_is_n_over_2f_beside_the_rounding_of_the_output() -> None:
    factors = quantization.scales(np.array([0], np.int8), 4)
    bound = quantization.error_bound(factors, 4, np.zeros((1, 1), np.float32))
    assert bound[0, 0] == pytest.approx(4 / (2 * factors[0]), rel=1e-5)
    assert factors[0] == (2**31 - 1) / 4


def test_an_all_zero_block_sums_to_exactly_zero() -> None:
    x = np.zeros((1, 4), np.float32)
    exponents, quantizable = quantization.block_exponents(x, 3)
    assert quantizable.all()
    assert exponents[0] == -128
    factors = quantization.scales(exponents, 3)
    integers = quantization.quantize(x, factors).astype(">i4")
    assert (quantization.dequantize(integers, factors, np.ones_like(x)) == 0).all()


@pytest.mark.slow
@given(arrays(np.float32, (1, 8), elements=st.floats(-(2.0**-126), 2.0**-126, width=32)))
def test_subnormals_of_one_worker_come_back_exactly(x: NDArray[np.float32]) -> None:
    """At the exponents of subnormals int32 is finer than float32."""
    exponents, _ = quantization.block_exponents(x, 1)
    factors = quantization.scales(exponents, 1)
    integers = quantization.quantize(x, factors).astype(np.int32)
    assert (quantization.dequantize(integers, factors, np.empty_like(x)) == x).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0**127, -(2.0**127)])
def test_what_the_exponent_byte_cannot_hold_is_not_quantizable(bad: float) -> None:
    x = np.ones((3, 4), np.float32)
    x[1, 2] = bad
    exponents, quantizable = quantization.block_exponents(x, 2)
    assert list(quantizable) == [True, False, True]
    assert exponents[1] == -128
    assert quantization.first_unquantizable(x, quantizable) == (1, 2)


def test_the_largest_magnitude_below_2_to_127_is_quantizable() -> None:
    x = np.array([[LARGEST, -LARGEST, SMALLEST, 0]])
    exponents, quantizable = quantization.block_exponents(x, 8)
    assert quantizable.all()
    assert exponents[0] == 127


def test_more_than_256_workers_leave_room_for_rounding_just_below_a_power_of_two() -> None:
    below = np.nextafter(np.float32(1), np.float32(0))
    x = np.array([[below]])
    assert quantization.block_exponents(x, 256)[0][0] == 0
    assert quantization.block_exponents(x, 1024)[0][0] == 1
