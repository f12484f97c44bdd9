"""Delayed scaling: what exponents to expect of a vector's blocks, after those of the last vector as long as it.

As in the training of networks in eight bits (Micikevicius et al. 2022, FP8 Formats for Deep Learning; NVIDIA's
Transformer Engine), where the largest magnitudes of a tensor's last steps scale it in the next one. Here the largest
exponents come with the sums, so that an expectation that was wrong is noticed, by all workers alike, and mended.
"""

import numpy as np
from numpy.typing import NDArray

from workers import quantization

# An exponent is expected to be at most HEADROOM above the last one; values scaled for an exponent up to SLACK too large
# are taken. Each of these bits doubles the step of the integers.
HEADROOM = 1
SLACK = 2

_MOST_LENGTHS = 256  # remembered: vectors of so many different lengths


class Expectations:
    """The exponents expected of the blocks of vectors, by the vectors' length; the same on all workers of a lease."""

    def __init__(self) -> None:
        self._by_length: dict[int, NDArray[np.int8]] = {}

    def recall(self, elements: int) -> NDArray[np.int8] | None:
        """Those of such a vector, to be kept up to date by its sum; None: there has been none."""
        return self._by_length.get(elements)

    def keep(self, elements: int, exponents: NDArray[np.int8]) -> None:
        """Those of the first such vector. The ones that have been kept longest are forgotten."""
        self._by_length[elements] = exponents
        if len(self._by_length) > _MOST_LENGTHS:
            del self._by_length[next(iter(self._by_length))]


def expect(largest: NDArray[np.int8]) -> NDArray[np.int8]:
    """The exponents to expect after these."""
    return np.minimum(largest.astype(np.int16) + HEADROOM, quantization.LARGEST_EXPONENT).astype(np.int8)


def fits(expected: NDArray[np.int8], largest: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Whether values scaled for these exponents can be taken where the largest have been those."""
    return (largest <= expected) & (expected <= largest.astype(np.int16) + SLACK)
