"""Host-based all-reduce algorithms as plain data: what each rank sends to whom, and what it must receive first.

Between any two ranks a stream of pieces runs in each direction. Pieces are ranges of the array, in an order that both
ends know. A piece that arrives is added to the array or replaces a part of it. Pieces are small, so that a long array
passes through many ranks at once.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import NamedTuple, assert_never

from fanin.workers.collective import HostBasedAlgorithm, Operation

CHUNK = 4 << 10  # elements, 16 KiB: the default size of the largest piece


class Piece(NamedTuple):
    """Elements `start` to `stop` - 1 of the array.

    Attributes:
        start: First element.
        stop: One more than the last element.
        after: The rank whose pieces this one waits for; -1 if it waits for none.
        needed: How many pieces from `after` must have been processed before this piece may be sent, or processed on
            arrival.
        reduce: Whether the piece is added to the array on arrival. If not, it replaces that part of the array.
    """

    start: int
    stop: int
    after: int = -1
    needed: int = 0
    reduce: bool = False


@dataclass(frozen=True, slots=True)
class Schedule:
    """One rank's part in one all-reduce: by peer, the pieces of the stream to it and of the one from it.

    Each iterable is read once, and only as far as the all-reduce has come.
    """

    sends: Mapping[int, Iterable[Piece]]
    receives: Mapping[int, Iterable[Piece]]


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
    match algorithm:
        case "ring":
            return ring(rank, workers, size, chunk)
        case "halving-doubling":
            return _halving_doubling(rank, workers, size, chunk)
        case "double-binary-tree":
            return _double_binary_tree(rank, workers, size, chunk)
        case "parameter-server":
            return _parameter_server(rank, servers(workers, shards), workers, size, chunk)
    assert_never(algorithm)


def peers(
    algorithm: HostBasedAlgorithm, rank: int, workers: int, shards: int | None = None
) -> tuple[list[int], list[int]]:
    """Return the ranks that `rank` sends to, and those that it receives from, for an array of any size."""
    small = schedule(algorithm, rank, workers, 2 * workers, shards=shards)  # no part is empty
    return sorted(small.sends), sorted(small.receives)


class Progress:
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


def bounds(size: int, parts: int) -> list[int]:
    """Return where each of `parts` parts of an array begins, of sizes as equal as possible, and the end of the last."""
    return [size * part // parts for part in range(parts + 1)]


def _cut(start: int, stop: int, chunk: int) -> Iterator[tuple[int, int]]:
    """Cut a range into pieces."""
    return ((first, min(first + chunk, stop)) for first in range(start, stop, chunk))


# -- ring ----------------------------------------------------------------------------------------------------


def ring(rank: int, workers: int, size: int, chunk: int) -> Schedule:
    """Return the schedule of a ring: reduce-scatter, then all-gather, in n - 1 steps each.

    See Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009. Segment s is summed in the order of ranks
    s, s + 1, ... round the ring.
    """
    return _around(rank, workers, size, chunk, first=rank, adding=workers - 1, copying=workers - 1)


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
            for start, stop in _cut(edges[segment], edges[segment + 1], chunk):
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


# -- other operations ----------------------------------------------------------------------------------------


def _broadcast(rank: int, workers: int, size: int, chunk: int) -> Schedule:
    """Return a schedule that passes pieces from rank to rank, each as soon as it arrives."""
    parts = list(_cut(0, size, chunk))
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
        return {peer: [Piece(*part) for part in _cut(edges[peer], edges[peer + 1], chunk)] for peer in ranks}

    return Schedule(segments(range(1, workers)), segments(range(-1, -workers, -1)))


# -- schedules whose pieces have names -----------------------------------------------------------------------

# Orders the pieces of a stream; both of its ends use the same names.
_Name = tuple[int, ...]


@dataclass(slots=True)
class _Plan:
    """A schedule under construction: by peer, pieces by name, and what each waits for as (peer, name)."""

    sends: dict[int, dict[_Name, tuple[Piece, _Name]]] = field(default_factory=dict)
    receives: dict[int, dict[_Name, tuple[Piece, _Name]]] = field(default_factory=dict)

    def send(
        self, peer: int, name: _Name, span: tuple[int, int], after: tuple[int, _Name] | None = None
    ) -> None:
        """Send a range to `peer`."""
        waits, awaited = after or (-1, ())
        self.sends.setdefault(peer, {})[name] = Piece(*span, waits), awaited

    def receive(
        self,
        peer: int,
        name: _Name,
        span: tuple[int, int],
        after: tuple[int, _Name] | None = None,
        *,
        reduce: bool,
    ) -> None:
        """Receive a range from `peer`."""
        waits, awaited = after or (-1, ())
        self.receives.setdefault(peer, {})[name] = Piece(*span, waits, reduce=reduce), awaited

    def schedule(self) -> Schedule:
        """Return the schedule, with streams in the order of names, and each wait as a number of pieces."""
        counts = {
            peer: {name: count for count, name in enumerate(sorted(pieces), start=1)}
            for peer, pieces in self.receives.items()
        }

        def resolved(pieces: Mapping[_Name, tuple[Piece, _Name]]) -> list[Piece]:
            return [
                piece if piece.after < 0 else piece._replace(needed=counts[piece.after][awaited])
                for _, (piece, awaited) in sorted(pieces.items())
            ]

        return Schedule(
            {peer: resolved(pieces) for peer, pieces in self.sends.items()},
            {peer: resolved(pieces) for peer, pieces in self.receives.items()},
        )


# -- recursive halving and doubling --------------------------------------------------------------------------


def _halving_doubling(rank: int, workers: int, size: int, chunk: int) -> Schedule:
    """Return a reduce-scatter by recursive halving, then an all-gather by recursive doubling, nearest ranks first.

    See Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005. If n is not a
    power of two, the ranks above the largest power of two first give their array to a neighbour, and get the sum from
    it at the end. Each step begins when the one before has ended: the links of both ends are full
    until then.
    """
    plan = _Plan()
    latest: tuple[int, _Name] | None = None  # the last piece received
    for step, (peer, sent, received, reduce) in enumerate(_halving_doubling_steps(rank, workers, size)):
        for i, span in enumerate(_cut(*sent, chunk)):
            plan.send(peer, (step, i), span, latest)
        before = latest
        for i, span in enumerate(_cut(*received, chunk)):
            plan.receive(peer, (step, i), span, before, reduce=reduce)
            latest = peer, (step, i)
    return plan.schedule()


def _halving_doubling_steps(
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


# -- double binary tree --------------------------------------------------------------------------------------


def _double_binary_tree(rank: int, workers: int, size: int, chunk: int) -> Schedule:
    """Return a schedule in which each of two trees sums one half of the array up to its root and sends it down.

    A rank with children in one tree has none in the other, with one exception: Sanders, Speck, Träff, "Two-tree
    algorithms for full bandwidth broadcast, reduction and scan", 2009. A node adds its children's sums to its own
    numbers, starting with the child at the lower position.
    """
    plan = _Plan()
    for tree, (first, last) in enumerate(pairwise(bounds(size, 2))):
        parent, children = neighbours(tree, rank, workers)
        for i, span in enumerate(_cut(first, last, chunk)):
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


# -- parameter server ----------------------------------------------------------------------------------------


def servers(workers: int, shards: int | None) -> list[int]:
    """Return the ranks that sum a shard each, spread evenly.

    Raises:
        ValueError: If there are fewer workers than shards, or no shard.
    """
    shards = workers if shards is None else shards
    if not 1 <= shards <= workers:
        raise ValueError(f"shards must be from 1 to {workers}, the number of workers, not {shards}")
    return bounds(workers, shards)[:-1]


def _parameter_server(rank: int, servers: list[int], workers: int, size: int, chunk: int) -> Schedule:
    """Return a schedule in which each server sums one shard and sends the sum to all ranks.

    The server adds the ranks in the order server, server + 1, ... in a circle. See Li et al., "Scaling distributed
    machine learning with the parameter server", OSDI 2014.
    """
    plan = _Plan()
    shards = list(zip(servers, pairwise(bounds(size, len(servers))), strict=True))
    # Each rank starts with another server.
    for server, (first, last) in sorted(shards, key=lambda shard: (shard[0] - rank) % workers):
        for i, span in enumerate(_cut(first, last, chunk)):
            up, down = (0, i), (1, i)
            if server != rank:
                plan.send(server, up, span)
                plan.receive(server, down, span, reduce=False)
                continue
            summed = None
            others = [(rank + offset) % workers for offset in range(1, workers)]
            for other in others:
                plan.receive(other, up, span, summed, reduce=True)
                summed = other, up
            for other in others:
                plan.send(other, down, span, summed)
    return plan.schedule()
