"""Analytical models of a collective without loss: its seconds, from latency and bandwidth alone, and its bytes.

The models of all-reduces between hosts are in the files of the algorithms (workers/host_based/algorithms). The model of
in-network aggregation follows SwitchML (NSDI'21), section 3.
"""

from __future__ import annotations

from fanin.workers.collective import Algorithm, Operation
from fanin.workers.host_based.algorithms.all_reduce import NO_LIMIT, Latency, Window
from fanin.workers.host_based.algorithms.registry import algorithm_named


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
    """Return the seconds of an operation other than all-reduce between hosts.

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
        case "all-reduce":
            raise ValueError("the model of an all-reduce depends on its algorithm; see AllReduce.seconds()")
        case "reduce-scatter" | "all-gather":
            chain = sum(hops) - min(hops)
            longest, part = max(hops), size / workers
            always = window.sending(others, others, bandwidth, longest) + longest
            return max(always, chain + window.sending(part, part, bandwidth, longest)) + longest


def sharded(algorithm: Algorithm, workers: int, size: int, latency: float, bandwidth: float) -> float:
    """Return the seconds of a reduce-scatter or of an all-gather, which are equal, over links of equal latency.

    In the network, a worker sends what all others need, or receives what they send, as on a ring, but in one step.

    Args:
        algorithm: "in-network" or "ring".
        workers: Number of workers.
        size: Bytes of each array.
        latency: Seconds between two ranks, or to the root of the tree and back.
        bandwidth: Bytes of payload per second on a host's link, each way.
    """
    if algorithm == "in-network":
        return latency + (workers - 1) / workers * size / bandwidth
    return collective("all-gather", workers, size, lambda *_: latency, bandwidth)


def sharded_formula(algorithm: Algorithm) -> str:
    """Return the analytical model of sharded() as text, with the symbols of formula()."""
    once = "(n-1)/n·S/B"
    return f"L + {once}" if algorithm == "in-network" else f"max({once} + L, (n-1)·L + S/(n·B)) + L"


def sharded_bytes_each_way(
    algorithm: Algorithm, workers: int, size: int, scatters: int, gathers: int
) -> float:
    """Return the payload that a host sends, or that it receives if this is more.

    Args:
        algorithm: "in-network" or "ring".
        workers: Number of workers.
        size: Bytes of each array.
        scatters: Number of reduce-scatters.
        gathers: Number of all-gathers.
    """
    others = workers - 1
    if algorithm == "in-network":
        return max(scatters * others + gathers, scatters + gathers * others) / workers * size
    return (scatters + gathers) * others / workers * size


def bytes_each_way(algorithm: Algorithm, workers: int, size: int) -> float:
    """Return the payload that the busiest host sends, and receives, in an all-reduce of two hosts or more.

    The parameter server has a shard on each worker.

    Args:
        algorithm: The algorithm.
        workers: Number of workers.
        size: Bytes of each array.
    """
    if algorithm == "in-network":
        return float(size)
    return algorithm_named(algorithm).bytes_each_way(workers, size)


def formula(algorithm: Algorithm, workers: int) -> str:
    """Return the analytical model of an all-reduce of two hosts or more as text, for equal latencies.

    In the text, n is the number of workers, S the bytes of an array, and B the bytes per second. L is the time from
    host to host, or to the root of the tree and back, in seconds. p is PIECE. In-network has no limit of the window and
    no exponents ahead. The parameter server has a shard on each worker.
    """
    return "L + S/B" if algorithm == "in-network" else algorithm_named(algorithm).formula(workers)
