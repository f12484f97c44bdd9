"""Ring all-reduce, and its halves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fanin.workers.host_based.algorithms.all_reduce import AllReduce, Hosts, Vector, sum_from_owners
from fanin.workers.host_based.pieces import Piece, Schedule, bounds, cut


class Ring(AllReduce):
    """A reduce-scatter round the ring, then an all-gather, in n - 1 steps each.

    See Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009. Segment s is summed in the order of ranks
    s, s + 1, ... round the ring.
    """

    name = "ring"

    def schedule(self, rank: int, workers: int, size: int, chunk: int, shards: int | None = None) -> Schedule:
        """Return the ring's two halves."""
        return _around(rank, workers, size, chunk, first=rank, adding=workers - 1, copying=workers - 1)

    def float32_sum(self, inputs: Sequence[Vector], shards: int | None = None) -> Vector:
        """Return the sum, in which each rank owns a segment."""
        return sum_from_owners(range(len(inputs)), inputs)

    def seconds(self, size: int, hosts: Hosts) -> float:
        """Return the seconds of a ring, in which a rank forwards a segment while the rest of it arrives.

        Either the links are always busy, or a segment travels from rank to rank, delayed by latencies, and by each rank
        until it has what it forwards at a time. Some of that has arrived when the rank looks at its first packet. The
        last packet may be acknowledged.
        """
        workers = hosts.workers
        hops = [hosts.latency(rank, (rank + 1) % workers) for rank in range(workers)]
        longest = max(hops)
        # A segment makes 2 (n - 1) hops in a row: twice round the ring without two hops.
        chain = 2 * sum(hops) - min(hops[i - 1] + hops[i] for i in range(workers))
        whole, segment = 2 * (workers - 1) / workers * size, size / workers
        always = hosts.sending(whole, whole, longest) + longest
        filling = max(0.0, hosts.stored / hosts.bandwidth - hosts.window.coalescing / 2)
        chain += (2 * workers - 3) * filling
        arrived = max(always, chain + hosts.sending(segment, segment, longest))
        return arrived + longest if hosts.acknowledged else arrived

    def formula(self, workers: int) -> str:
        """Return the formula; a short array is delayed by latencies, a long one by the link."""
        return "max(2·(n-1)/n·S/B + L, 2·(n-1)·L + S/(n·B)) + L"

    def longest_message(self, size: int, workers: int, shards: int | None) -> int:
        """Return the bytes of a segment."""
        return size // workers

    def shares(self, workers: int, shards: int | None) -> tuple[Mapping[int, float], ...]:
        """Return that each rank sends all but two segments of two arrays to the next one."""
        if workers == 1:
            return ({},)
        return tuple({(rank + 1) % workers: 2 * (workers - 1) / workers} for rank in range(workers))


def ring_reduce_scatter(rank: int, workers: int, size: int, chunk: int) -> Schedule:
    """Return the schedule of the ring's first half, after which each rank has the sum of its own segment."""
    return _around(rank, workers, size, chunk, first=rank - 1, adding=workers - 1, copying=0)


def ring_all_gather(rank: int, workers: int, size: int, chunk: int) -> Schedule:
    """Return the schedule of the ring's second half, in which each rank starts with its own segment."""
    return _around(rank, workers, size, chunk, first=rank, adding=0, copying=workers - 1)


def _around(
    rank: int, workers: int, size: int, chunk: int, *, first: int, adding: int, copying: int
) -> Schedule:
    """Return steps round the ring: first those whose received pieces are added, then those whose pieces are copied.

    What is sent in a step has been received in the step before.

    Args:
        rank: The rank whose schedule is returned.
        workers: Number of workers.
        size: Elements of the array.
        chunk: Largest size of a piece in elements.
        first: The segment that `rank` sends first.
        adding: Number of steps in which pieces are added.
        copying: Number of steps in which pieces are copied.
    """
    if workers == 1:
        return Schedule({}, {})
    edges = bounds(size, workers)
    following, previous = (rank + 1) % workers, (rank - 1) % workers

    def pieces(first_segment: int) -> Iterator[tuple[int, int, int]]:
        """Yield the pieces of all steps, each with its step."""
        for step in range(adding + copying):
            segment = (first_segment - step) % workers
            for start, stop in cut(edges[segment], edges[segment + 1], chunk):
                yield start, stop, step

    def sends() -> Iterator[Piece]:
        received = 0
        for start, stop, step in pieces(first):
            if step:
                received += 1
                yield Piece(start, stop, previous, received)
            else:
                yield Piece(start, stop)

    receives = (Piece(start, stop, reduce=step < adding) for start, stop, step in pieces(first - 1))
    return Schedule({following: sends()}, {previous: receives})
