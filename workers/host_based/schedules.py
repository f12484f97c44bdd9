"""The schedules of all operations between hosts, and the progress of a rank in its schedule."""

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from fanin.workers.collective import HostBasedAlgorithm, Operation
from fanin.workers.host_based.algorithms.registry import algorithm_named
from fanin.workers.host_based.algorithms.ring import ring_all_gather, ring_reduce_scatter
from fanin.workers.host_based.pieces import CHUNK, Piece, Schedule, bounds, cut


def schedule(
    algorithm: HostBasedAlgorithm,
    rank: int,
    workers: int,
    size: int,
    *,
    chunk: int = CHUNK,
    shards: int | None = None,
    operation: Operation = "all-reduce",
) -> Schedule:
    """Return what a rank sends and receives to sum an array.

    Segment r of an array is the range that bounds() gives rank r. The operations other than all-reduce have their own
    schedules, whatever the algorithm:

    - reduce-scatter leaves each rank with the sum of its own segment;
    - all-gather copies each rank's own segment to all ranks;
    - broadcast copies rank 0's array to all ranks;
    - all-to-all sends segment r to rank r, which stores the segment from rank s as segment s. All segments must have
      the same size, and the array sent must not be the one that receives.

    Args:
        algorithm: The all-reduce algorithm.
        rank: The rank whose schedule is returned.
        workers: Number of workers.
        size: Elements of the array.
        chunk: Largest size of a piece in elements.
        shards: Number of shards of the parameter server, each on its own worker. None: as many as there are workers.
        operation: The operation.
    """
    match operation:
        case "all-reduce":
            pass
        case "reduce-scatter":
            return ring_reduce_scatter(rank, workers, size, chunk)
        case "all-gather":
            return ring_all_gather(rank, workers, size, chunk)
        case "broadcast":
            return _broadcast(rank, workers, size, chunk)
        case "all-to-all":
            return _all_to_all(rank, workers, size, chunk)
        case _:
            assert_never(operation)
    return algorithm_named(algorithm).schedule(rank, workers, size, chunk, shards)


def peers(
    algorithm: HostBasedAlgorithm, rank: int, workers: int, shards: int | None = None
) -> tuple[list[int], list[int]]:
    """Return the ranks that `rank` sends to, and those that it receives from, for an array of any size."""
    small = schedule(algorithm, rank, workers, 2 * workers, shards=shards)  # no part is empty
    return sorted(small.sends), sorted(small.receives)


class ScheduleProgress:
    """The progress of one rank in its schedule.

    For each peer, next_send() returns what may be sent, in order. receiving() returns the piece that arrives next, if
    it may be processed now. received() records that it has been processed. advanced() records that a part of it has
    been processed: a piece that waits for this one alone may then be sent up to the same place.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._done = dict.fromkeys(schedule.receives, 0)  # pieces from each peer
        self._part = dict.fromkeys(
            schedule.receives, 0
        )  # processed elements of the next piece from each peer
        self._sends = {peer: iter(pieces) for peer, pieces in schedule.sends.items()}
        self._receives = {peer: iter(pieces) for peer, pieces in schedule.receives.items()}
        # The next piece of each stream; finished streams are left out.
        self._to_send = _heads(self._sends)
        self._to_receive = _heads(self._receives)

    @property
    def sending(self) -> list[int]:
        """Return the peers to which there is something left to send."""
        return list(self._to_send)

    @property
    def awaiting(self) -> list[int]:
        """Return the peers from which there is something left to receive."""
        return list(self._to_receive)

    def next_send(self, peer: int) -> Piece | None:
        """Return the next piece to send to `peer`, which then counts as sent; None if there is none now."""
        return self._take(peer, self._to_send, self._sends) or self._first_part(peer)

    def receiving(self, peer: int) -> Piece | None:
        """Return the next piece from `peer`; None if it must wait for others, or if there is none."""
        piece = self._to_receive.get(peer)
        return piece if piece is not None and self._may(piece) else None

    def received(self, peer: int) -> None:
        """Record that the next piece from `peer` has been processed."""
        self._take(peer, self._to_receive, self._receives)
        self._done[peer] += 1
        self._part[peer] = 0

    def advanced(self, peer: int, elements: int) -> None:
        """Record that this many more elements of the next piece from `peer` have been processed."""
        self._part[peer] += elements

    def _first_part(self, peer: int) -> Piece | None:
        """Return the part of the next piece to send that has already arrived; None if there is none.

        The next piece must wait for exactly the piece that is arriving.
        """
        piece = self._to_send.get(peer)
        if piece is None or self._done[piece.after] + 1 != piece.needed:
            return None
        arriving = self._to_receive[piece.after]
        there = min(arriving.start + self._part[piece.after], piece.stop - 1)
        if not arriving.start <= piece.start < there:
            return None
        self._to_send[peer] = piece._replace(start=there)
        return piece._replace(stop=there)

    def _may(self, piece: Piece) -> bool:
        return piece.after < 0 or self._done[piece.after] >= piece.needed

    def _take(
        self, peer: int, heads: dict[int, Piece], streams: Mapping[int, Iterator[Piece]]
    ) -> Piece | None:
        piece = heads.get(peer)
        if piece is None or not self._may(piece):
            return None
        following = next(streams[peer], None)
        if following is None:
            del heads[peer]
        else:
            heads[peer] = following
        return piece


def _heads(streams: Mapping[int, Iterator[Piece]]) -> dict[int, Piece]:
    return {peer: piece for peer, stream in streams.items() if (piece := next(stream, None)) is not None}


# -- other operations ----------------------------------------------------------------------------------------


def _broadcast(rank: int, workers: int, size: int, chunk: int) -> Schedule:
    """Return a schedule that passes pieces from rank to rank, each as soon as it arrives."""
    parts = list(cut(0, size, chunk))
    previous = rank - 1
    sends = {
        rank + 1: [
            Piece(*part, previous, received) if rank else Piece(*part)
            for received, part in enumerate(parts, start=1)
        ]
    }
    receives = {previous: [Piece(*part) for part in parts]}
    return Schedule(sends if rank + 1 < workers else {}, receives if rank else {})


def _all_to_all(rank: int, workers: int, size: int, chunk: int) -> Schedule:
    """Return a schedule that sends to all others at once, starting with the next rank to spread the load."""
    edges = bounds(size, workers)

    def segments(steps: Iterable[int]) -> dict[int, list[Piece]]:
        ranks = ((rank + step) % workers for step in steps)
        return {peer: [Piece(*part) for part in cut(edges[peer], edges[peer + 1], chunk)] for peer in ranks}

    return Schedule(segments(range(1, workers)), segments(range(-1, -workers, -1)))
