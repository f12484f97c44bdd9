"""Results are compared with the exact sum, times are the slowest worker's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fanin.experiments.results.checking import (
    compare_with_promise,
    compressed_sum_bound,
    durations,
    float32_sum_bound,
    quantized_sum_bound,
    sums_within,
)
from fanin.experiments.results.recording import Recording, Vector
from fanin.workers.values.compression import Compressor, Rounded, TopK, sum_of
from tests.workers.faulty_network import Network


def recordings(folder: Path, inputs: list[list[Vector]], outputs: list[list[Vector]]) -> list[Recording]:
    """`inputs` and `outputs` by rank and step, through the files."""
    for rank, (ins, outs) in enumerate(zip(inputs, outputs, strict=True)):
        results = iter(outs)
        recording = Recording.create(folder, rank, len(ins), ins[0].size)
        all_reduce = recording.wrap(lambda _, results=results: next(results))
        for vector in ins:
            all_reduce(vector)
    return [Recording.open(folder, rank) for rank in range(len(inputs))]


def vector(*values: float) -> Vector:
    return np.array(values, np.float32)


def test_an_exact_result_has_no_error(tmp_path: Path) -> None:
    made = recordings(tmp_path, [[vector(1, 2)], [vector(3, 4)]], [[vector(4, 6)]] * 2)
    errors = compare_with_promise(made, sums_within(float32_sum_bound))
    assert (errors.largest, errors.violations) == (0, 0)


@pytest.mark.parametrize("wrong", [6.001, np.nan, np.inf])
def test_one_wrong_element_of_one_worker_is_found(tmp_path: Path, wrong: float) -> None:
    made = recordings(tmp_path, [[vector(1, 2)], [vector(3, 4)]], [[vector(4, 6)], [vector(4, wrong)]])
    assert compare_with_promise(made, sums_within(float32_sum_bound)).violations == 1


@given(arrays(np.float32, (6, 30), elements=st.floats(-(2.0**60), 2.0**60, width=32)))
def test_adding_in_any_order_keeps_the_float32_bound(inputs: Vector) -> None:
    exact = inputs.sum(axis=0, dtype=np.float64)
    bound = float32_sum_bound(inputs)
    for order in (range(6), reversed(range(6))):
        total = np.zeros(30, np.float32)
        for rank in order:
            total = total + inputs[rank]
        assert (np.abs(total - exact) <= bound).all()


@pytest.mark.parametrize("compressor", [TopK(0.1), Rounded(8), Rounded(4)], ids=str)
@given(
    inputs=arrays(
        np.float32,
        st.tuples(st.integers(1, 9), st.integers(1, 300)),
        elements=st.floats(-(2.0**100), 2.0**100, width=32),
    )
)
def test_what_compression_changes_is_promised_and_no_more(compressor: Compressor, inputs: Vector) -> None:
    packed = np.concatenate([compressor.packed(x) for x in inputs])
    found = sum_of(compressor, packed, len(inputs), inputs.shape[1])
    error = np.abs(found - inputs.astype(np.float64).sum(axis=0))
    assert (error <= compressed_sum_bound(list(inputs), compressor)).all()


@pytest.mark.parametrize("values", [64, 128])
def test_the_bound_of_later_calls_includes_scaling_after_earlier_ones(values: int) -> None:
    """Where exponents were expected, results may be off by more than the exponents of their own inputs allow."""
    random = np.random.default_rng(1)
    beyond = 0
    for _ in range(20):
        network = Network([2], window=4, values=values)
        for exponent in random.integers(-2, 3, 4):
            # Most elements are small beside their block's largest: their own rounding to float32 hides nothing.
            scales = 2.0**exponent * np.where(np.arange(200) % 10, 2.0**-12, 1)
            inputs = [(random.uniform(-1, 1, 200) * scales).astype(np.float32) for _ in "12"]
            error = np.abs(network.all_reduce(inputs)[0] - sum(x.astype(np.float64) for x in inputs))
            assert (error <= quantized_sum_bound(inputs, values, window=4)).all()
            beyond += int(np.count_nonzero(error > quantized_sum_bound(inputs, values)))
    assert beyond


def test_quantized_sums_keep_their_bound_up_to_the_largest_float32() -> None:
    inputs = [np.full(64, 1.5 * 2.0**126, np.float32)] * 2
    total = Network([2], window=4).all_reduce(inputs)[0]
    assert np.abs(total - 1.5 * 2.0**127).max() <= quantized_sum_bound(inputs, values=64, window=4).min()


def test_an_all_reduce_lasts_from_the_last_call_to_the_last_result(tmp_path: Path) -> None:
    made = [Recording.create(tmp_path, rank, 1, 1) for rank in range(2)]
    for recording, start, end in zip(made, (10.0, 12.0), (15.0, 14.0), strict=True):
        recording.starts[0], recording.ends[0] = start, end
    assert durations(made) == pytest.approx([3.0])
