"""A worker of a protocol that sends each chunk through a slot, without sockets or clock: what such protocols share.

Chunk k of a lease goes through slot k mod W, in version (k div W) mod 2. It is sent once the result of chunk k - W has
arrived, and again whenever its result is missing for a fixed timeout. A protocol adds how a vector becomes packets,
and packets a result (protocols/majority, protocols/thc), or takes the packets of FixedPointWorker (protocols/switchml,
protocols/trio). fanin's own worker is protocol.py, which is faster and finds losses earlier.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fanin.workers import collective, wire
from fanin.workers.collective import CollectiveError, StallError
from fanin.workers.lease import Lease
from fanin.workers.protocol import InNetworkStatistics, Outstanding
from fanin.workers.recovery import Recovery
from fanin.workers.values import fixed_point

Vector = NDArray[np.float32]
Chunks = NDArray[np.int64]
Datagrams = NDArray[np.uint8]  # [m, size]


class SlottedWorker(ABC):
    """A Participant (collective.py) that keeps a packet in each slot of its lease in flight.

    Args:
        lease: The worker's lease.
        recovery: Its initial_rto is the timeout of every packet; give_up is how long it waits for anything new.
        elements: Elements of a vector in a packet.
    """

    def __init__(self, lease: Lease, recovery: Recovery, elements: int) -> None:
        self.lease = lease
        self.statistics = InNetworkStatistics(rto=recovery.initial_rto, congestion_window=float(lease.window))
        self._timeout, self._give_up = recovery.initial_rto, recovery.give_up
        self._elements = elements
        self._first = self._end = lease.first_chunk
        # By slot of the lease: the chunk that comes next, the one whose result is missing, and when to send it again.
        self._next = np.zeros(lease.window, np.int64)
        self._awaited = np.full(lease.window, -1, np.int64)
        self._due = np.full(lease.window, np.inf)
        self._times_sent = np.zeros(lease.window, np.int64)
        self._first_sent = np.zeros(lease.window)
        self._missing = self._total = 0
        self._latest = 0.0  # when something new arrived
        self._shape: tuple[int, ...] | None = None
        self._out = np.zeros(0, np.float32)
        self._result: Vector | None = None

    # -- what a protocol adds --------------------------------------------------------------------------------

    @abstractmethod
    def load(self, x: Vector) -> None:
        """Take the vector of an all-reduce, [chunks, elements], padded with zeros.

        Raises:
            ValueError: If the protocol cannot reduce it.
        """

    @abstractmethod
    def updates(self, chunks: Chunks, rows: Chunks) -> Datagrams:
        """Return the packets of chunks [m], whose elements are the vector's rows [m]."""

    @abstractmethod
    def results(self, datagrams: Datagrams) -> tuple[Chunks, Vector]:
        """Return the chunks [m] of packets, -1 for one that is not a result of this lease, and values [m, elements]."""

    # -- Participant -----------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Return whether every result of the last all-reduce has arrived."""
        return self._missing == 0

    def start(self, x: Vector, now: float, out: Vector | None = None) -> None:
        """Begin an all-reduce; see Participant.

        Raises:
            TypeError: See Participant.
            ValueError: See Participant.
            CollectiveError: If the previous all-reduce has not finished, or the lease has too few chunks left.
        """
        if self._missing:
            raise CollectiveError("the previous all-reduce has not finished")
        given, flat_out = collective.flat(x, out)
        chunks = -(-given.size // self._elements)
        if self._end + chunks > self.lease.last_chunk + 1:
            raise CollectiveError(
                f"lease {self.lease.id} has {self.lease.last_chunk + 1 - self._end} chunk numbers left and this "
                f"all-reduce needs {chunks}: ask for a new lease"
            )
        padded = np.zeros(chunks * self._elements, np.float32)
        padded[: given.size] = given
        self.load(padded.reshape(chunks, self._elements))
        self._first, self._end = self._end, self._end + chunks
        self._next = self._first + (np.arange(self.lease.window) - self._first) % self.lease.window
        self._out = np.empty((chunks, self._elements), np.float32)
        self._result = out if out is not None else flat_out.reshape(x.shape)
        self._missing, self._total, self._latest = chunks, chunks, now

    def receive(self, datagrams: Datagrams, now: float) -> None:
        """Process datagrams that have arrived; see Participant."""
        statistics = self.statistics
        statistics.datagrams_received += len(datagrams)
        statistics.bytes_received += datagrams.size
        chunks, values = self.results(datagrams)
        slots = chunks % self.lease.window
        awaited = (chunks >= 0) & (self._awaited[slots] == chunks)
        statistics.ignored["malformed"] += int(np.count_nonzero(chunks < 0))
        # Of several copies in one batch, the first counts.
        _, first = np.unique(chunks, return_index=True)
        taken = first[awaited[first]]
        statistics.ignored["duplicate"] += int(np.count_nonzero(chunks >= 0)) - len(taken)
        if not len(taken):
            return
        self._out[chunks[taken] - self._first] = values[taken]
        self._awaited[slots[taken]] = -1
        self._due[slots[taken]] = np.inf
        self._missing -= len(taken)
        self._latest = now
        statistics.accepted += len(taken)

    def datagrams_to_send(self, now: float) -> Sequence[Datagrams]:
        """Return new packets and retransmissions; see Participant.

        Raises:
            StallError: If nothing new has arrived for too long.
        """
        chunks = self.due(now)
        return [self.sent(self.updates(chunks, chunks - self._first))] if len(chunks) else []

    def due(self, now: float) -> Chunks:
        """Return the chunks [m] to send now, retransmissions first, and start their timers.

        Raises:
            StallError: If nothing new has arrived for too long.
        """
        if not self._missing:
            return np.zeros(0, np.int64)
        if now - self._latest >= self._give_up:
            raise StallError(
                f"rank {self.lease.rank} of {self.lease.workers}, lease {self.lease.id}: {self._missing} results "
                f"missing, the first of chunk {int(self._awaited[self._awaited >= 0].min(initial=self._end))}; "
                f"nothing new for {now - self._latest:.3g} s"
            )
        expired = self._awaited[self._due <= now]
        new = self.unsent()
        self._awaited[new % self.lease.window] = new
        self._next[new % self.lease.window] = new + self.lease.window
        self.statistics.retransmissions += len(expired)
        self.statistics.timeouts += len(expired)
        chunks = np.concatenate([expired, new])
        self._first_sent[new % self.lease.window] = now
        self._times_sent[new % self.lease.window] = 0
        self._times_sent[chunks % self.lease.window] += 1
        self._due[chunks % self.lease.window] = now + self._timeout
        return chunks

    def unsent(self) -> Chunks:
        """Return the chunks [m] that can be sent for the first time, ascending: the next one of each free slot."""
        return np.sort(self._next[(self._awaited < 0) & (self._next < self._end)])

    def sent(self, datagrams: Datagrams) -> Datagrams:
        """Count datagrams that are about to be sent, and return them."""
        self.statistics.datagrams_sent += len(datagrams)
        self.statistics.bytes_sent += datagrams.size
        return datagrams

    def deadline(self) -> float | None:
        """Return when a packet must be retransmitted, or the worker gives up; None if no result is missing."""
        if not self._missing:
            return None
        return min(float(self._due.min()), self._latest + self._give_up)

    def finish(self) -> Vector:
        """Return the result; see Participant.

        Raises:
            CollectiveError: If no all-reduce has finished.
        """
        if self._result is None or self._missing:
            raise CollectiveError("no all-reduce has finished")
        result, self._result = self._result, None
        collective.raveled(result)[:] = self._out.reshape(-1)[: result.size]
        self.statistics.all_reduces += 1
        return result

    def outstanding(self, now: float) -> Outstanding | None:
        """Return what the worker waits for; None if it waits for no result."""
        slots = np.flatnonzero(self._awaited >= 0)
        if not len(slots):
            return None
        numbers = np.sort(self._awaited[slots])
        ends = np.flatnonzero(np.diff(numbers, append=numbers[-1] + 2) != 1)
        starts = np.concatenate([[0], ends[:-1] + 1])
        times = self._times_sent[slots]
        return Outstanding(
            lease=self.lease,
            all_reduce=self.statistics.all_reduces + 1,
            elements=0 if self._result is None else self._result.size,
            announcing=False,
            accepted=self._total - self._missing,
            total=self._total,
            chunks=tuple((int(numbers[a]), int(numbers[b])) for a, b in zip(starts, ends, strict=True)),
            sent=(int(times.min()), int(times.max())),
            waiting=now - float(self._first_sent[slots].min()),
            silent=now - self._latest,
        )


class FixedPointWorker(SlottedWorker):
    """A SlottedWorker with fixed-point integers (values/fixed_point.py), in packets as fanin's own (wire.py).

    Protocols that write more into packets override `packets`, and those whose results have more in them `is_result`
    or `sums`.
    """

    def __init__(self, lease: Lease, recovery: Recovery) -> None:
        super().__init__(lease, recovery, lease.values)
        self._scale = fixed_point.scale(lease.workers)
        self._integers = np.zeros((0, lease.values), np.int32)
        self._layout = wire.packet_dtype(lease.values)

    def load(self, x: Vector) -> None:
        """Turn a vector [chunks, elements] into integers."""
        self._integers = fixed_point.integers(x, self.lease.workers)

    def packets(
        self, chunks: Chunks, values: NDArray[np.int32], message: int = wire.UPDATE
    ) -> NDArray[np.void]:
        """Return the packets of chunks [m] with integers [m, elements]; `message` is wire.UPDATE or wire.RESULT."""
        lease = self.lease
        packets = np.zeros(len(chunks), self._layout)
        packets["kind"], packets["lease"], packets["tsi"] = wire.kind(message, lease.values), lease.id, chunks
        packets["pool_index"] = wire.pool_index(chunks, lease.first_slot, lease.window)
        packets["values"] = values
        return packets

    def updates(self, chunks: Chunks, rows: Chunks) -> Datagrams:
        """Return the packets of chunks [m]."""
        return wire.as_datagrams(self.packets(chunks, self._integers[rows]))

    def results(self, datagrams: Datagrams) -> tuple[Chunks, Vector]:
        """Return the chunks [m] of results, and the sums [m, elements]."""
        if datagrams.shape[1] != self._layout.itemsize:
            return np.full(len(datagrams), -1), np.zeros((len(datagrams), self.lease.values), np.float32)
        packets = wire.as_packets(np.ascontiguousarray(datagrams))
        return np.where(self.is_result(packets), packets["tsi"].astype(np.int64), -1), self.sums(packets)

    def is_result(self, packets: NDArray[np.void]) -> NDArray[np.bool_]:
        """Return which packets [m] are results of this lease."""
        found: NDArray[np.bool_] = packets["kind"] == wire.kind(wire.RESULT, self.lease.values)
        found &= packets["lease"] == self.lease.id
        return found

    def sums(self, packets: NDArray[np.void]) -> Vector:
        """Return the sums [m, elements] in packets [m]."""
        found: Vector = (packets["values"] / self._scale).astype(np.float32)
        return found
