"""Fixed-point integers: sums fit into 31 bits and are within their bound, and what cannot be sent is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.workers.values.fixed_point import LARGEST, draw_vector, integers, scale, sum_bound


@given(workers=st.integers(1, 300), seed=st.integers(0, 1000))
def test_sums_are_within_their_bound(workers: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    inputs = [draw_vector(draw, 20) for _ in range(workers)]
    total = sum(integers(x, workers).astype(np.int64) for x in inputs)
    exact = sum(x.astype(np.float64) for x in inputs)
    assert (np.abs((total / scale(workers)).astype(np.float32) - exact) <= sum_bound(inputs)).all()


@given(workers=st.integers(1, 65_536), sign=st.sampled_from([1, -1]))
def test_no_sum_overflows(workers: int, sign: int) -> None:
    (largest,) = integers(np.array([sign * LARGEST], np.float32), workers).tolist()
    assert abs(largest) * workers <= 2**31 - 1


@pytest.mark.parametrize(
    "value", [np.nan, np.inf, -np.inf, np.nextafter(np.float32(LARGEST), np.float32(99))]
)
def test_what_cannot_be_sent_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="magnitudes up to 16: clip or scale"):
        integers(np.array([1, value], np.float32), 2)
