"""All-reduce by recursive halving and doubling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fanin.workers.host_based.algorithms.all_reduce import AllReduce, Hosts, Vector
from fanin.workers.host_based.pieces import Name, Plan, Schedule, bounds, cut


class HalvingDoubling(AllReduce):
    """A reduce-scatter by recursive halving, then an all-gather by recursive doubling, nearest ranks first.

    See Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005. If n is not a
    power of two, the ranks above the largest power of two first give their array to a neighbour, and get the sum from
    it at the end. Each step begins when the one before has ended: the links of both ends are full until then.
    """

    name = "halving-doubling"
    one_peer_at_a_time = True

    def schedule(self, rank: int, workers: int, size: int, chunk: int, shards: int | None = None) -> Schedule:
        """Return the steps, each of which waits for the one before."""
        plan = Plan()
        latest: tuple[int, Name] | None = None  # the last piece received
        for step, (peer, sent, received, reduce) in enumerate(_steps(rank, workers, size)):
            for i, span in enumerate(cut(*sent, chunk)):
                plan.send(peer, (step, i), span, latest)
            before = latest
            for i, span in enumerate(cut(*received, chunk)):
                plan.receive(peer, (step, i), span, before, reduce=reduce)
                latest = peer, (step, i)
        return plan.schedule()

    def float32_sum(self, inputs: Sequence[Vector], shards: int | None = None) -> Vector:
        """Sum pairs, then pairs of pairs, and so on.

        If the number of workers is not a power of two, each of the first ranks is added to its neighbour before.
        """
        folded = len(inputs) - (1 << len(inputs).bit_length() - 1)
        parts = [inputs[2 * i] + inputs[2 * i + 1] for i in range(folded)]
        parts += [x.copy() for x in inputs[2 * folded :]]
        while len(parts) > 1:
            parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    def seconds(self, size: int, hosts: Hosts) -> float:
        """Return the seconds, where each step waits for the slowest pair of the previous one."""
        workers, latency = hosts.workers, hosts.latency
        levels = workers.bit_length() - 1
        cores = 1 << levels
        folded = workers - cores
        ranks = [2 * core + 1 if core < folded else core + folded for core in range(cores)]
        time = 0.0
        for level in range(levels):
            furthest = max(latency(ranks[core], ranks[core ^ 1 << level]) for core in range(cores))
            part = size / (2 << level)
            time += 2 * (furthest + hosts.sending(part, part, furthest))
        if not folded:
            return time
        # The other workers first add their arrays to those of neighbours, and receive the sum at the end. They do that
        # in pieces, which overlap with the halving and the doubling, so that only what a neighbour's link carries
        # counts.
        furthest = max(latency(2 * rank, 2 * rank + 1) for rank in range(folded))
        return time + 2 * (furthest + hosts.sending(size, size, furthest))

    def formula(self, workers: int) -> str:
        """Return the formula, with two more steps if the number of workers is not a power of two."""
        levels = workers.bit_length() - 1
        cores = 1 << levels
        if workers == cores:
            return "2·log2(n)·L + 2·(n-1)/n·S/B"
        return f"2·{levels + 1}·L + 2·({cores}-1)/{cores}·S/B + 2·S/B"

    def longest_message(self, size: int, workers: int, shards: int | None) -> int:
        """Return the bytes of the first step."""
        return size // 2

    def bytes_each_way(self, workers: int, size: int) -> float:
        """Return the bytes of a worker that also receives the array of a neighbour and returns the sum, if any does."""
        cores = 1 << workers.bit_length() - 1
        return (2 * (cores - 1) / cores + (workers > cores)) * size


def _steps(
    rank: int, workers: int, size: int
) -> Iterator[tuple[int, tuple[int, int], tuple[int, int], bool]]:
    """Yield for each step the peer, the ranges sent and received, and whether what is received is added."""
    levels = workers.bit_length() - 1
    folded = workers - (1 << levels)
    whole, nothing = (0, size), (0, 0)
    if rank < 2 * folded and rank % 2 == 0:
        # Steps have the same numbers at both ends, except for these two, which are the first and last at each end.
        yield rank + 1, whole, nothing, False
        yield rank + 1, nothing, whole, False
        return
    if rank < 2 * folded:
        yield rank - 1, nothing, whole, True
    core = rank // 2 if rank < 2 * folded else rank - folded
    edges = bounds(size, 1 << levels)
    low, high = 0, 1 << levels
    undone: list[tuple[int, tuple[int, int], tuple[int, int]]] = []
    for level in range(levels):
        mate = core ^ 1 << level
        peer = 2 * mate + 1 if mate < folded else mate + folded
        middle = (low + high) // 2
        lower, upper = (low, middle), (middle, high)
        given, (low, high) = (lower, upper) if core >> level & 1 else (upper, lower)
        give, keep = (edges[given[0]], edges[given[1]]), (edges[low], edges[high])
        yield peer, give, keep, True
        undone.append((peer, keep, give))
    for peer, held, missing in reversed(undone):
        yield peer, held, missing, False
    if rank < 2 * folded:
        yield rank - 1, whole, nothing, False
