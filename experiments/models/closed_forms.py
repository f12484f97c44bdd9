"""An all-reduce without loss by algorithm: its seconds, from latency and bandwidth alone, and the bytes it moves.

Sources: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005, for the
model and for halving-doubling; Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009, for ring, whose
steps overlap here; Sanders, Speck, Träff, 2009, for the double binary tree; SwitchML (NSDI'21), section 3, for
in-network.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from math import inf, log2
from typing import NamedTuple, assert_never

from fanin.workers.collective import Algorithm, HostBasedAlgorithm, Operation
from fanin.workers.host_based.schedules import CHUNK, neighbours, servers

# Seconds from a rank's sending a packet to another rank's dealing with it: latency(sender, receiver).
Latency = Callable[[int, int], float]

PIECE = 4 * CHUNK  # bytes: what a node of a double binary tree hands on at a time

_TURNS = 20  # in which a round trip and the waits in it are found


class Window(NamedTuple):
    """Bytes that may be outstanding between hosts, of each connection or of a host with all its connections.

    coalescing: how long a host waits for more packets before it looks at the first, in seconds; a part of the latency.
    """

    size: float
    per_host: bool = False
    coalescing: float = 0.0

    def sending(self, size: float, connection: float, bandwidth: float, latency: float) -> float:
        """Return how long a host takes to send, at a window a round trip or at the rate of its link.

        Args:
            size: Bytes that it sends.
            connection: Bytes of them on its busiest connection.
            bandwidth: Bytes a second of its link.
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
    """Seconds for arrays of `size` bytes.

    round_trip: seconds, by way of the root of the tree. bandwidth: bytes of payload a second on the slowest link,
    each way. window: bytes outstanding. ahead: seconds that a window of packets without values, which goes first, is on
    that link.
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
    """Seconds for arrays of `size` bytes of an operation other than all-reduce; see between_hosts.

    What goes from rank to rank overlaps with what follows. The last packet is acknowledged, but that of a broadcast:
    its last rank sends nothing.
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
    """Seconds for arrays of `size` bytes.

    bandwidth: bytes of payload a second on a host's link, each way: its rate, less headers. shards: of the parameter
    server, on workers (None: on all). piece: bytes that are handed on at a time. window: what limits how much is
    outstanding; queues make its round trips longer than they are here.
    """
    if workers == 1:
        return 0.0
    match algorithm:
        case "ring":
            return _ring(workers, size, latency, bandwidth, window)
        case "halving-doubling":
            return _halving_doubling(workers, size, latency, bandwidth, window)
        case "double-binary-tree":
            # A node hands on whole pieces.
            traffic = _tree_traffic(workers)
            furthest = max(latency(*pair) for pair in traffic)
            sending = window.sending(2 * size, max(traffic.values()) * size, bandwidth, furthest)
            return 2 * _height(workers, latency) + 2 * log2(workers) * piece / bandwidth + sending
        case "parameter-server":
            # A server's link carries its shard for all others, and those of the other servers for its own worker.
            # Numbers go to it, sums come back, and are acknowledged. A single one has nothing to send until all others'
            # first piece has come.
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
    """A rank hands on what has come of a segment while the rest comes: latencies and bytes overlap.

    Either links are always busy, or a segment goes from rank to rank and waits for nothing but latencies. The last
    packet is acknowledged.
    """
    hops = [latency(rank, (rank + 1) % workers) for rank in range(workers)]
    longest = max(hops)
    # A segment makes 2 (n - 1) hops in a row: twice round, but for two of them.
    chain = 2 * sum(hops) - min(hops[i - 1] + hops[i] for i in range(workers))
    whole, segment = 2 * (workers - 1) / workers * size, size / workers
    always = window.sending(whole, whole, bandwidth, longest) + longest
    return max(always, chain + window.sending(segment, segment, bandwidth, longest)) + longest


def _halving_doubling(workers: int, size: int, latency: Latency, bandwidth: float, window: Window) -> float:
    """Each step begins when the one before has ended: the furthest pair of each counts."""
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
    # The others fold their array into a neighbour's first, and get the sum at the end. In pieces, so that
    # the halving has begun, and the doubling has not ended, meanwhile: what a neighbour's link carries.
    furthest = max(latency(2 * rank, 2 * rank + 1) for rank in range(folded))
    return time + 2 * (furthest + window.sending(size, size, bandwidth, furthest))


def _height(workers: int, latency: Latency) -> float:
    """Of the two trees: the latencies from the leaf that is furthest from its root."""

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
    """Payload that the busiest host sends, and receives, in an all-reduce of arrays of `size` bytes; two hosts or more.

    The parameter server has a shard on each worker.
    """
    match algorithm:
        case "in-network":
            return float(size)
        case "ring" | "parameter-server":
            return 2 * (workers - 1) / workers * size
        case "halving-doubling":
            cores = 1 << workers.bit_length() - 1
            # A neighbour that does not take part hands over its array, and gets the sum.
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
    """Return which share of the array each rank sends to each other rank in the two trees together."""
    traffic: defaultdict[tuple[int, int], float] = defaultdict(float)
    for tree in (0, 1):
        for rank in range(workers):
            parent, children = neighbours(tree, rank, workers)
            for peer in [*children] if parent is None else [parent, *children]:
                traffic[rank, peer] += 0.5
    return dict(traffic)


def formula(algorithm: Algorithm, workers: int) -> str:
    """The closed form where all latencies are alike, for people, and two hosts or more.

    n: workers. S: bytes of an array. B: bytes a second. L: seconds from a host to another, or to the root of the tree
    and down again. p: PIECE. In-network without limit of the window and without exponents ahead; the parameter server
    with a shard on each worker.
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
