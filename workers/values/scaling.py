"""Delayed scaling: the exponents to expect of a vector's blocks, after those of the last vector of the same length.

Training of networks in eight bits does the same (Micikevicius et al. 2022, FP8 Formats for Deep Learning; NVIDIA's
Transformer Engine): the largest magnitudes of a tensor's last steps scale it in the next one. Here the largest
exponents arrive with the sums, so that all workers alike notice a wrong expectation and correct it.
"""

import numpy as np
from numpy.typing import NDArray

from fanin.workers.values import quantization

# An exponent is expected to be at most HEADROOM above the last one; values scaled for an exponent that is too large by
# at most SLACK are accepted. Each of these bits doubles the step of the integers.
HEADROOM = 1
SLACK = 2

# How many vectors' exponents a worker remembers, by length and call. All workers forget the same ones.
MAX_CACHED_LENGTHS = 127


def expect(largest: NDArray[np.int8]) -> NDArray[np.int8]:
    """Return the exponents to expect after these ones [blocks]."""
    return np.minimum(largest.astype(np.int16) + HEADROOM, quantization.LARGEST_EXPONENT).astype(np.int8)


def fits(expected: NDArray[np.int8], largest: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Return for which blocks values scaled for the expected exponents can be used: [blocks].

    Args:
        expected: The expected exponents [blocks].
        largest: The actual largest exponents [blocks].
    """
    return (largest <= expected) & (expected <= largest.astype(np.int16) + SLACK)
