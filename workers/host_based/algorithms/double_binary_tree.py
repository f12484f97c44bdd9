"""All-reduce along two binary trees."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from math import log2

import numpy as np

from fanin.workers.host_based.algorithms.all_reduce import AllReduce, Hosts, Latency, Vector
from fanin.workers.host_based.pieces import Plan, Schedule, bounds, cut


class DoubleBinaryTree(AllReduce):
    """Two trees, each of which sums one half of the array up to its root and sends it down.

    A rank with children in one tree has none in the other, with one exception: Sanders, Speck, Träff, "Two-tree
    algorithms for full bandwidth broadcast, reduction and scan", 2009. A node adds its children's sums to its own
    numbers, starting with the child at the lower position.
    """

    name = "double-binary-tree"

    def schedule(self, rank: int, workers: int, size: int, chunk: int, shards: int | None = None) -> Schedule:
        """Return a rank's part in both trees."""
        plan = Plan()
        for tree, (first, last) in enumerate(pairwise(bounds(size, 2))):
            parent, children = neighbours(tree, rank, workers)
            for i, span in enumerate(cut(first, last, chunk)):
                # On each stream all sums on the way up come before any on the way down, which avoids deadlock.
                up, down = (0, i, tree), (1, i, tree)
                summed = None
                for child in children:
                    plan.receive(child, up, span, summed, reduce=True)
                    summed = child, up
                if parent is not None:
                    plan.send(parent, up, span, summed)
                    plan.receive(parent, down, span, reduce=False)
                    summed = parent, down
                for child in children:
                    plan.send(child, down, span, summed)
        return plan.schedule()

    def float32_sum(self, inputs: Sequence[Vector], shards: int | None = None) -> Vector:
        """Return the sums of both trees, one after the other."""
        halves = [
            _tree_sum(tree, [x[first:last] for x in inputs])
            for tree, (first, last) in enumerate(pairwise(bounds(len(inputs[0]), 2)))
        ]
        return np.concatenate(halves)

    def seconds(self, size: int, hosts: Hosts) -> float:
        """Return the seconds of both trees, whose nodes forward whole pieces."""
        traffic = _shares(hosts.workers)
        furthest = max(hosts.latency(rank, peer) for rank, others in enumerate(traffic) for peer in others)
        connection = max(share for others in traffic for share in others.values())
        sending = hosts.sending(2 * size, connection * size, furthest)
        filling = 2 * log2(hosts.workers) * hosts.piece / hosts.bandwidth
        return 2 * _height(hosts.workers, hosts.latency) + filling + sending

    def formula(self, workers: int) -> str:
        """Return the formula, in which the height of the trees is a number."""
        return f"2·{_height(workers, lambda *_: 1.0):g}·L + 2·log2(n)·p/B + 2·S/B"

    def longest_message(self, size: int, workers: int, shards: int | None) -> int:
        """Return the bytes of a tree."""
        return size // 2

    def shares(self, workers: int, shards: int | None) -> tuple[Mapping[int, float], ...]:
        """Return half an array for each neighbour in each tree."""
        return _shares(workers)


@cache
def _shares(workers: int) -> tuple[Mapping[int, float], ...]:
    """Return the share of the array that each rank sends to each other rank in the two trees together."""
    shares: tuple[defaultdict[int, float], ...] = tuple(defaultdict(float) for _ in range(workers))
    for tree in (0, 1):
        for rank, others in enumerate(shares):
            parent, children = neighbours(tree, rank, workers)
            for peer in [*children] if parent is None else [parent, *children]:
                others[peer] += 0.5
    return tuple(dict(sorted(others.items())) for others in shares)


def _tree_sum(tree: int, inputs: Sequence[Vector]) -> Vector:
    """Add to each node's own numbers its children's sums."""

    def total(rank: int) -> Vector:
        part = inputs[rank].copy()
        for child in neighbours(tree, rank, len(inputs))[1]:
            part += total(child)
        return part

    (root,) = (rank for rank in range(len(inputs)) if neighbours(tree, rank, len(inputs))[0] is None)
    return total(root)


def _height(workers: int, latency: Latency) -> float:
    """Return the height of the two trees: the sum of latencies from the furthest leaf to its root."""

    def below(tree: int, rank: int) -> float:
        children = neighbours(tree, rank, workers)[1]
        return max((latency(child, rank) + below(tree, child) for child in children), default=0.0)

    roots = [
        (tree, rank)
        for tree in (0, 1)
        for rank in range(workers)
        if neighbours(tree, rank, workers)[0] is None
    ]
    return max(below(tree, root) for tree, root in roots)


def neighbours(tree: int, rank: int, workers: int) -> tuple[int | None, list[int]]:
    """Return parent and children of a rank in one of the two trees.

    In the second tree ranks are mirrored if their number is even, and shifted by one if it is odd.

    Args:
        tree: 0 for the first tree, 1 for the second.
        rank: The rank.
        workers: Number of workers.

    Returns:
        The parent, None for the root, and the children.
    """

    def place(of: int) -> int:
        if not tree:
            return of
        return workers - 1 - of if workers % 2 == 0 else (of - 1) % workers

    def rank_at(of: int) -> int:
        return of if not tree else workers - 1 - of if workers % 2 == 0 else (of + 1) % workers

    parents, children = _binary_tree(workers)
    above = parents[place(rank)]
    return None if above is None else rank_at(above), [rank_at(child) for child in children[place(rank)]]


@cache
def _binary_tree(places: int) -> tuple[list[int | None], list[list[int]]]:
    """Return parents and children in a binary tree whose odd positions are leaves: the lowest set bit is the height."""
    parents: list[int | None] = [None]
    children: list[list[int]] = [[] for _ in range(places)]
    for place in range(1, places):
        height = place & -place
        above = (place ^ height) | height << 1
        parents.append(above if above < places else place ^ height)
        children[parents[place] or 0].append(place)
    return parents, children
