"""Analytical models of an all-reduce without loss: its seconds, from latency and bandwidth alone, and its bytes.

Sources:

- the model, and halving-doubling: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in
  MPICH", 2005
- ring, whose steps overlap here: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009
- double binary tree: Sanders, Speck, Träff, 2009
- in-network: SwitchML (NSDI'21), section 3
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from math import inf, log2
from typing import NamedTuple, assert_never

from fanin.workers.collective import Algorithm, HostBasedAlgorithm, Operation
from fanin.workers.host_based.schedules import CHUNK, neighbours, servers

# Seconds from sending a packet until the receiver handles it: latency(sender, receiver), for two ranks.
Latency = Callable[[int, int], float]

PIECE = 4 * CHUNK  # bytes that a node of a double binary tree forwards at a time

_TURNS = 20  # in which a round trip and the waits in it are found


class Window(NamedTuple):
    """Bytes that may be outstanding between hosts, for each connection or for all connections of a host together.

    Attributes:
        size: The bytes.
        per_host: Whether all connections of a host share them.
        coalescing: Seconds that a host waits for more packets before it looks at the first; a part of the latency.
    """

    size: float
    per_host: bool = False
    coalescing: float = 0.0

    def sending(self, size: float, connection: float, bandwidth: float, latency: float) -> float:
        """Return how long a host takes to send: a window for each round trip, or at the rate of its link.

        Args:
            size: Bytes that it sends.
            connection: Bytes of them on its busiest connection.
            bandwidth: Bytes per second of its link.
            latency: Seconds to the receiver, and of an acknowledgement back.

        Returns:
            Seconds until the last byte has left.
        """
        limited = size if self.per_host else connection
        turns = max(0.0, limited / self.size - 1)
        round_trip = self._round_trip(latency, size / limited - 1)
        return max(size / bandwidth, turns * round_trip + min(limited, self.size) / bandwidth)

    def _round_trip(self, latency: float, others: float) -> float:
        """Return the seconds from a window's packets to their acknowledgement.

        A host looks at the packets of all its connections at once. If packets of another connection have come in the
        last `coalescing` seconds, a packet waits for less than that. The `others` carry as many connections' worth of
        packets, at random moments of a round trip.
        """
        round_trip = 2 * latency
        for _ in range(_TURNS if self.coalescing else 0):
            share = min(1.0, self.coalescing / round_trip)
            waits = round_trip / (others + 1) * (1 - (1 - share) ** (others + 1))
            round_trip = 2 * (latency - self.coalescing + waits)
        return round_trip


NO_LIMIT = Window(inf)


def in_network(size: int, round_trip: float, bandwidth: float, window: int, ahead: float) -> float:
    """Return the seconds of an in-network all-reduce.

    Args:
        size: Bytes of each array.
        round_trip: Seconds to the root of the tree and back.
        bandwidth: Bytes of payload per second on the slowest link, each way.
        window: Bytes outstanding.
        ahead: Seconds that the first window of packets, which carries exponents but no values, takes on that link; 0 if
            there is none.
    """
    turns = max(1.0, size / window) + (ahead > 0)
    begun = max(ahead, round_trip) if ahead else 0.0  # values follow when the first packet ahead is back
    return max(round_trip + begun + size / bandwidth, turns * round_trip)


def collective(
    operation: Operation,
    workers: int,
    size: int,
    latency: Latency,
    bandwidth: float,
    window: Window = NO_LIMIT,
) -> float:
    """Return the seconds of an operation other than all-reduce; see between_hosts.

    Sending from rank to rank overlaps with later packets. The last packet is acknowledged, except in a broadcast, whose
    last rank sends nothing.

    Args:
        operation: The operation.
        workers: Number of workers.
        size: Bytes of each array.
        latency: Seconds between two ranks.
        bandwidth: Bytes of payload per second on a host's link, each way.
        window: Limit of outstanding bytes.
    """
    hops = [latency(rank, (rank + 1) % workers) for rank in range(workers)]
    others = (workers - 1) / workers * size
    match operation:
        case "broadcast":
            return window.sending(size, size, bandwidth, max(hops[:-1])) + sum(hops[:-1])
        case "all-to-all":
            furthest = max(latency(rank, 0) for rank in range(1, workers))
            return window.sending(others, size / workers, bandwidth, furthest) + 2 * furthest
        case _:
            chain = sum(hops) - min(hops)
            longest, part = max(hops), size / workers
            always = window.sending(others, others, bandwidth, longest) + longest
            return max(always, chain + window.sending(part, part, bandwidth, longest)) + longest


def between_hosts(
    algorithm: HostBasedAlgorithm,
    workers: int,
    size: int,
    latency: Latency,
    bandwidth: float,
    shards: int | None = None,
    piece: int = PIECE,
    window: Window = NO_LIMIT,
) -> float:
    """Return the seconds of an all-reduce between hosts.

    Args:
        algorithm: The algorithm.
        workers: Number of workers.
        size: Bytes of each array.
        latency: Seconds between two ranks.
        bandwidth: Bytes of payload per second on a host's link, each way: its rate without headers.
        shards: Number of shards of the parameter server, each on a worker; None: one on each worker.
        piece: Bytes that a node of the double binary tree forwards at a time.
        window: Limit of outstanding bytes. Queues make round trips longer than they are here.
    """
    if workers == 1:
        return 0.0
    match algorithm:
        case "ring":
            return _ring(workers, size, latency, bandwidth, window)
        case "halving-doubling":
            return _halving_doubling(workers, size, latency, bandwidth, window)
        case "double-binary-tree":
            # A node forwards whole pieces.
            traffic = _tree_traffic(workers)
            furthest = max(latency(*pair) for pair in traffic)
            sending = window.sending(2 * size, max(traffic.values()) * size, bandwidth, furthest)
            return 2 * _height(workers, latency) + 2 * log2(workers) * piece / bandwidth + sending
        case "parameter-server":
            # A server's link carries its own shard for all other workers, and the other shards for its own worker.
            # Values go to the server, sums come back and are acknowledged. A single server has nothing to send until
            # the first piece of all others has come.
            ranks = servers(workers, shards)
            furthest = max(
                latency(rank, server) for server in ranks for rank in range(workers) if rank != server
            )
            busiest = max(1.0, (workers + len(ranks) - 2) / len(ranks)) * size
            connection = min(2, len(ranks)) / len(ranks) * size  # between servers, each with a shard
            idle = (workers - 1) * min(piece, size) / bandwidth if len(ranks) == 1 else 0.0
            return 3 * furthest + idle + window.sending(busiest, connection, bandwidth, furthest)
    assert_never(algorithm)


def _ring(workers: int, size: int, latency: Latency, bandwidth: float, window: Window) -> float:
    """Return the seconds of a ring, in which a rank forwards a segment while the rest of it arrives.

    Either the links are always busy, or a segment travels from rank to rank, delayed only by latencies. The last packet
    is acknowledged.
    """
    hops = [latency(rank, (rank + 1) % workers) for rank in range(workers)]
    longest = max(hops)
    # A segment makes 2 (n - 1) hops in a row: twice round the ring without two hops.
    chain = 2 * sum(hops) - min(hops[i - 1] + hops[i] for i in range(workers))
    whole, segment = 2 * (workers - 1) / workers * size, size / workers
    always = window.sending(whole, whole, bandwidth, longest) + longest
    return max(always, chain + window.sending(segment, segment, bandwidth, longest)) + longest


def _halving_doubling(workers: int, size: int, latency: Latency, bandwidth: float, window: Window) -> float:
    """Return the seconds of halving-doubling, where each step waits for the slowest pair of the previous one."""
    levels = workers.bit_length() - 1
    cores = 1 << levels
    folded = workers - cores
    ranks = [2 * core + 1 if core < folded else core + folded for core in range(cores)]
    time = 0.0
    for level in range(levels):
        furthest = max(latency(ranks[core], ranks[core ^ 1 << level]) for core in range(cores))
        part = size / (2 << level)
        time += 2 * (furthest + window.sending(part, part, bandwidth, furthest))
    if not folded:
        return time
    # The other workers first add their arrays to those of neighbours, and receive the sum at the end. They do that in
    # pieces, which overlap with the halving and the doubling, so that only what a neighbour's link carries counts.
    furthest = max(latency(2 * rank, 2 * rank + 1) for rank in range(folded))
    return time + 2 * (furthest + window.sending(size, size, bandwidth, furthest))


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


def bytes_each_way(algorithm: Algorithm, workers: int, size: int) -> float:
    """Return the payload that the busiest host sends, and receives, in an all-reduce of two hosts or more.

    The parameter server has a shard on each worker.

    Args:
        algorithm: The algorithm.
        workers: Number of workers.
        size: Bytes of each array.
    """
    match algorithm:
        case "in-network":
            return float(size)
        case "ring" | "parameter-server":
            return 2 * (workers - 1) / workers * size
        case "halving-doubling":
            cores = 1 << workers.bit_length() - 1
            # A worker also receives the array of a neighbour that does not take part, and returns the sum.
            return (2 * (cores - 1) / cores + (workers > cores)) * size
        case "double-binary-tree":
            traffic = _tree_traffic(workers)
            return size * max(
                sum(share for (sender, _), share in traffic.items() if sender == rank)
                for rank in range(workers)
            )
    assert_never(algorithm)


@cache
def _tree_traffic(workers: int) -> dict[tuple[int, int], float]:
    """Return the share of the array that each rank sends to each other rank in the two trees together."""
    traffic: defaultdict[tuple[int, int], float] = defaultdict(float)
    for tree in (0, 1):
        for rank in range(workers):
            parent, children = neighbours(tree, rank, workers)
            for peer in [*children] if parent is None else [parent, *children]:
                traffic[rank, peer] += 0.5
    return dict(traffic)


def formula(algorithm: Algorithm, workers: int) -> str:
    """Return the analytical model of an all-reduce of two hosts or more as text, for equal latencies.

    In the text, n is the number of workers, S the bytes of an array, and B the bytes per second. L is the time from
    host to host, or to the root of the tree and back, in seconds. p is PIECE. In-network has no limit of the window and
    no exponents ahead. The parameter server has a shard on each worker.
    """
    match algorithm:
        case "in-network":
            return "L + S/B"
        case "ring":
            return "max(2·(n-1)/n·S/B + L, 2·(n-1)·L + S/(n·B)) + L"
        case "halving-doubling":
            cores = 1 << workers.bit_length() - 1
            if workers == cores:
                return "2·log2(n)·L + 2·(n-1)/n·S/B"
            levels = workers.bit_length() - 1
            return f"2·{levels + 1}·L + 2·({cores}-1)/{cores}·S/B + 2·S/B"
        case "double-binary-tree":
            height = _height(workers, lambda *_: 1.0)
            return f"2·{height:g}·L + 2·log2(n)·p/B + 2·S/B"
        case "parameter-server":
            return "3·L + 2·(n-1)/n·S/B"
    assert_never(algorithm)
