"""Workers and model switches over links that lose, duplicate and reorder, in virtual time, by seed."""

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fanin.workers.engines.engine import Engine, State
from fanin.workers.engines.reference import NumpyEngine
from fanin.workers.lease import Lease
from fanin.workers.protocol import Worker
from fanin.workers.recovery import Recovery
from fanin.workers.tensor import Partition
from tests.workers.model_switch import PARENT, ModelSwitch

LEASE = 7
FIRST_SLOT = 3
RECOVERY = Recovery(initial_rto=0.02, min_rto=0.004, max_rto=0.2, give_up=60.0)


@dataclass(frozen=True)
class Faults:
    """The faults of each copy on each link; a delay drawn between the two reorders. Seconds."""

    loss: float = 0.0
    duplication: float = 0.0
    delay: tuple[float, float] = (0.0005, 0.001)
    straggler: float = 0.0  # a copy is this probably 50 times later
    marking: float = 0.0  # a result comes to a worker with a congestion mark, this probably


class Network:
    """racks: number of workers under each leaf; one rack is a single switch, the root."""

    def __init__(
        self,
        racks: Sequence[int],
        *,
        window: int,
        values: int = 64,
        faults: Faults = Faults(),
        recovery: Recovery = RECOVERY,
        seed: int = 0,
        non_finite: Literal["raise", "propagate"] = "raise",
        switch: type[ModelSwitch] = ModelSwitch,
        engine: Callable[[State], Engine] = NumpyEngine,
        growth: int | None = None,
    ) -> None:
        self.faults = faults
        self.random = random.Random(seed)
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        count = sum(racks)
        self.workers = [
            Worker(
                Lease(
                    id=LEASE,
                    rank=rank,
                    workers=count,
                    window=window,
                    first_slot=FIRST_SLOT,
                    values=values,
                ),
                recovery,
                non_finite=non_finite,
                engine=engine,
                growth=growth,
            )
            for rank in range(count)
        ]
        slots = range(FIRST_SLOT, FIRST_SLOT + window)
        tree = len(racks) > 1
        self.leaves = [switch(children=size, root=not tree, lease=LEASE, slots=slots) for size in racks]
        self.spine = switch(children=len(racks), root=True, lease=LEASE, slots=slots) if tree else None
        self.places = [(leaf, port) for leaf, size in enumerate(racks) for port in range(size)]
        self.inboxes: list[list[bytes]] = [[] for _ in self.workers]
        self.woken = [False] * count
        self.deadlines: list[float | None] = [None] * count
        self.sent: list[bytes] = []

    # -- events

    def at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self.events, (time, next(self.order), action))

    def link(self, deliver: Callable[[], None]) -> None:
        """Carry one packet: none, one or two copies arrive."""
        faults = self.faults
        copies = 1 + (self.random.random() < faults.duplication)
        for _ in range(copies):
            if self.random.random() < faults.loss:
                continue
            delay = self.random.uniform(*faults.delay)
            if self.random.random() < faults.straggler:
                delay *= 50
            self.at(self.now + delay, deliver)

    def to_leaf(self, leaf: int, port: int, datagram: bytes) -> None:
        for out, packet in self.leaves[leaf].receive(port, datagram):
            if out == PARENT:
                self.link(lambda packet=packet: self.to_spine(leaf, packet))
            else:
                rank = self.places.index((leaf, out))
                self.link(lambda rank=rank, packet=packet: self.to_worker(rank, packet))

    def to_spine(self, leaf: int, datagram: bytes) -> None:
        assert self.spine
        for out, packet in self.spine.receive(leaf, datagram):
            self.link(lambda out=out, packet=packet: self.to_leaf(out, PARENT, packet))

    def to_worker(self, rank: int, datagram: bytes) -> None:
        """Arrivals wait for the worker's turn, so that it sees batches of several."""
        self.inboxes[rank].append(datagram)
        if not self.woken[rank]:
            self.woken[rank] = True
            self.at(self.now + self.random.choice((0.0, 0.0002)), lambda: self.wake(rank))

    def wake(self, rank: int) -> None:
        self.woken[rank] = False
        inbox, self.inboxes[rank] = self.inboxes[rank], []
        for _, group in itertools.groupby(inbox, len):
            batch = list(group)
            if marking := self.faults.marking:
                self.workers[rank].count_marks(sum(self.random.random() < marking for _ in batch))
            self.workers[rank].receive(
                np.frombuffer(b"".join(batch), np.uint8).reshape(len(batch), -1), self.now
            )
        self.send(rank)

    def send(self, rank: int) -> None:
        worker = self.workers[rank]
        leaf, port = self.places[rank]
        for batch in worker.datagrams_to_send(self.now):
            for row in batch:
                datagram = row.tobytes()
                self.sent.append(datagram)
                self.link(lambda datagram=datagram: self.to_leaf(leaf, port, datagram))
        deadline = worker.deadline()
        if deadline is not None and deadline != self.deadlines[rank]:
            self.at(deadline, lambda: self.timer(rank, deadline))
        self.deadlines[rank] = deadline

    def timer(self, rank: int, deadline: float) -> None:
        if deadline == self.deadlines[rank]:
            self.deadlines[rank] = None
            self.send(rank)

    def run(self, until: Callable[[], bool]) -> None:
        while not until():
            assert self.events, "nothing will happen any more and the all-reduce has not finished"
            self.now, _, action = heapq.heappop(self.events)
            action()

    # -- what tests call

    def all_reduce(
        self,
        inputs: Sequence[NDArray[np.float32]],
        skew: float = 0.0,
        calls: Sequence[str] | None = None,
        partitions: Sequence[Partition] | None = None,
    ) -> list[NDArray[np.float32]]:
        """Every worker begins within `skew` seconds; the results, by rank.

        calls: what each says that it is for. partitions: what each owns; a gather takes place in its input.
        """
        begun = []

        def begin(rank: int) -> None:
            partition = partitions[rank] if partitions else None
            out = inputs[rank] if partition and partition.operation == "gather" else None
            call = calls[rank] if calls else ""
            self.workers[rank].start(inputs[rank], self.now, out, call, partition)
            begun.append(rank)
            self.send(rank)

        for rank in range(len(self.workers)):
            self.at(self.now + self.random.uniform(0, skew), lambda rank=rank: begin(rank))
        self.run(lambda: len(begun) == len(self.workers) and all(worker.finished for worker in self.workers))
        return [worker.finish() for worker in self.workers]


class ExactSums:
    """The right sums of a lease's all-reduces, bit for bit: block floating point by the book, in Python integers."""

    def __init__(self, values: int, window: int) -> None:
        self._values = values
        self._limit = 2**15 if values in (128, 512) else 2**31
        self._window = window
        self._last: dict[int, list[int]] = {}  # exponents, by the length of a vector

    def next(self, inputs: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Return the sum of the next all-reduce."""
        count, length = len(inputs), inputs[0].size
        padded = [
            np.pad(x.reshape(-1), (0, -length % self._values)).reshape(-1, self._values) for x in inputs
        ]
        blocks = len(padded[0])
        result = np.empty((blocks, self._values), np.float32)
        largest = [max(_exponent(rows[block]) for rows in padded) for block in range(blocks)]
        last = self._last.get(length, largest) if blocks <= self._window else largest
        self._last[length] = largest
        for block in range(blocks):
            if not all(np.isfinite(rows[block]).all() for rows in padded):
                result[block] = np.nan
                continue
            expected = min(last[block] + 1, 127)
            known = last is not largest and largest[block] <= expected <= largest[block] + 2
            factor = (self._limit - 1) / count * 2.0 ** -(expected if known else largest[block])
            total = [
                sum(round(float(x) * factor) for x in column)
                for column in zip(*(p[block] for p in padded), strict=True)
            ]
            assert max(map(abs, total)) < self._limit
            result[block] = [s * (1 / factor) for s in total]
        return result.reshape(-1)[:length].reshape(inputs[0].shape)


def exact_sum(inputs: Sequence[NDArray[np.float32]], values: int) -> NDArray[np.float32]:
    """Return what the first all-reduce must give."""
    return ExactSums(values, window=0).next(inputs)


def _exponent(block: NDArray[np.float32]) -> int:
    peak = float(np.abs(block).max())
    return max(int(np.frexp(peak)[1]), -128) if 0 < peak < np.inf else -128


def memory(worker: Worker) -> tuple[Any, ...]:
    """All that a worker knows of its packets and of what to expect, to the bit."""
    state, timers = worker._state, worker._state.timers
    gate = state.gate
    structs = (state.progress, state.totals, timers, timers.rtt, gate, gate.window)
    arrays = (state.awaited, state.kept_in, *state.packets, gate.held[: gate.held_count])
    by_place = [value.tobytes() for value in vars(timers).values() if isinstance(value, np.ndarray)]
    tensors = [
        (
            tensor.elements,
            None if tensor.expected is None else tensor.expected.tobytes(),
            tensor.delayed,
            tensor.signature,
        )
        for tensor in (worker._tensor, *worker._tensors.values())
        if tensor
    ]
    return (*map(bytes, structs), *(array.tobytes() for array in arrays), *by_place, tensors)
