"""Sums of float32 in the order in which each host-based all-reduce adds: the expected results, bit for bit."""

from collections.abc import Sequence
from itertools import pairwise
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from fanin.workers.collective import HostBasedAlgorithm
from fanin.workers.host_based.schedules import bounds, neighbours, servers

Vector = NDArray[np.float32]


def error_bound(workers: int, magnitude: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far the sum of float32 numbers, in any order, may be from the exact sum.

    The bound is (n - 1) u / (1 - (n - 1) u) times `magnitude`, with u = 2^-24 (Higham, Accuracy and Stability, 4.2).

    Args:
        workers: Number of summands n.
        magnitude: Sums of the summands' absolute values.

    Returns:
        The bounds, with the shape of `magnitude`.
    """
    errors = (workers - 1) * 2.0**-24
    return magnitude * (errors / (1 - errors))


def float32_sum(algorithm: HostBasedAlgorithm, inputs: Sequence[Vector], shards: int | None = None) -> Vector:
    """Return the sum that every worker gets [elements].

    Args:
        algorithm: The all-reduce algorithm.
        inputs: Each worker's vector [elements], by rank.
        shards: See schedules.schedule().
    """
    match algorithm:
        case "ring":
            return _round_from(list(range(len(inputs))), inputs)
        case "parameter-server":
            return _round_from(servers(len(inputs), shards), inputs)
        case "halving-doubling":
            return _pairwise(inputs)
        case "double-binary-tree":
            edges = bounds(len(inputs[0]), 2)
            halves = [
                _tree(tree, [x[first:last] for x in inputs])
                for tree, (first, last) in enumerate(pairwise(edges))
            ]
            return np.concatenate(halves)
    assert_never(algorithm)


def _round_from(owners: Sequence[int], inputs: Sequence[Vector]) -> Vector:
    """Sum a part for each owner: its own values, then those of the ranks after it, in a circle."""
    total = np.empty_like(inputs[0])
    for owner, (first, last) in zip(owners, pairwise(bounds(len(total), len(owners))), strict=True):
        part = inputs[owner][first:last].copy()
        for offset in range(1, len(inputs)):
            part += inputs[(owner + offset) % len(inputs)][first:last]
        total[first:last] = part
    return total


def _pairwise(inputs: Sequence[Vector]) -> Vector:
    """Sum pairs, then pairs of pairs, and so on.

    If the number of workers is not a power of two, each of the first ranks is added to its neighbour before.
    """
    folded = len(inputs) - (1 << len(inputs).bit_length() - 1)
    parts = [inputs[2 * i] + inputs[2 * i + 1] for i in range(folded)]
    parts += [x.copy() for x in inputs[2 * folded :]]
    while len(parts) > 1:
        parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _tree(tree: int, inputs: Sequence[Vector]) -> Vector:
    """Add to each node's own numbers its children's sums."""

    def total(rank: int) -> Vector:
        part = inputs[rank].copy()
        for child in neighbours(tree, rank, len(inputs))[1]:
            part += total(child)
        return part

    (root,) = (rank for rank in range(len(inputs)) if neighbours(tree, rank, len(inputs))[0] is None)
    return total(root)
