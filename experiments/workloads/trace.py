"""Traces of trainings: what each rank computed, which collectives it called, and what had to end before.

Readers of file formats make a RankTrace of each rank (kineto.py, chakra.py, nccl_log.py). `joined` puts them together
and checks that ranks call the same collectives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Literal

from fanin.native.text import printable
from fanin.workers.collective import Operation

Processor = Literal["cpu", "gpu"]

_MOST_RANKS = 4096


class TraceError(ValueError):
    """A trace that cannot be read or replayed; the message names the file, and the line or record and its field."""


@dataclass(frozen=True, slots=True)
class TraceCall:
    """A call of a collective.

    Attributes:
        operation: The operation; a send is a broadcast of two ranks.
        ranks: The ranks that take part. The first one is the sender of a broadcast of two.
        size: Bytes of a rank's whole array, of which an all-gather contributes a part.
        send: Whether it sends from one rank to another.
    """

    operation: Operation
    ranks: tuple[int, ...]
    size: int
    send: bool = False

    @property
    def text(self) -> str:
        """Return the call as messages name it."""
        if self.send:
            return f"a send of {self.size:,} bytes from rank {self.ranks[0]} to rank {self.ranks[1]}"
        return f"{self.operation} of {self.size:,} bytes on {len(self.ranks)} ranks"


@dataclass(frozen=True, slots=True)
class Node:
    """Work of a rank: computing, or a call.

    Attributes:
        name: Its name in the trace.
        after: Numbers of the rank's nodes that must end before it begins. All of them are smaller than its own.
        step: Number of its training step.
        seconds: Time of computing.
        flop: Floating-point operations, of a trace without times.
        processor: What computes it, one node at a time.
        call: The collective that it calls; None for computing.
    """

    name: str
    after: tuple[int, ...] = ()
    step: int = 0
    seconds: float = 0.0
    flop: int = 0
    processor: Processor = "gpu"
    call: TraceCall | None = None


@dataclass(frozen=True, slots=True)
class RankTrace:
    """The trace of one rank.

    Attributes:
        file: The file that has it.
        rank: Number of the rank.
        nodes: Its nodes, in an order in which they can be done.
        world: Number of ranks of the training; None if the file does not know.
        step_seconds: Measured time of each step; empty if the file has none.
        notes: What was assumed in reading the file.
    """

    file: str
    rank: int
    nodes: Sequence[Node]
    world: int | None = None
    step_seconds: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """The trace of all ranks.

    Attributes:
        ranks: The nodes of each rank.
        step_seconds: Measured time of each step, the mean over the ranks with a file; empty if there is none.
        notes: What was assumed in reading the files.
    """

    ranks: Sequence[Sequence[Node]]
    step_seconds: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    _calls: Mapping[tuple[tuple[int, ...], bool], Sequence[TraceCall]] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Return the number of training steps."""
        return 1 + max(node.step for nodes in self.ranks for node in nodes)

    @property
    def groups(self) -> Mapping[tuple[tuple[int, ...], bool], Sequence[TraceCall]]:
        """Return the calls of each group in order, by its ranks and by whether these are sends."""
        return self._calls

    @property
    def largest(self) -> int:
        """Return the bytes of the largest array of a call."""
        return max((call.size for calls in self._calls.values() for call in calls), default=4)

    def counts(self) -> dict[Operation | Literal["send"], tuple[int, int]]:
        """Return the number of calls and the bytes of their arrays, by operation."""
        found: dict[Operation | Literal["send"], tuple[int, int]] = {}
        for (_, send), calls in self._calls.items():
            for call in calls:
                name: Operation | Literal["send"] = "send" if send else call.operation
                number, size = found.get(name, (0, 0))
                found[name] = number + 1, size + call.size
        return found


def in_order(file: str, nodes: Mapping[int, Node]) -> list[Node]:
    """Return nodes in an order in which they can be done, with `after` as positions in this order.

    Among nodes that are ready, the one with the smallest number comes first.

    Args:
        file: The file, for messages.
        nodes: The nodes by their numbers, which `after` refers to.

    Raises:
        TraceError: If nodes wait for each other in a circle, or for one that is not there.
    """
    waiting = {number: len(set(node.after)) for number, node in nodes.items()}
    followers = defaultdict[int, list[int]](list)
    for number, node in nodes.items():
        for before in set(node.after):
            if before not in nodes:
                name = printable(node.name)
                raise TraceError(
                    f"{file}: node {number} ({name}): depends on node {before}, which is missing"
                )
            followers[before].append(number)
    ready = [number for number, count in waiting.items() if not count]
    heapify(ready)
    place: dict[int, int] = {}
    order: list[Node] = []
    while ready:
        number = heappop(ready)
        place[number] = len(order)
        node = nodes[number]
        order.append(replace(node, after=tuple(sorted(place[before] for before in set(node.after)))))
        for other in followers[number]:
            waiting[other] -= 1
            if not waiting[other]:
                heappush(ready, other)
    if len(order) < len(nodes):
        raise TraceError(f"{file}: nodes depend on each other in a circle: {_circle(nodes, place)}")
    return order


def _circle(nodes: Mapping[int, Node], done: Mapping[int, int]) -> str:
    """Return the nodes of a circle as text."""
    number = next(number for number in nodes if number not in done)
    seen: list[int] = []
    while number not in seen:
        seen.append(number)
        number = next(before for before in nodes[number].after if before not in done)
    circle = seen[seen.index(number) :]
    shown = [str(one) for one in circle[:8]] + (["…"] if len(circle) > 8 else [])
    return " after ".join([*shown, str(number)])


def joined(traces: Iterable[RankTrace]) -> Trace:
    """Return the trace of all ranks.

    Ranks without a file are assumed to do what the first rank does, if every call is of all ranks.

    Raises:
        TraceError: If ranks have several files, or call different collectives.
    """
    files: dict[int, RankTrace] = {}
    for one in traces:
        if one.rank in files:
            raise TraceError(
                f"{one.file}: has rank {one.rank}, as {files[one.rank].file} has; leave out one of them"
            )
        files[one.rank] = one
    if not files:
        raise TraceError("no rank in the files; give at least one trace")
    first = files[min(files)]
    if not any(node.call or node.seconds or node.flop for one in files.values() for node in one.nodes):
        raise TraceError(
            f"{first.file}: has neither computing nor collectives, so there is nothing to replay"
        )
    worlds = {one.world: one.file for one in files.values() if one.world is not None}
    if len(worlds) > 1:
        (one_world, file), (other_world, other), *_ = worlds.items()
        raise TraceError(
            f"{other}: is of {other_world} ranks, but {file} of {one_world}; give traces of one run"
        )
    world = max([*(one for one in worlds if one is not None), 1 + max(files)])
    if world > _MOST_RANKS:
        raise TraceError(f"{first.file}: has {world} ranks, more than the {_MOST_RANKS} that can be replayed")
    notes = dict.fromkeys(note for one in files.values() for note in one.notes)
    if missing := [rank for rank in range(world) if rank not in files]:
        _check_alike(first, world, missing)
        others = f"{len(missing)} of {world} ranks have no file"
        notes |= {f"{others}: they are assumed to do what rank {first.rank} does": None}
    lengths = {len(one.step_seconds) for one in files.values()}
    if len(lengths) > 1:
        raise TraceError(
            f"{first.file}: ranks have different numbers of steps; give traces of the same steps"
        )
    measured = [one.step_seconds for one in files.values()]
    ranks = [files.get(rank, first).nodes for rank in range(world)]
    names = [files.get(rank, first).file for rank in range(world)]
    return Trace(
        ranks,
        tuple(sum(of_all) / len(of_all) for of_all in zip(*measured, strict=True)),
        tuple(notes),
        _calls(ranks, names),
    )


def _check_alike(first: RankTrace, world: int, missing: Sequence[int]) -> None:
    everyone = tuple(range(world))
    for node in first.nodes:
        if node.call is not None and tuple(sorted(node.call.ranks)) != everyone:
            raise TraceError(
                f"{first.file}: {printable(node.name)}: is {node.call.text}, so ranks differ; give the file of each of "
                f"the {world} ranks (rank {missing[0]} is missing)"
            )


def _calls(
    ranks: Sequence[Sequence[Node]], files: Sequence[str]
) -> dict[tuple[tuple[int, ...], bool], list[TraceCall]]:
    """Return the calls of each group of two ranks or more, in order, and check that all of its ranks agree."""
    found: dict[tuple[tuple[int, ...], bool], dict[int, list[Node]]] = {}
    for rank, nodes in enumerate(ranks):
        for node in nodes:
            if node.call is not None and len(node.call.ranks) > 1:
                key = node.call.ranks, node.call.send
                found.setdefault(key, {}).setdefault(rank, []).append(node)
    calls = {}
    for (members, send), by_rank in found.items():
        strangers = [rank for rank in by_rank if rank not in members]
        if strangers or max(members) >= len(ranks):
            rank = next(iter(by_rank))
            where = f"{files[rank]}: {printable(by_rank[rank][0].name)}"
            raise TraceError(f"{where}: is a call of ranks {list(members)}, but there are {len(ranks)} ranks")
        one = members[0]
        own = by_rank.get(one, [])
        for other in members[1:]:
            theirs = by_rank.get(other, [])
            for number, (mine, their) in enumerate(zip(own, theirs, strict=False), start=1):
                if mine.call != their.call:
                    assert mine.call is not None
                    assert their.call is not None
                    raise TraceError(
                        f"{files[other]}: {printable(their.name)}: rank {other} calls {their.call.text} as call "
                        f"{number} of this group, but rank {one} {mine.call.text} (in {files[one]})"
                    )
            if len(own) != len(theirs):
                raise TraceError(
                    f"{files[other]}: rank {other} makes {len(theirs)} calls of the group {_short(members)}, but "
                    f"rank {one} {len(own)} ({files[one]}); give traces of the same steps"
                )
        calls[members, send] = [node.call for node in own if node.call is not None]
    return calls


def _short(members: Sequence[int]) -> str:
    return str(list(members)) if len(members) <= 8 else f"of {len(members)} ranks"
