"""What all-reduces must give, beside the same in Python integers."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.expected_sums import QuantizedSums
from tests.workers.faulty_network import ExactSums
from tests.workers.test_protocol import SIZES, gradients


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 5), st.integers(1, 9), SIZES, st.integers(0, 2**32))
def test_the_sums_of_a_lease_are_those_of_block_floating_point_by_the_book(
    workers: int, window: int, sizes: list[int], seed: int
) -> None:
    ours, book = QuantizedSums(64, window, workers), ExactSums(64, window)
    for step, size in enumerate(size for size in sizes if size):
        inputs = gradients(workers, size, seed, step)
        assert ours.next(inputs).result.tobytes() == book.next(inputs).tobytes()


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
    assert sums.next([x, x]).saturated == 1
    assert sums.next([x, x]).saturated == 0  # there is a bit more room than needed
    assert sums.next([8 * x, 8 * x]).saturated == 1
    assert sums.next([x / 8, x / 8]).saturated == 1
