"""Compression: what is sent, what others make of it, and how wrong that is at most."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fanin.workers.values.compression import (
    BLOCK,
    Compressor,
    ErrorFeedback,
    Rounded,
    TopK,
    Vector,
    decompressed,
    sum_of,
    to_gather,
)

COMPRESSORS = [TopK(0.01), TopK(0.3), TopK(1.0), Rounded(8), Rounded(4)]
ALL = pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)

VALUES = st.floats(width=32, allow_nan=False, allow_infinity=False)
VECTORS = arrays(np.float32, st.integers(0, 3 * BLOCK + 5), elements=VALUES, fill=VALUES)


@pytest.mark.few(3)
@pytest.mark.slow
@ALL
@given(x=VECTORS)
def test_what_is_sent_has_the_size_that_was_said(compressor: Compressor, x: Vector) -> None:
    packed = compressor.packed(x)
    assert packed.dtype == np.uint8
    assert packed.size == compressor.size(x.size)
    assert packed.size % 4 == 0


@given(x=VECTORS, density=st.floats(0.001, 1))
def test_top_k_keeps_the_largest_to_the_last_bit_and_nothing_else(x: Vector, density: float) -> None:
    kept = decompressed(TopK(density), x)
    count = int(np.ceil(density * x.size))
    chosen = np.flatnonzero(kept)
    assert len(chosen) <= count
    np.testing.assert_array_equal(kept[chosen], x[chosen])
    largest = np.sort(np.abs(x))[x.size - count :]
    np.testing.assert_array_equal(np.sort(np.abs(kept))[x.size - count :], largest)


@pytest.mark.parametrize("bits", [8, 4])
@given(x=VECTORS)
def test_rounding_is_wrong_by_half_a_step_of_its_block_at_most(bits: int, x: Vector) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = decompressed(Rounded(bits), x)
    for start in range(0, x.size, BLOCK):
        block, of_block = x[start : start + BLOCK], found[start : start + BLOCK]
        step = np.abs(block).max().astype(np.float64) / (2 ** (bits - 1) - 1)
        # Values so small that a quotient by their step would overflow are taken for zeros.
        error = np.abs(block.astype(np.float64) - of_block)
        assert error.max() <= max(step * (0.5 + 2**-16), 128 * 2.0**-126)


@pytest.mark.parametrize("bits", [8, 4])
def test_rounding_knows_all_its_steps(bits: int) -> None:
    most = 2 ** (bits - 1) - 1
    x = np.arange(-most, most + 1, dtype=np.float32)
    np.testing.assert_array_equal(decompressed(Rounded(bits), x), x)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("largest", [np.finfo(np.float32).max, 3e38, 3e-36])
def test_rounding_keeps_the_largest_and_smallest_there_are(bits: int, largest: float) -> None:
    x = np.array([largest, -largest, 0], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(decompressed(Rounded(bits), x), x, rtol=2**-20)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_rounding_refuses_what_is_not_finite(wrong: float) -> None:
    x = np.ones(300, np.float32)
    x[280] = wrong
    with pytest.raises(ValueError, match="not finite"):
        Rounded(8).packed(x)


@ALL
@pytest.mark.parametrize("elements", [0, 1, 7, 1000])
def test_everybody_adds_up_what_everybody_sends(compressor: Compressor, elements: int) -> None:
    vectors = np.random.default_rng(1).standard_normal((3, elements), dtype=np.float32)
    gathered = sum(to_gather(compressor.packed(x), rank, 3) for rank, x in enumerate(vectors))
    wanted = np.zeros(elements, np.float32)
    for x in vectors:
        wanted += decompressed(compressor, x)
    np.testing.assert_array_equal(sum_of(compressor, np.asarray(gathered), 3, elements), wanted)


@ALL
def test_with_feedback_nothing_is_lost_but_the_last_rest(compressor: Compressor) -> None:
    feedback = ErrorFeedback(compressor)
    gradients = np.random.default_rng(2).standard_normal((200, 500), dtype=np.float32)
    sent = np.zeros(500, np.float32)
    for gradient in gradients:
        feedback.add(feedback.packed(gradient), sent)
    rest = gradients.sum(axis=0, dtype=np.float64) - sent
    once = sum(np.abs(gradient - decompressed(compressor, gradient)).sum() for gradient in gradients)
    assert np.abs(rest).sum() <= max(once / 2, 500 * 200 * 2.0**-16)


@ALL
def test_with_feedback_each_gradient_is_compressed_once(
    compressor: Compressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is sent is, to the bit, what compressing it once more to know what is left out would give."""
    gradients = np.random.default_rng(4).standard_normal((20, 500), dtype=np.float32)
    wanted, left = [], np.zeros(500, np.float32)
    for gradient in gradients:
        wanted.append(compressor.packed(gradient + left))
        left = gradient + left - decompressed(compressor, gradient + left)
    compressed: list[Vector] = []
    pack = type(compressor).packed

    def packed(self: Any, x: Vector) -> Any:
        compressed.append(x)
        return pack(self, x)

    monkeypatch.setattr(type(compressor), "packed", packed)
    feedback = ErrorFeedback(compressor)
    found = []
    for gradient in gradients:
        carried = feedback.carried(gradient)
        found.append(feedback.packed(gradient))
        np.testing.assert_array_equal(compressed[-1], carried)
    np.testing.assert_array_equal(found, wanted)
    assert len(compressed) == len(gradients)


def test_what_is_refused_changes_nothing_of_what_was_left_out() -> None:
    feedback = ErrorFeedback(Rounded(4))
    x = np.random.default_rng(5).standard_normal(50, dtype=np.float32)
    feedback.packed(x)
    carried = feedback.carried(x)
    with pytest.raises(ValueError, match="not finite"):
        feedback.packed(np.full(50, np.nan, np.float32))
    with pytest.raises(ValueError, match="of 50 elements, and not 51; give each vector an ErrorFeedback"):
        feedback.packed(np.ones(51, np.float32))
    np.testing.assert_array_equal(feedback.carried(x), carried)
