"""Gradients, networks and faults that tests of the workers draw."""

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.workers.faulty_network import Faults

FAULTS = st.builds(
    Faults,
    loss=st.sampled_from([0.0, 0.01, 0.1, 0.3]),
    duplication=st.sampled_from([0.0, 0.1, 0.4]),
    delay=st.sampled_from([(0.0005, 0.0005), (0.0002, 0.002), (0.0001, 0.03)]),
    straggler=st.sampled_from([0.0, 0.05]),
    marking=st.sampled_from([0.0, 0.1, 1.0]),
)

RACKS = st.one_of(
    st.lists(st.integers(1, 5), min_size=1, max_size=1), st.lists(st.integers(1, 3), min_size=2, max_size=3)
)


# Lengths of the vectors of a lease, some of which repeat; the longer ones are longer than most windows.
SIZES = st.tuples(st.integers(0, 400), st.integers(0, 1500)).flatmap(
    lambda lengths: st.lists(st.sampled_from(lengths), min_size=1, max_size=5)
)


def gradients(workers: int, size: int, seed: int, step: int = 0) -> list[NDArray[np.float32]]:
    """Different for each worker, and of magnitudes that differ from block to block, and a little from step to step."""
    random = np.random.default_rng(seed)
    scale = np.exp2(random.integers(-40, 40, size // 50 + 1)).repeat(50)[:size]
    random = np.random.default_rng((seed, step))
    scale *= np.exp2(random.integers(-2, 3, size // 20 + 1)).repeat(20)[:size]
    return [(random.standard_normal(size) * scale).astype(np.float32) for _ in range(workers)]
