"""Results are compared with the exact sum, times are the slowest worker's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fanin.experiments.results.checking import (
    SAMPLED_FROM,
    Errors,
    compare_with_promise,
    compressed_sum_bound,
    durations,
    float32_sum_bound,
    oracle_of,
    quantized_sum_bound,
    sums_within,
)
from fanin.experiments.results.recording import Recording, Vector
from fanin.experiments.scenario.settings import Settings
from fanin.workers.collective import Operation
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


def _settings(**rest: object) -> Settings:
    topology = {"leaf_spine": {"spines": 0, "leaves": 1, "hosts_per_leaf": 3, "rate": 10**9}}
    return Settings.model_validate({"topology": topology, "size": "4 MB", **rest})


@pytest.mark.parametrize(("algorithm", "trees"), [("in-network", 1), ("in-network", 3), ("ring", 1)])
def test_a_sample_promises_what_the_check_of_everything_does(algorithm: str, trees: int) -> None:
    """Vectors shorter and longer than the window of 20 packets, and with a last block that is not full."""
    for elements in (1, 255, 20 * 256, 20 * 256 + 1, 100_000):
        random = np.random.default_rng(elements)
        inputs = [random.standard_normal(elements).astype(np.float32) for _ in range(3)]
        whole, sample = (
            oracle_of(_settings(check=check, algorithm=algorithm), algorithm, 20, trees=trees).promise(inputs)
            for check in ("all", "sample")
        )
        assert sample.chosen is not None
        assert (np.diff(sample.chosen) > 0).all()
        np.testing.assert_array_equal(sample.exact, whole.exact[sample.chosen])
        np.testing.assert_array_equal(sample.bound, whole.bound[sample.chosen])


@pytest.mark.parametrize(
    "operation", ["all-reduce", "reduce-scatter", "all-gather", "broadcast", "all-to-all"]
)
def test_a_sample_finds_a_wrong_block_as_often_as_documented(operation: Operation) -> None:
    workers, blocks, trials = 3, 3 * 2 * SAMPLED_FROM, 640
    oracle = oracle_of(_settings(check="sample", algorithm="ring"), "ring", 1)
    inputs = [np.zeros(blocks * 256, np.float32)] * workers
    found = 0
    for trial in range(trials):
        wrong = np.zeros(blocks * 256, np.float32)
        block = trial % (2 * SAMPLED_FROM)  # rank 0 is promised this one whatever the operation
        wrong[256 * block : 256 * (block + 1)] = 1
        errors = oracle.promise(inputs, operation).hold([wrong, inputs[0], inputs[0]])
        assert errors.violations in (0, 256)
        assert errors.compared / errors.elements == pytest.approx(1 / SAMPLED_FROM, abs=0.01)
        found += errors.violations > 0
    assert (
        trials / SAMPLED_FROM * 0.5 < found < trials / SAMPLED_FROM * 2
    )  # 40, whose standard deviation is 6


def test_nothing_is_claimed_about_what_was_not_checked() -> None:
    oracle = oracle_of(_settings(check="none"), "in-network", 20)
    errors = oracle.promise([np.ones(1000, np.float32)] * 3).hold([np.full(1000, np.nan, np.float32)] * 3)
    assert errors.columns == {
        "violations": None,
        "max_abs_error": None,
        "error_bound": None,
        "checked_share": 0.0,
    }
    assert Errors.of_all([errors, Errors(0.1, 0.2, 1, 1000, 1000)]).columns["checked_share"] == 0.25


def test_results_that_are_alike_are_all_counted() -> None:
    right, wrong = np.full(300, 3, np.float32), np.full(300, 4, np.float32)
    promise = sums_within(float32_sum_bound).promise([np.ones(300, np.float32)] * 3)
    assert promise.hold([right, wrong, wrong, wrong, right]).violations == 900


def test_large_runs_check_a_sample_unless_results_depend_on_whole_vectors() -> None:
    assert _settings(size="4 MB", repetitions=357).checks == "all"  # 3 workers: 1.071e9 values
    assert _settings(size="4 MB", repetitions=358).checks == "sample"
    assert _settings(size="4 MB", repetitions=358, check="all").checks == "all"
    assert _settings(size="4 MB", repetitions=358, protocol="switchml").checks == "all"
    for rest in ({"protocol": "majority"}, {"algorithm": "ring", "compression": {"kind": "top-k"}}):
        with pytest.raises(
            ValueError, match=r"check: a sample cannot be checked, because .*; set 'all' or 'none'"
        ):
            _settings(check="sample", **rest)
