"""Buckets of a gradient: which elements they have, and which layer of the backward pass fills them."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.experiments.models.step import (
    bucket_slices,
    filled_buckets,
    ready_shares,
    step_seconds,
    summed_after,
)

ELEMENTS, BUCKET, LAYERS = st.integers(1, 500), st.none() | st.integers(1, 600), st.integers(1, 50)


@given(ELEMENTS, BUCKET)
def test_every_element_is_in_one_bucket(elements: int, bucket: int | None) -> None:
    parts = bucket_slices(elements, bucket)
    assert [index for part in parts for index in range(part.start, part.stop)] == list(range(elements))


@given(ELEMENTS, BUCKET, LAYERS)
def test_a_layer_fills_the_buckets_whose_last_element_is_its_own(
    elements: int, bucket: int | None, layers: int
) -> None:
    filled = list(accumulate(filled_buckets(elements, bucket, layers)))
    for layer, count in enumerate(filled, start=1):
        known = layer * elements // layers  # whole elements of which all is there
        assert count == sum(part.stop <= known for part in bucket_slices(elements, bucket))


@given(st.integers(1, 20), st.integers(1, 20))
def test_layers_as_large_as_buckets_are_ready_as_those_of_a_whole_model(layers: int, bucket: int) -> None:
    assert filled_buckets(layers * bucket, bucket, layers) == [1] * layers
    assert ready_shares(layers * bucket, bucket) == [(layer + 1) / layers for layer in range(layers)]


def test_a_bucket_waits_for_its_last_element_and_for_the_one_before() -> None:
    assert summed_after([1.0, 2.0, 3.0], [0.5, 3.0, 0.25]) == pytest.approx(5.25)
    assert step_seconds(10.0, 4.0, [0.5, 1.0], [3.0, 3.0]) == pytest.approx(18.0)
