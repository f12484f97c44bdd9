"""The sum of compressed vectors: of what compression leaves of each, added in the order of ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fanin.workers.values.compression import BLOCK, Compressor, Rounded, TopK

Vector = NDArray[np.float32]


def compressed_sum(compressor: Compressor, vectors: Sequence[Vector]) -> tuple[Vector, NDArray[np.bool_]]:
    """Bit for bit, [elements], of vectors [workers][elements] of finite values; and where it is certain, [elements].

    Of top-k it is not where several values are as large as the smallest that is kept, and not all of them are.
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
    """Which values are among the largest, and of which that is certain."""
    count = min(math.ceil(density * x.size), x.size)
    magnitudes = np.abs(x)
    smallest = np.sort(magnitudes)[::-1][count - 1]
    kept = magnitudes >= smallest
    sure = (magnitudes != smallest) if np.count_nonzero(kept) > count else np.ones(x.size, np.bool_)
    return kept, sure


def _rounded(x: Vector, compressor: Rounded) -> Vector:
    """Each block's values, as the nearest multiples of its scale; scales that are not normal count as 0."""
    most = 127 if compressor.bits == 8 else 7
    found = np.zeros_like(x)
    for begin in range(0, x.size, BLOCK):
        block = x[begin : begin + BLOCK]
        scale = np.max(np.abs(block)) / np.float32(most)
        if scale >= np.finfo(np.float32).tiny:
            found[begin : begin + BLOCK] = np.rint(block / scale) * scale
    return found
