"""The exact sum of compressed vectors, added in the order of ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fanin.workers.values.compression import BLOCK, Compressor, Rounded, TopK

Vector = NDArray[np.float32]


def compressed_sum(compressor: Compressor, vectors: Sequence[Vector]) -> tuple[Vector, NDArray[np.bool_]]:
    """Return the sum of compressed vectors to the bit, and where that sum is certain.

    With top-k it is uncertain where several values equal the smallest one that is kept, and not all of these are kept.

    Args:
        compressor: The compression.
        vectors: Finite values [workers][elements].

    Returns:
        The sum [elements], and flags [elements].
    """
    total = np.zeros(vectors[0].size, np.float32)
    certain = np.ones(vectors[0].size, np.bool_)
    for x in vectors:
        if isinstance(compressor, TopK):
            kept, sure = _kept(x, compressor.density)
            total[kept] += x[kept]
            certain &= sure
        else:
            total += _rounded(x, compressor)
    return total, certain


def _kept(x: Vector, density: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which values are among the largest, and for which of them that is certain."""
    count = min(math.ceil(density * x.size), x.size)
    magnitudes = np.abs(x)
    smallest = np.sort(magnitudes)[::-1][count - 1]
    kept = magnitudes >= smallest
    sure = (magnitudes != smallest) if np.count_nonzero(kept) > count else np.ones(x.size, np.bool_)
    return kept, sure


def _rounded(x: Vector, compressor: Rounded) -> Vector:
    """Round each value to the nearest multiple of its block's scale; scales that are not normal numbers count as 0."""
    most = 127 if compressor.bits == 8 else 7
    found = np.zeros_like(x)
    for begin in range(0, x.size, BLOCK):
        block = x[begin : begin + BLOCK]
        scale = np.max(np.abs(block)) / np.float32(most)
        if scale >= np.finfo(np.float32).tiny:
            found[begin : begin + BLOCK] = np.rint(block / scale) * scale
    return found
