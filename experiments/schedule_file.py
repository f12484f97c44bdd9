"""All-reduce algorithms of users: a file with the schedule of each rank, in Python or as MSCCL's XML.

docs/how-to/schedule.md describes the files.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.msccl import MscclError, read_msccl
from fanin.native.python_file import PythonFileError, functions
from fanin.workers.host_based.algorithms.all_reduce import AllReduce, Hosts, Vector
from fanin.workers.host_based.algorithms.registry import FROM_FILES
from fanin.workers.host_based.pieces import CHUNK, Piece, Schedule
from fanin.workers.host_based.schedules import ScheduleProgress

ScheduleOf = Callable[[int, int, int, int], Schedule]  # rank, workers, elements, largest piece in elements

SUFFIXES = (".py", ".xml")
_FEW = 128  # workers up to which a wrong sum is explained
_MOST_EVENTS = 20_000  # among which races are looked for: their order takes 25 MB
_PIECES = 64  # pieces in each rank's part of a vector, at least, from which the model's time hardly changes


class ScheduleError(ValueError):
    """A schedule that is not an all-reduce; the message explains why."""


def is_file(algorithm: str) -> bool:
    """Return whether the name of an algorithm is that of a file."""
    return algorithm.endswith(SUFFIXES)


def use(algorithm: str) -> None:
    """Make an algorithm known in this process, if its name is that of a file.

    Raises:
        ScheduleError: If the file cannot be read, or has no schedule.
    """
    if not is_file(algorithm) or algorithm in FROM_FILES:
        return
    path = Path(algorithm)
    schedule: ScheduleOf
    try:
        schedule = read_msccl(path) if path.suffix == ".xml" else functions(path, ("schedule",))["schedule"]
    except (PythonFileError, MscclError) as error:
        raise ScheduleError(str(error)) from None
    FROM_FILES[algorithm] = FileAllReduce(algorithm, schedule)


def problem_of(algorithm: str, workers: int) -> str:
    """Return why the algorithm of a file does not sum the vectors of all workers; empty if it does.

    If the file can be read, this process knows the algorithm from now on; see use().
    """
    try:
        use(algorithm)
    except ScheduleError as error:
        return str(error)
    found = FROM_FILES[algorithm]
    assert isinstance(found, FileAllReduce)
    return found.problem(workers)


def _wrong_sum(schedules: Sequence[Schedule], workers: int, elements: int, rank: int, element: int) -> str:
    where = f"rank {rank} of {workers} ends with a wrong element {element} of {elements}"
    if workers > _FEW:
        return where
    # In base 256, the sum of different powers has a digit for each worker: how often its value was added.
    digits = np.array([[256**worker] * elements for worker in range(workers)], object)
    total = int(carry_out(schedules, digits)[rank][element])
    times = list(total.to_bytes(max(workers, (total.bit_length() + 7) // 8), "little"))
    missing = [str(worker) for worker, count in enumerate(times) if count == 0]
    several = [f"{worker} ({count} times)" for worker, count in enumerate(times) if count > 1]
    parts = [f"without the value of rank {', '.join(missing)}"] * bool(missing)
    parts += [f"with that of rank {', '.join(several)}"] * bool(several)
    return f"{where}: {' and '.join(parts)}"


# -- what follows from a schedule ----------------------------------------------------------------------------------


class FileAllReduce(AllReduce):
    """An all-reduce whose schedule comes from a file, and everything else from the schedule.

    Args:
        name: The name of the file.
        schedule: The function that returns a rank's schedule.
    """

    def __init__(self, name: str, schedule: ScheduleOf) -> None:
        self.name = name
        self._schedule = schedule
        self._problems: dict[int, str] = {}  # by number of workers

    def schedule(self, rank: int, workers: int, size: int, chunk: int, shards: int | None) -> Schedule:  # noqa: ARG002
        """Return the schedule that the file makes; see AllReduce.schedule().

        Raises:
            ScheduleError: If that is not a schedule, or names a rank that does not exist.
        """
        if workers == 1:
            return Schedule({}, {})
        found = self._schedule(rank, workers, size, chunk)
        if not isinstance(found, Schedule):
            raise ScheduleError(
                f"schedule() returns {type(found).__name__}, must return a Schedule, such as "
                "Plan().schedule()"
            )
        for peer in {*found.sends, *found.receives}:
            if peer not in range(workers) or peer == rank:
                raise ScheduleError(
                    f"rank {rank} of {workers} sends to or receives from rank {peer}, which is "
                    f"{'itself' if peer == rank else 'none'}"
                )
        return Schedule(_listed(found.sends), _listed(found.receives))

    def schedules(self, workers: int, size: int, chunk: int) -> list[Schedule]:
        """Return the schedules of all ranks."""
        return [self.schedule(rank, workers, size, chunk, None) for rank in range(workers)]

    def problem(self, workers: int) -> str:
        """Return why the schedules are not an all-reduce; empty if they are.

        All ranks' schedules are carried out with random integers. A sum that is right by chance has a probability of
        2^-64. That nothing depends on the order in which packets arrive is checked up to _MOST_EVENTS.
        """
        if workers not in self._problems:
            try:
                why = self._problem(workers)
                self._problems[workers] = why and f"{self.name}: {why}"
            except ScheduleError as error:
                self._problems[workers] = f"{self.name}: {error}"
            except (MscclError, PythonFileError) as error:  # which name the file
                self._problems[workers] = str(error)
        return self._problems[workers]

    def _problem(self, workers: int) -> str:
        elements = 2 * workers + 3  # parts of different sizes
        schedules = self.schedules(workers, elements, CHUNK)
        if race := _race(schedules, elements):
            return race
        inputs = np.random.default_rng(1).integers(0, 2**64, (workers, elements), np.uint64)
        right = inputs.sum(axis=0, dtype=np.uint64)
        for rank, output in enumerate(carry_out(schedules, inputs)):
            if wrong := np.flatnonzero(output != right).tolist():
                return _wrong_sum(schedules, workers, elements, rank, wrong[0])
        outputs = carry_out(
            schedules, np.random.default_rng(1).standard_normal((workers, elements), np.float32)
        )
        for rank, output in enumerate(outputs):
            if different := np.flatnonzero(output != outputs[0]).tolist():
                return (
                    f"ranks 0 and {rank} add up element {different[0]} of {elements} in different orders, so that "
                    "their results differ in the last bits; let one rank finish the sum, and send it to the others"
                )
        return ""

    def float32_sum(self, inputs: Sequence[Vector], shards: int | None = None) -> Vector:  # noqa: ARG002
        """Return the sum, added up as the schedule has it; see AllReduce.float32_sum()."""
        schedules = self.schedules(len(inputs), len(inputs[0]), CHUNK)
        found: Vector = carry_out(schedules, np.array(inputs))[0]
        return found

    def seconds(self, size: int, hosts: Hosts) -> float:
        """Return the time at which the last piece arrives: each host sends, and receives, one piece at a time.

        Windows are not considered.
        """
        elements = max(1, size // np.dtype(np.float32).itemsize)
        chunk = max(CHUNK, elements // (_PIECES * hosts.workers))
        return _last_arrival(self.schedules(hosts.workers, elements, chunk), hosts)

    def formula(self, workers: int) -> str:  # noqa: ARG002
        """Return that there is none."""
        return "(from the schedule, piece by piece)"

    def longest_message(self, size: int, workers: int, shards: int | None) -> int:  # noqa: ARG002
        """Return the most bytes that a rank sends to another one before it has to wait for something."""
        elements = max(1, size // np.dtype(np.float32).itemsize)
        longest = 0
        for schedule in self.schedules(workers, elements, elements):
            for pieces in schedule.sends.values():
                waits, at_once = None, 0
                for piece in pieces:
                    at_once = (
                        piece.stop - piece.start + (at_once if (piece.after, piece.needed) == waits else 0)
                    )
                    waits = piece.after, piece.needed
                    longest = max(longest, at_once)
        return longest * np.dtype(np.float32).itemsize


def _listed(streams: Mapping[int, Iterable[Piece]]) -> dict[int, list[Piece]]:
    return {peer: list(pieces) for peer, pieces in streams.items()}


def carry_out(schedules: Sequence[Schedule], inputs: NDArray[Any]) -> NDArray[Any]:
    """Carry out all ranks' schedules in this process.

    Args:
        schedules: The schedules, by rank.
        inputs: The vectors of all ranks [workers, elements], of any type that can be added.

    Returns:
        The results of all ranks [workers, elements].

    Raises:
        ScheduleError: If ranks wait for one another, or two ends of a stream disagree.
    """
    results = inputs.copy()
    under_way: defaultdict[tuple[int, int], deque[NDArray[Any]]] = defaultdict(deque)
    for sends, rank, peer, piece in _moves(schedules):
        if sends:
            under_way[rank, peer].append(results[rank, piece.start : piece.stop].copy())
            continue
        values, part = under_way[peer, rank].popleft(), results[rank, piece.start : piece.stop]
        part[:] = part + values if piece.reduce else values
    return results


def _moves(schedules: Sequence[Schedule]) -> Iterator[tuple[bool, int, int, Piece]]:
    """Yield what ranks do, in a possible order: whether a rank sends or processes a piece, it, its peer, and the piece.

    Raises:
        ScheduleError: See carry_out().
    """
    ranks = _progress(schedules)
    streams: defaultdict[tuple[int, int], deque[Piece]] = defaultdict(deque)
    moved = True
    while moved:
        moved = False
        for rank, progress in enumerate(ranks):
            for peer in progress.awaiting:
                while streams[peer, rank] and (piece := progress.receiving(peer)) is not None:
                    _require_equal(streams[peer, rank].popleft(), piece, peer, rank)
                    progress.received(peer)
                    moved = True
                    yield False, rank, peer, piece
            for peer, piece in _sendable(progress):
                streams[rank, peer].append(piece)
                moved = True
                yield True, rank, peer, piece
    _require_finished(ranks, streams)


def _race(schedules: Sequence[Schedule], elements: int) -> str:
    """Return where the result depends on which of two things happens first; empty if nowhere, or if it takes too long.

    A rank's send reads elements, and a piece that it processes writes them. The order of two of these on one element is
    certain if one comes before the other whatever the times: on a stream, since a piece waits for another, or since it
    was sent first. An int has a bit for each of the events before an event.
    """
    before: list[int] = []
    done: list[str] = []  # what each event is
    ends: dict[
        tuple[int, int], int
    ] = {}  # the last event of each end of a stream: (sender, receiver), -1 if it sends
    processed: defaultdict[tuple[int, int], list[int]] = defaultdict(list)  # events, by rank and peer
    sent: defaultdict[tuple[int, int], deque[int]] = defaultdict(deque)
    written: list[dict[int, int]] = [{} for _ in schedules]  # the last event that wrote an element, by rank
    read: list[defaultdict[int, list[int]]] = [
        defaultdict(list) for _ in schedules
    ]  # events that read it since then
    for number, (sends, rank, peer, piece) in enumerate(_moves(schedules)):
        if number == _MOST_EVENTS:
            return ""
        causes = [processed[rank, piece.after][piece.needed - 1]] if piece.after >= 0 and piece.needed else []
        if not sends:
            causes.append(sent[peer, rank].popleft())
        end = (rank, peer) if sends else (-1 - rank, peer)
        if end in ends:
            causes.append(ends[end])
        earlier = 0
        for cause in causes:
            earlier |= before[cause] | 1 << cause
        before.append(earlier)
        what = f"to rank {peer}" if sends else f"from rank {peer}"
        done.append(what)
        ends[end] = number
        if sends:
            sent[rank, peer].append(number)
        else:
            processed[rank, peer].append(number)
        for element in range(piece.start, piece.stop):
            others = [] if sends else read[rank].pop(element, [])
            if element in written[rank]:
                others = [*others, written[rank][element]]
            if unordered := [other for other in others if not earlier >> other & 1]:
                return (
                    f"rank {rank} uses element {element} of {elements} twice in an order that is not certain: in a "
                    f"piece {done[unordered[0]]}, and in one {what}. The order changes the result, if only its last "
                    "bits. Let one of them wait for the other (after)"
                )
            if sends:
                read[rank][element].append(number)
            else:
                written[rank][element] = number
    return ""


def _progress(schedules: Sequence[Schedule]) -> list[ScheduleProgress]:
    for rank, schedule in enumerate(schedules):
        for pieces in (*schedule.sends.values(), *schedule.receives.values()):
            for piece in pieces:
                if piece.after >= 0 and piece.after not in schedule.receives:
                    raise ScheduleError(
                        f"rank {rank} waits for a piece from rank {piece.after}, and receives none from it"
                    )
    return [ScheduleProgress(schedule) for schedule in schedules]


def _sendable(progress: ScheduleProgress) -> Iterator[tuple[int, Piece]]:
    for peer in progress.sending:
        while (piece := progress.next_send(peer)) is not None:
            yield peer, piece


def _require_equal(sent: Piece, received: Piece, sender: int, receiver: int) -> None:
    if (sent.start, sent.stop) != (received.start, received.stop):
        raise ScheduleError(
            f"rank {sender} sends elements {sent.start} to {sent.stop - 1} to rank {receiver}, which expects elements "
            f"{received.start} to {received.stop - 1}"
        )


def _require_finished(
    ranks: Sequence[ScheduleProgress], streams: Mapping[tuple[int, int], deque[Any]]
) -> None:
    for (sender, receiver), left in streams.items():
        if left and sender not in ranks[receiver].awaiting:
            raise ScheduleError(
                f"rank {sender} sends {len(left)} more pieces to rank {receiver} than it receives"
            )
    stuck = [
        f"rank {rank} waits for rank {progress.awaiting[0]}"
        for rank, progress in enumerate(ranks)
        if progress.awaiting
    ]
    if stuck:
        raise ScheduleError(f"ranks wait for one another without end: {', '.join(stuck[:4])}")


def _last_arrival(schedules: Sequence[Schedule], hosts: Hosts) -> float:
    """Return the seconds until all pieces have arrived."""
    ranks = _progress(schedules)
    sends_from, receives_from = [0.0] * len(ranks), [0.0] * len(ranks)  # when each host is free
    arrivals: list[tuple[float, int, int, int]] = []  # time, number, sender, receiver
    arrived: defaultdict[tuple[int, int], int] = defaultdict(int)
    number, last = 0, 0.0

    def send(rank: int, now: float) -> None:
        nonlocal number
        for peer, piece in _sendable(ranks[rank]):
            seconds = (piece.stop - piece.start) * np.dtype(np.float32).itemsize / hosts.bandwidth
            begin = max(now, sends_from[rank])
            sends_from[rank] = begin + seconds
            receives_from[peer] = max(begin + hosts.latency(rank, peer), receives_from[peer]) + seconds
            number += 1
            heappush(arrivals, (receives_from[peer], number, rank, peer))

    for rank in range(len(ranks)):
        send(rank, 0.0)
    while arrivals:
        last, _, sender, receiver = heappop(arrivals)
        arrived[sender, receiver] += 1
        progress, moves = ranks[receiver], True
        while moves:
            moves = False
            for peer in progress.awaiting:
                while arrived[peer, receiver] and progress.receiving(peer) is not None:
                    arrived[peer, receiver] -= 1
                    progress.received(peer)
                    moves = True
        send(receiver, last)
    return last
