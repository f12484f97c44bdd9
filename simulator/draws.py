"""Random numbers that depend only on seed, link, packet and purpose.

They are hashes of a counter (SplitMix64: Steele, Lea, Flood, OOPSLA'14), so no draw shifts another. Turning on
duplication does not change which packets are lost, and packets can be processed in batches of any size.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_PURPOSES = np.uint64(16)


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


def stream_keys(seed: int, streams: int) -> NDArray[np.uint64]:
    """Return a key for each of `streams` independent streams, uint64 [streams]."""
    start = _mix(np.array([seed % 2**64], np.uint64) + _GOLDEN)
    return _mix(start ^ _mix(np.arange(1, streams + 1, dtype=np.uint64) * _GOLDEN))


def uniform(
    keys: NDArray[np.uint64], numbers: NDArray[np.int64], purposes: Sequence[int]
) -> NDArray[np.float64]:
    """Draw uniform random numbers in [0, 1).

    Args:
        keys: Keys of the streams, [m].
        numbers: Number of the packet in its stream, [m].
        purposes: Purposes of the draws, each 0 to 15.

    Returns:
        float64 [purposes, m].
    """
    counters = numbers.astype(np.uint64) * _PURPOSES + np.array(purposes, np.uint64)[:, np.newaxis]
    return np.asarray((_mix(keys + counters * _GOLDEN) >> np.uint64(11)) * 2.0**-53, np.float64)
