"""OmniReduce (Fei et al., SIGCOMM 2021) in switches: README.md specifies it, and what differs from the paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fanin.workers import collective, wire
from fanin.workers.collective import CollectiveError
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from fanin.workers.slotted import Chunks, Datagrams, SlottedWorker, Vector
from fanin.workers.values import fixed_point

BLOCK = 128  # elements: two blocks of values in program.p4
NO_BLOCK = 0xFFFFFFFF  # no further block of the slot is non-zero
_UPDATE, _RESULT = 0x00, 0x10
_FIELDS: list[tuple[Any, ...]] = [
    ("kind", "u1"),
    ("lease", "u1"),
    ("chunk", ">u4"),
    ("pool_index", ">u2"),
    ("next", ">u4"),
]
_EMPTY = np.dtype(_FIELDS)
_FULL = np.dtype([*_FIELDS, ("values", ">i4", BLOCK)])


# -- the worker ------------------------------------------------------------------------------------------------------


class OmniReduceWorker(SlottedWorker):
    """A worker that sends the blocks of its vector that are not zero.

    Block b belongs to column b mod C, for C = min(W, blocks), and column c goes through the slot of the lease's chunk
    number c. Each packet for a slot takes its next chunk number, whichever block it is for.
    """

    def __init__(self, lease: Lease, recovery: Recovery) -> None:
        super().__init__(lease, recovery, BLOCK)
        self._scale = fixed_point.scale(lease.workers)
        self._integers = np.zeros((0, BLOCK), np.int32)
        self._columns = 0
        # By block: whether it is not zero, and the next one of its column that is not.
        self._filled = np.zeros(0, np.bool_)
        self._follows = np.zeros(0, np.int64)
        # By slot of the lease: the number of its next chunk, and the block that the workers are at.
        first = np.arange(lease.first_chunk, lease.first_chunk + lease.window)
        self._chunks = np.zeros(lease.window, np.int64)
        self._slots = first % lease.window  # by column: its slot
        self._chunks[self._slots] = first
        self._block = np.zeros(lease.window, np.int64)
        self._ready = np.zeros(lease.window, np.bool_)  # to be sent for the first time

    def start(self, x: Vector, now: float, out: Vector | None = None) -> None:
        """Begin an all-reduce; see Participant.

        Raises:
            TypeError: See Participant.
            ValueError: If a magnitude cannot be sent, or `out` does not fit `x`.
            CollectiveError: If the previous all-reduce has not finished, or the lease has too few chunks left.
        """
        if not self.finished:
            raise CollectiveError("the previous all-reduce has not finished")
        given, flat_out = collective.flat(x, out)
        blocks = -(-given.size // BLOCK)
        columns = min(self.lease.window, blocks)
        rounds = -(-blocks // columns) if columns else 0
        slots = self._slots[:columns]
        last = int(self._chunks[slots].max(initial=-1)) + (rounds - 1) * self.lease.window
        if columns and last > self.lease.last_chunk:
            raise CollectiveError(
                f"lease {self.lease.id} ends with chunk number {self.lease.last_chunk} and this all-reduce needs those "
                f"up to {last}: ask for a new lease"
            )
        padded = np.zeros(blocks * BLOCK, np.float32)
        padded[: given.size] = given
        self.load(padded.reshape(blocks, BLOCK))
        filled = np.zeros((rounds, columns), np.bool_)
        filled.reshape(-1)[:blocks] = self._filled
        numbers = np.arange(rounds * columns).reshape(rounds, columns)
        follows = np.full((rounds, columns), NO_BLOCK)
        for one in range(rounds - 1, 0, -1):
            follows[one - 1] = np.where(filled[one], numbers[one], follows[one])
        self._follows = follows.reshape(-1)[:blocks]
        self._columns = columns
        self._block[slots] = np.arange(columns)
        self._ready[slots] = True
        self._out = np.zeros((blocks, BLOCK), np.float32)
        self._result = out if out is not None else flat_out.reshape(x.shape)
        self._missing, self._total, self._latest = columns, columns, now

    def load(self, x: Vector) -> None:
        """Turn a vector [blocks, elements] into integers, and find the blocks that are not zero."""
        self._integers = fixed_point.integers(x, self.lease.workers)
        self._filled = np.any(self._integers, axis=1)

    def unsent(self) -> Chunks:
        """Return the chunks [m] of slots whose block has changed, or that begin."""
        slots = np.flatnonzero(self._ready)
        self._ready[slots] = False
        new = self._chunks[slots]
        self._chunks[slots] += self.lease.window
        return new

    def datagrams_to_send(self, now: float) -> Sequence[Datagrams]:
        """Return new packets and retransmissions, those with values first; see Participant.

        Raises:
            StallError: If nothing new has arrived for too long.
        """
        chunks = self.due(now)
        blocks = self._block[chunks % self.lease.window]
        filled = self._filled[blocks]
        groups = [(chunks[which], blocks[which]) for which in (filled, ~filled)]
        return [self.sent(self.updates(*group)) for group in groups if len(group[0])]

    def updates(self, chunks: Chunks, rows: Chunks) -> Datagrams:
        """Return the packets of chunks [m], whose blocks [m] are all zero or all not."""
        filled = bool(self._filled[rows[0]])
        packets = np.zeros(len(chunks), _FULL if filled else _EMPTY)
        packets["kind"], packets["lease"], packets["chunk"] = _UPDATE, self.lease.id, chunks
        packets["pool_index"] = wire.pool_index(chunks, self.lease.first_slot, self.lease.window)
        packets["next"] = self._follows[rows]
        if filled:
            packets["values"] = self._integers[rows]
        return packets.view(np.uint8).reshape(len(packets), packets.dtype.itemsize)

    def results(self, datagrams: Datagrams) -> tuple[Chunks, Vector]:
        """Return the chunks [m] of results, and the sums [m, elements], which are 0 in packets without values."""
        layout = next((one for one in (_EMPTY, _FULL) if one.itemsize == datagrams.shape[1]), None)
        if layout is None:
            return np.full(len(datagrams), -1), np.zeros((len(datagrams), BLOCK), np.float32)
        packets = np.ascontiguousarray(datagrams).view(layout).reshape(-1)
        ours = (packets["kind"] == _RESULT) & (packets["lease"] == self.lease.id)
        sums = np.zeros((len(packets), BLOCK), np.float32)
        if layout is _FULL:
            sums[:] = packets["values"] / self._scale
        return np.where(ours, packets["chunk"].astype(np.int64), -1), sums

    def receive(self, datagrams: Datagrams, now: float) -> None:
        """Process datagrams that have arrived; see Participant."""
        statistics = self.statistics
        statistics.datagrams_received += len(datagrams)
        statistics.bytes_received += datagrams.size
        chunks, sums = self.results(datagrams)
        statistics.ignored["malformed"] += int(np.count_nonzero(chunks < 0))
        # Of several copies in one batch, the first counts.
        _, first = np.unique(chunks, return_index=True)
        which = first[
            (chunks[first] >= 0) & (self._awaited[chunks[first] % self.lease.window] == chunks[first])
        ]
        statistics.ignored["duplicate"] += int(np.count_nonzero(chunks >= 0)) - len(which)
        if not len(which):
            return
        following = (
            datagrams[which, _EMPTY.itemsize - 4 : _EMPTY.itemsize].copy().view(">u4")[:, 0].astype(np.int64)
        )
        blocks = self._block[chunks[which] % self.lease.window]
        ahead = (blocks < following) & (following < len(self._out))
        ahead &= (following - blocks) % self._columns == 0
        possible = ahead | (following == NO_BLOCK)
        statistics.ignored["impossible"] += int(np.count_nonzero(~possible))
        which, following, ahead = which[possible], following[possible], ahead[possible]
        if not len(which):
            return
        slots = chunks[which] % self.lease.window
        self._out[blocks[possible]] = sums[which]
        self._awaited[slots], self._due[slots] = -1, np.inf
        self._block[slots[ahead]], self._ready[slots[ahead]] = following[ahead], True
        self._missing -= int(np.count_nonzero(~ahead))
        self._latest = now
        statistics.accepted += len(which)


participant = OmniReduceWorker


def packet(_values: int) -> tuple[int, int]:
    """Return the elements in a packet with values, and its UDP payload in bytes."""
    return BLOCK, _FULL.itemsize


# -- the oracle ------------------------------------------------------------------------------------------------------


vector, error_bound = fixed_point.draw_vector, fixed_point.sum_bound


def inputs(seed: int, job: int, work: Any) -> list[list[Vector]]:
    """Draw the inputs of a job of soak, [all-reduces][workers]: the share of blocks that are zero is drawn, too."""
    draw = np.random.default_rng((seed, job))
    made = []
    for elements in work.elements:
        of_workers = []
        for _ in range(work.workers):
            drawn = vector(draw, elements)
            zero = draw.random(-(-elements // BLOCK)) < draw.choice([0.0, 0.5, 0.9, 1.0])
            drawn[np.repeat(zero, BLOCK)[:elements]] = 0
            of_workers.append(drawn)
        made.append(of_workers)
    return made


def chunks(lengths: Sequence[int], _values: int, window: int) -> int:
    """Return the chunk numbers of all-reduces in a lease: in each of its rounds, every slot may take one."""
    return sum(window * -(-length // (BLOCK * window)) for length in lengths)


def survives() -> Iterable[str]:
    """Return the faults that soak may cause, in addition to loss."""
    return "duplication", "reordering", "corruption", "restarts", "new leases"


def invariants(run: Any) -> Iterable[str]:
    """Yield what is wrong: all workers have the same rounds, in each of which a child counts once at its switch."""
    rounds = 0
    for job in run.jobs:
        accepted = [worker.statistics.accepted for worker in job.workers]
        rounds += job.contributions * accepted[0]
        if job.undisturbed and len(set(accepted)) > 1:
            yield f"job {job.number}: the workers took {accepted} results"
    if run.undisturbed and run.added != rounds:
        yield f"switches added {run.added} packets, of {rounds} that the rounds of the jobs have"
