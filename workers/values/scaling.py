"""Delayed scaling: what exponents to expect of a vector's blocks, after those of the last vector as long as it.

As in the training of networks in eight bits (Micikevicius et al. 2022, FP8 Formats for Deep Learning; NVIDIA's
Transformer Engine), where the largest magnitudes of a tensor's last steps scale it in the next one. Here the largest
exponents come with the sums, so that an expectation that was wrong is noticed, by all workers alike, and put right.
"""

import numpy as np
from numpy.typing import NDArray

from fanin.workers.values import quantization

# An exponent is expected to be at most HEADROOM above the last one; values scaled for an exponent up to SLACK too large
# are taken. Each of these bits doubles the step of the integers.
HEADROOM = 1
SLACK = 2

# How many vectors' exponents a worker remembers, by length and call. All workers forget the same ones.
MAX_CACHED_LENGTHS = 127


def expect(largest: NDArray[np.int8]) -> NDArray[np.int8]:
    """The exponents [blocks] to expect after these [blocks]."""
    return np.minimum(largest.astype(np.int16) + HEADROOM, quantization.LARGEST_EXPONENT).astype(np.int8)


def fits(expected: NDArray[np.int8], largest: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Whether values scaled for these exponents [blocks] can be taken where the largest have been those: [blocks]."""
    return (largest <= expected) & (expected <= largest.astype(np.int16) + SLACK)
