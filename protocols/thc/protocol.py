"""THC (Li et al., NSDI 2024): README.md specifies it, and what differs from the paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.controller import plan
from fanin.controller.errors import ControllerError
from fanin.controller.network import Network
from fanin.controller.plan import Plan, TableEntry
from fanin.controller.tree import Tree
from fanin.workers import collective, wire
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from fanin.workers.slotted import Chunks, Datagrams, SlottedWorker, Vector

ELEMENTS = 512  # in a packet: ELEMENTS in program.p4
INDICES = 16  # entries of the table
MOST_WORKERS = 255 // (INDICES - 1)  # sums have eight bits, and the values of the table must differ
GRANULARITY = 30  # largest value of the table, unless sums would not fit
CLIPPED = 1 / 32  # share of normally distributed numbers outside of what is sent
_UPDATE, _RESULT = 0x00, 0x10
_FIELDS: list[tuple[Any, ...]] = [
    ("kind", "u1"),
    ("lease", "u1"),
    ("chunk", ">u4"),
    ("pool_index", ">u2"),
]
_NORM = np.dtype([*_FIELDS, ("norm", ">f4")])
_INDEXED = np.dtype([*_FIELDS, ("planes", "u1", (4, ELEMENTS // 8))])
_SUMMED = np.dtype([*_FIELDS, ("planes", "u1", (8, ELEMENTS // 8))])

Floats = NDArray[np.float64]


# -- values ----------------------------------------------------------------------------------------------------------


def granularity(workers: int) -> int:
    """Return the largest value of the table for so many workers, whose sums have eight bits."""
    return min(GRANULARITY, 255 // workers)


@cache
def table(largest: int) -> tuple[int, ...]:
    """Return the INDICES values from 0 to `largest` with the least error for normally distributed numbers.

    A number between two neighbours a and b is rounded up or down at random, so that its mean is right. The squared
    error is then (b - x)(x - a) on average.
    """
    limit = _limit()
    x = np.linspace(0, largest, 200 * largest + 1)
    weight = np.exp(-((x / largest * 2 * limit - limit) ** 2) / 2)
    # The least error of the first k + 1 values, of which the last is b, and the value before it.
    least = np.full((INDICES, largest + 1), math.inf)
    before = np.zeros((INDICES, largest + 1), np.int64)
    least[0, 0] = 0.0
    for b in range(1, largest + 1):
        costs = [float((weight * (b - x) * (x - a))[200 * a : 200 * b + 1].sum()) for a in range(b)]
        for k in range(1, INDICES):
            errors = least[k - 1, :b] + costs
            before[k, b], least[k, b] = errors.argmin(), errors.min()
    found = [largest]
    for k in range(INDICES - 1, 0, -1):
        found.append(int(before[k, found[-1]]))
    return tuple(reversed(found))


@cache
def _limit() -> float:
    """Return t such that a normally distributed number is within -t and t, except for a share of CLIPPED."""
    return NormalDist().inv_cdf(1 - CLIPPED / 2)


@cache
def _signs(elements: int) -> tuple[tuple[slice, Floats], ...]:
    """Return the parts of a vector of ELEMENTS or a multiple that are transformed, one after another, and their signs.

    A part has a power of two of elements. Two that overlap, and the first again, spread every element over all.
    """
    part = 1 << (elements.bit_length() - 1)
    draw = np.random.default_rng(elements)
    parts = [slice(0, part)] if part == elements else [slice(0, part), slice(elements - part, elements)] * 2
    return tuple((one, draw.choice([-1.0, 1.0], part)) for one in parts[:3])


def _hadamard(x: Floats) -> Floats:
    """Return the orthogonal Hadamard transform of a power of two of elements, which is its own inverse."""
    half = 1
    while half < len(x):
        pairs = x.reshape(-1, 2, half)
        x = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        half *= 2
    return x / math.sqrt(len(x))


def rotated(x: Vector | Floats) -> Floats:
    """Return a vector padded to whole packets and rotated at random, such that its elements are about normal."""
    spread = np.zeros(-(-len(x) // ELEMENTS) * ELEMENTS)
    spread[: len(x)] = x
    for part, signs in _signs(len(spread)):
        spread[part] = _hadamard(spread[part] * signs)
    return spread


def _unrotated(spread: Floats, elements: int) -> Floats:
    """Return the vector [elements] whose rotated() is given."""
    for part, signs in reversed(_signs(len(spread))):
        spread[part] = _hadamard(spread[part]) * signs
    return spread[:elements]


class Codec:
    """The encoding of one worker's vectors, with what it has left out of earlier ones.

    Args:
        rank: The worker's number.
        workers: Number of workers.
    """

    def __init__(self, rank: int, workers: int) -> None:
        self._rank, self._workers = rank, workers
        self._levels = np.array(table(granularity(workers)))
        self._left: dict[int, Floats] = {}  # what was not sent, by length of the vector
        self._vector: Floats = np.zeros(0)
        self._spread: Floats = np.zeros(0)

    def begin(self, x: Vector) -> np.float32:
        """Take a vector [elements], and return the norm that stands for the range of its rotated elements.

        Raises:
            ValueError: If a value is not finite.
        """
        if not np.isfinite(x).all():
            raise ValueError(
                "infinities and NaN cannot be rotated: clip or replace them before the all-reduce"
            )
        self._vector = x.astype(np.float64) + self._left.get(len(x), 0.0)
        self._spread = rotated(self._vector)
        return np.float32(np.linalg.norm(self._spread))

    def indices(self, norm: np.float32) -> NDArray[np.uint8]:
        """Return the table's indices of the rotated elements [padded], rounded at random.

        Args:
            norm: The largest norm of all workers.
        """
        levels, limit = self._levels, _range(norm, len(self._spread))
        at = np.clip(self._spread / (limit or 1.0), -1.0, 1.0)
        at = (at + 1) / 2 * levels[-1]
        low = np.clip(np.searchsorted(levels, at, side="right") - 1, 0, INDICES - 2)
        # Drawn from what is sent, so that the same vector is always sent in the same way.
        draw = np.random.default_rng([self._rank, *self._spread[:8].view(np.uint64).tolist()])
        up = draw.random(len(at)) * (levels[low + 1] - levels[low]) < at - levels[low]
        chosen: NDArray[np.uint8] = (low + up).astype(np.uint8)
        sent = decoded(levels[chosen], norm, 1, self._workers, len(self._vector))
        self._left[len(self._vector)] = self._vector - sent
        return chosen


def _range(norm: np.float32, elements: int) -> float:
    """Return the largest magnitude that is sent, for rotated vectors of this norm."""
    return float(norm) * _limit() / math.sqrt(elements)


def decoded(sums: NDArray[Any], norm: np.float32, count: int, workers: int, elements: int) -> Floats:
    """Return the vector [elements] of which `count` workers have sent values of the table with these sums [padded]."""
    limit = _range(norm, len(sums))
    return _unrotated(sums * (2 * limit / granularity(workers)) - count * limit, elements)


# -- the worker ------------------------------------------------------------------------------------------------------


class ThcWorker(SlottedWorker):
    """A worker whose first chunk of an all-reduce is the norm of its vector, and whose others are indices."""

    def __init__(self, lease: Lease, recovery: Recovery) -> None:
        super().__init__(lease, recovery, ELEMENTS)
        self._codec = Codec(lease.rank, lease.workers)
        self._norm = np.float32(0)
        self._planes: NDArray[np.uint8] | None = None  # [chunks, 4, bytes], once the largest norm is known
        self._decoded: tuple[Vector, Vector] | None = (
            None  # where the result goes, flat and as it is returned
        )

    def start(self, x: Vector, now: float, out: Vector | None = None) -> None:
        """Begin an all-reduce; see Participant.

        Raises:
            TypeError: See Participant.
            ValueError: If a value is not finite, or `out` does not fit `x`.
            CollectiveError: If the previous all-reduce has not finished, or the lease has too few chunks left.
        """
        given, flat_out = collective.flat(x, out)
        padded = -(-given.size // ELEMENTS) * ELEMENTS
        super().start(np.zeros(ELEMENTS + padded, np.float32), now)
        self._missing = 0  # should the vector be refused
        self._norm = self._codec.begin(given)
        self._missing, self._planes = self._total, None
        self._decoded = flat_out, out if out is not None else flat_out.reshape(x.shape)

    def load(self, x: Vector) -> None:
        """Do nothing: start() has the vector."""

    def unsent(self) -> Chunks:
        """Return the chunks [m] that were never sent, and whose slots are free: the norm's alone until it is known."""
        new = super().unsent()
        return new[new == self._first] if self._planes is None else new

    def datagrams_to_send(self, now: float) -> Sequence[Datagrams]:
        """Return new packets and retransmissions, the norm's first; see Participant.

        Raises:
            StallError: If nothing new has arrived for too long.
        """
        chunks = self.due(now)
        groups = [chunks[which] for which in (chunks == self._first, chunks > self._first)]
        return [self.sent(self.updates(group, group - self._first)) for group in groups if len(group)]

    def updates(self, chunks: Chunks, rows: Chunks) -> Datagrams:
        """Return the packets of chunks [m]: the norm's, or others."""
        packets = np.zeros(len(chunks), _INDEXED if rows[0] else _NORM)
        packets["kind"], packets["lease"], packets["chunk"] = _UPDATE, self.lease.id, chunks
        packets["pool_index"] = wire.pool_index(chunks, self.lease.first_slot, self.lease.window)
        if rows[0]:
            assert self._planes is not None
            packets["planes"] = self._planes[rows - 1]
        else:
            packets["norm"] = self._norm
        return packets.view(np.uint8).reshape(len(packets), packets.dtype.itemsize)

    def results(self, datagrams: Datagrams) -> tuple[Chunks, Vector]:
        """Return the chunks [m] of results, and the norm or the sums [m, elements]."""
        values = np.zeros((len(datagrams), ELEMENTS), np.float32)
        layout = next((one for one in (_NORM, _SUMMED) if one.itemsize == datagrams.shape[1]), None)
        if layout is None:
            return np.full(len(datagrams), -1), values
        packets = np.ascontiguousarray(datagrams).view(layout).reshape(-1)
        chunks = packets["chunk"].astype(np.int64)
        ours = (packets["kind"] == _RESULT) & (packets["lease"] == self.lease.id)
        ours &= (chunks == self._first) == (layout is _NORM)
        if layout is _NORM:
            values[:, 0] = packets["norm"]
        else:
            bits = np.unpackbits(packets["planes"], axis=2).astype(np.float32)
            values[:] = np.tensordot(bits, 2.0 ** np.arange(8, dtype=np.float32), ((1,), (0,)))
        return np.where(ours, chunks, -1), values

    def receive(self, datagrams: Datagrams, now: float) -> None:
        """Process datagrams that have arrived; see Participant."""
        super().receive(datagrams, now)
        if self._planes is None and self._missing < self._total:
            chosen = self._codec.indices(self._out[0, 0]).reshape(-1, 1, ELEMENTS)
            self._planes = np.packbits(chosen >> np.arange(4, dtype=np.uint8)[:, np.newaxis] & 1, axis=2)

    def finish(self) -> Vector:
        """Return the result; see Participant.

        Raises:
            CollectiveError: If no all-reduce has finished.
        """
        sums = super().finish()
        assert self._decoded is not None
        flat, result = self._decoded
        workers = self.lease.workers
        flat[:] = decoded(sums[ELEMENTS:], sums[0], workers, workers, flat.size)
        return result


participant = ThcWorker


def packet(_values: int) -> tuple[int, int, int]:
    """Return the elements in a packet of a worker, its UDP payload in bytes, and that of sums."""
    return ELEMENTS, _INDEXED.itemsize, _SUMMED.itemsize


# -- the plan --------------------------------------------------------------------------------------------------------


def plan_aggregation(network: Network, tree: Tree) -> Plan:
    """Return fanin's entries; those of children have the table, a mask of the indices for each bit of its values.

    Raises:
        ControllerError: If there are too many workers.
    """
    workers = len(tree.job.hosts)
    if workers > MOST_WORKERS:
        raise ControllerError(
            f"sums of thc have eight bits, enough for {MOST_WORKERS} workers, not {workers}"
        )
    levels = table(granularity(workers))
    masks = {
        f"table_{bit}": sum((value >> bit & 1) << index for index, value in enumerate(levels))
        for bit in range(5)
    }

    def changed(entry: TableEntry) -> TableEntry:
        is_child = entry.action.endswith(".admit_child")
        return replace(entry, params={**entry.params, **masks}) if is_child else entry

    return {
        switch: replace(part, entries=tuple(map(changed, part.entries)))
        for switch, part in plan.plan_aggregation(network, tree).items()
    }


# -- the oracle ------------------------------------------------------------------------------------------------------


def exact_of_calls(workers: int) -> Callable[[Sequence[Vector]], Floats]:
    """Return a function that is called with the inputs of each all-reduce, in order, and returns the right result.

    It adds the table's values of what the workers send, whatever switches and packets do.
    """
    codecs = [Codec(rank, workers) for rank in range(workers)]
    levels = np.array(table(granularity(workers)))

    def exact(inputs: Sequence[Vector]) -> Floats:
        norm = max(codec.begin(x) for codec, x in zip(codecs, inputs, strict=True))
        sums = np.sum([levels[codec.indices(norm)] for codec in codecs], axis=0)
        return decoded(sums, norm, workers, workers, len(inputs[0]))

    return exact


def error_bound(inputs: Sequence[NDArray[np.float32]], _values: int, _window: int) -> Floats:
    """Return the bound [elements]: the rounding of the result to float32."""
    largest = sum(float(np.linalg.norm(x)) for x in inputs)
    return np.full(len(inputs[0]), 4 * largest * 2.0**-23)


def chunks(lengths: Sequence[int], _values: int, _window: int) -> int:
    """Return the chunk numbers of all-reduces in a lease: one more than packets of indices."""
    return sum(1 + -(-length // ELEMENTS) for length in lengths)


def survives() -> Iterable[str]:
    """Return the faults that soak may cause, in addition to loss."""
    return "duplication", "reordering", "corruption", "restarts", "new leases"


def invariants(run: Any) -> Iterator[str]:
    """Yield what is wrong: each worker's packet for a chunk counts once at each switch, each result is taken once."""
    wanted = 0
    for job in run.jobs:
        numbers = chunks([one.length for one in job.expected], 0, 0)
        wanted += job.contributions * numbers
        for rank, worker in enumerate(job.workers):
            if job.undisturbed and worker.statistics.accepted != numbers:
                yield f"job {job.number}, rank {rank}: {worker.statistics.accepted} results taken of {numbers}"
    if run.undisturbed and run.added != wanted:
        yield f"switches added {run.added} packets, of {wanted} that the jobs have"
