"""Integers as limbs: their sums in the network are exact, whatever was summed before and whatever is lost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fanin.workers.engines import native
from fanin.workers.engines.native import NativeEngine
from fanin.workers.engines.reference import NumpyEngine
from fanin.workers.values import exact, quantization, scaling
from tests.sizes import sized
from tests.workers.faulty_network import Faults, Network
from tests.workers.vectors import RACKS

ENGINES = [NumpyEngine, NativeEngine] if native.library() is not None else [NumpyEngine]
TYPES = [np.dtype(f"{sign}{size}") for sign in "iu" for size in (1, 2, 4, 8)]


def drawn(
    dtype: np.dtype[np.integer], workers: int, size: int, bits: int, seed: int
) -> list[NDArray[np.integer]]:
    """Integers of up to so many bits, the extremes among them."""
    random = np.random.default_rng(seed)
    limit = np.iinfo(dtype)
    small = random.integers(0, 1 << min(bits, 8 * dtype.itemsize - 1), (workers, size)).astype(dtype)
    extremes = random.choice(np.array([limit.min, limit.max], dtype), (workers, size))
    return list(np.where(random.random((workers, size)) < (bits >= 32) / 2, extremes, small))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=sized(13, 40))
@given(
    RACKS,
    st.sampled_from(TYPES),
    st.integers(1, 300),
    st.lists(st.sampled_from([1, 8, 15, 16, 32, 63]), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.1]),
    st.integers(0, 2**32),
)
def test_sums_wrap_as_those_of_numpy(
    engine: type,
    racks: list[int],
    dtype: np.dtype[np.integer],
    size: int,
    bits: list[int],
    loss: float,
    seed: int,
) -> None:
    network = Network(racks, window=16, faults=Faults(loss=loss), seed=seed, engine=engine)
    for step, some in enumerate(bits):
        inputs = drawn(dtype, sum(racks), size, some, seed + step)
        results = network.all_reduce([exact.limbs(x) for x in inputs])
        with np.errstate(over="ignore"):
            expected = np.sum(inputs, axis=0, dtype=dtype)
        for result in results:
            total = np.empty(size, dtype)
            exact.integers(result, total)
            assert total.tolist() == expected.tolist()


@pytest.mark.parametrize("workers", [1, 2, 33, exact.MAX_WORKERS])
def test_the_most_workers_and_the_worst_scale_still_round_to_the_right_integer(workers: int) -> None:
    """All roundings at once as far off as they can be, as the module's docstring has it, and as float32 stores it."""
    largest = np.full((1, 64), 65535, np.float32)
    exponents, _ = quantization.block_exponents(largest, workers)
    factor = quantization.scales(exponents + np.int8(scaling.SLACK), workers)[0]
    for total in {workers * 65535, workers * 65535 - 1, workers * 32768 + 1, 1}:
        for worst in (-workers / 2, workers / 2):
            stored = np.float32((total * factor + worst) / factor)
            assert np.rint(stored) == total


def test_twice_as_many_would_not() -> None:
    """So that the bound is one."""
    workers = 2 * exact.MAX_WORKERS
    exponents, _ = quantization.block_exponents(np.full((1, 64), 65535, np.float32), workers)
    factor = quantization.scales(exponents + np.int8(scaling.SLACK), workers)[0]
    total = workers * 65535
    assert np.rint(np.float32((total * factor + workers / 2) / factor)) != total
