"""ATP (Lao et al., NSDI 2021): README.md specifies it, and what differs from the paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.controller import plan
from fanin.controller.errors import ControllerError
from fanin.controller.network import Network
from fanin.controller.plan import Plan, TableEntry, Value
from fanin.controller.tree import Tree
from fanin.workers import wire
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from fanin.workers.slotted import Chunks, Datagrams, FixedPointWorker
from fanin.workers.values import fixed_point

MOST_WORKERS = 32  # a packet has a bit for each
RESENT, COLLIDED, CONGESTED = 1, 2, 4  # bits of e1
_ATTEMPTS = 128  # e0 has a sign
_OVERTAKEN = 3  # results of later packets after which a packet counts as lost

# -- slots -----------------------------------------------------------------------------------------------------------


@cache
def _order(lease: int, first_slot: int, slots: int) -> NDArray[np.int64]:
    """Return the slots in the order of their hashes with the number of a lease, [slots]."""

    def key(slot: int) -> bytes:
        return blake2b(bytes([lease, *slot.to_bytes(2, "big")]), digest_size=8).digest()

    return np.array(sorted(range(first_slot, first_slot + slots), key=key))


def slots_of(lease: Lease, indices: NDArray[Any], attempts: NDArray[Any]) -> NDArray[np.int64]:
    """Return the slots [m] for places [m] in the window, at which there were this many collisions [m]."""
    order = _order(lease.id, lease.first_slot, lease.slots or lease.window)
    found: NDArray[np.int64] = order[(indices + attempts * lease.window) % len(order)]
    return found


# -- the worker ------------------------------------------------------------------------------------------------------


class AtpWorker(FixedPointWorker):
    """A worker whose window follows congestion marks, and whose slots may be in use by others."""

    def __init__(self, lease: Lease, recovery: Recovery) -> None:
        super().__init__(lease, recovery)
        # By place in the window: collisions so far, the chunk sent last, and when, counted in packets.
        self._attempts = np.zeros(lease.window, np.int64)
        self._latest_sent = np.full(lease.window, -1, np.int64)
        self._sent_at = np.zeros(lease.window, np.int64)
        self._packets = 0
        self._draw = np.random.default_rng(lease.rank)
        self._answered = [-1] * _OVERTAKEN  # the latest packets whose results have arrived, ascending
        self._marked = False
        self._allowed = float(lease.window)
        self._reduced_at = 0  # packets sent when the window was last reduced

    def due(self, now: float) -> Chunks:
        """Return the chunks [m] to send now; see SlottedWorker. Resent ones wait longer, by a random part of a timeout.

        Otherwise workers whose packets meet in a full queue would meet there at each timeout.
        """
        chunks = super().due(now)
        places = chunks % self.lease.window
        places = places[self._latest_sent[places] == chunks]
        self._due[places] += self._timeout * self._draw.random(len(places))
        return chunks

    def unsent(self) -> Chunks:
        """Return the chunks [m] to send for the first time: in their order, as many as the window allows."""
        awaited = self._awaited[self._awaited >= 0]
        room = max(0, int(self._allowed) - len(awaited))
        new, end = super().unsent(), int(awaited.min(initial=self._end)) + self.lease.window
        return new[new < end][:room]

    def packets(
        self, chunks: Chunks, values: NDArray[np.int32], message: int = wire.UPDATE
    ) -> NDArray[np.void]:
        """Return the packets of chunks [m], marked as resent if they are."""
        lease, places = self.lease, chunks % self.lease.window
        packets = super().packets(chunks, values, message)
        packets["call"] = 1 << lease.rank
        packets["pool_index"] = slots_of(lease, places, self._attempts[places])
        packets["e0"] = self._attempts[places]
        packets["e1"] = np.where(self._latest_sent[places] == chunks, RESENT, 0)
        self._latest_sent[places] = chunks
        self._sent_at[places] = np.arange(self._packets, self._packets + len(chunks))
        self._packets += len(chunks)
        return packets

    def count_marks(self, count: int) -> None:
        """Record congestion marks; see Marked."""
        self._marked |= count > 0

    def receive(self, datagrams: Datagrams, now: float) -> None:
        """Process datagrams that have arrived; see Participant."""
        chunks, _ = self.results(datagrams)
        awaited = (chunks >= 0) & (self._awaited[chunks % self.lease.window] == chunks)
        super().receive(datagrams, now)
        marked, self._marked = self._marked, False
        if not awaited.any():
            return
        packets = wire.as_packets(np.ascontiguousarray(datagrams))[awaited]
        places = chunks[awaited] % self.lease.window
        self._attempts[places] = packets["e0"]
        if marked:
            packets["e1"] |= CONGESTED
        self._adapt(packets["e1"], now)
        self._answered = sorted({*self._answered, *self._sent_at[places].tolist()})[-_OVERTAKEN:]
        if len(self._answered) == _OVERTAKEN:
            overtaken = (self._awaited >= 0) & (self._sent_at < self._answered[0])
            self._due[overtaken & (self._latest_sent == self._awaited)] = now

    def _adapt(self, flags: NDArray[np.uint8], now: float) -> None:  # noqa: ARG002
        """Halve the window, at most once in a window, or let it grow by a packet in as many results as it has.

        Args:
            flags: e1 of results that have arrived [m].
            now: The time in seconds.
        """
        if not (flags & CONGESTED).any():
            self._allowed = min(self._allowed + len(flags) / self._allowed, self.lease.window)
        elif self._packets - self._reduced_at >= self._allowed:
            self._allowed, self._reduced_at = max(1.0, self._allowed / 2), self._packets
        self.statistics.congestion_window = self._allowed


participant, packet = AtpWorker, wire.full_packet


# -- the server ------------------------------------------------------------------------------------------------------


class ParameterServer:
    """A Server that adds up what switches could not, and sends all results.

    It keeps two windows of chunks: a packet for chunk k + 2W shows that all workers have the result of chunk k.
    """

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self._everyone = (1 << lease.workers) - 1
        self._layout = wire.packet_dtype(lease.values)
        # By chunk modulo 2W. A packet, as it will be sent; its tsi is valid if it has ranks.
        self._chunks = np.zeros(2 * lease.window, self._layout)
        self._marked = False
        self._ready: list[Chunks] = []  # places of results to send

    def count_marks(self, count: int) -> None:
        """Record congestion marks; see Marked."""
        self._marked |= count > 0

    def receive(self, datagrams: Datagrams, now: float) -> None:  # noqa: ARG002
        """Add what is new, and answer what is asked again; see Server."""
        marked, self._marked = self._marked, False
        if datagrams.shape[1] != self._layout.itemsize:
            return
        packets = wire.as_packets(np.ascontiguousarray(datagrams))
        right = packets["kind"] == wire.kind(wire.UPDATE, self.lease.values)
        right &= packets["lease"] == self.lease.id
        # An earlier lease with this number may have had higher chunk numbers.
        right &= (packets["tsi"] >= self.lease.first_chunk) & (packets["tsi"] <= self.lease.last_chunk)
        packets = packets[right]
        if marked:
            packets["e1"] |= CONGESTED
        # Packets of different chunks are independent, and those of one chunk come in turn.
        while len(packets):
            _, first = np.unique(packets["tsi"], return_index=True)
            self._take(packets[first])
            packets = np.delete(packets, first)

    def _take(self, packets: NDArray[np.void]) -> None:
        """Process packets of different chunks."""
        chunks = packets["tsi"].astype(np.int64)
        places = chunks % len(self._chunks)
        held = self._chunks[places]
        same = (held["call"] != 0) & (held["tsi"] == chunks)
        begins = (held["call"] == 0) | (held["tsi"] < chunks)
        self._chunks[places[begins]] = packets[begins]
        adds = same & (held["call"] & packets["call"] == 0)
        to = places[adds]
        self._chunks["values"][to] += packets["values"][adds]
        self._chunks["call"][to] |= packets["call"][adds]
        self._chunks["e1"][to] |= packets["e1"][adds]
        complete = self._chunks["call"][places] == self._everyone
        self._ready.append(places[complete & (same | begins)])

    def datagrams_to_send(self, now: float) -> Sequence[Datagrams]:  # noqa: ARG002
        """Return the results that are due, each once; see Server."""
        places = np.unique(np.concatenate(self._ready)) if self._ready else np.zeros(0, np.int64)
        self._ready = []
        if not len(places):
            return []
        results = self._chunks[places]
        results["kind"] = wire.kind(wire.RESULT, self.lease.values)
        # The chunk one window further on goes through another slot if this one was in use.
        collided = (results["e1"] & COLLIDED) // COLLIDED
        results["e0"] = (results["e0"] + collided) % _ATTEMPTS
        return [wire.as_datagrams(results)]

    def deadline(self) -> float | None:
        """Return None: a server only answers."""
        return None


def server(lease: Lease, _recovery: Recovery) -> ParameterServer:
    """Return the server of a lease."""
    return ParameterServer(lease)


def shares_slots() -> bool:
    """Return that all jobs use the same slots."""
    return True


# -- the plan --------------------------------------------------------------------------------------------------------


def plan_aggregation(network: Network, tree: Tree) -> Plan:
    """Return fanin's entries, with the workers below each switch instead of its children, and the lease as a holder.

    Raises:
        ControllerError: If a packet has too few bits for the workers.
    """
    job = tree.job
    if len(job.hosts) > MOST_WORKERS:
        raise ControllerError(f"a packet of atp has bits for {MOST_WORKERS} workers, not {len(job.hosts)}")
    below = {host: 1 << rank for rank, host in enumerate(job.hosts)}
    children = {part.switch: part.children for part in tree.aggregators}

    def ranks(name: str) -> int:
        return below[name] if name in below else sum(map(ranks, children[name]))

    holder = TableEntry(
        "ingress.aggregation.holders",
        {"stored_lease": job.lease},
        "ingress.aggregation.in_force",
        {"first_chunk": job.first_chunk, "last_chunk": job.last_chunk},
    )

    def changed(switch: str, entry: TableEntry) -> TableEntry:
        if not entry.action.endswith("admit_child"):
            return entry
        names = ("base", "slots", "first_chunk", "last_chunk", "checksums", "uplink")
        member = entry.params["member"]
        assert isinstance(member, int)
        params: Mapping[str, Value] = {
            "below": ranks(children[switch][member - 1]),
            "all": ranks(switch),
            "window": job.window or job.slots,
            **{name: entry.params[name] for name in names},
        }
        return replace(entry, params=params)

    return {
        switch: replace(part, entries=(holder, *(changed(switch, entry) for entry in part.entries)))
        for switch, part in plan.plan_aggregation(network, tree).items()
    }


# -- the oracle ------------------------------------------------------------------------------------------------------


vector, error_bound = fixed_point.draw_vector, fixed_point.sum_bound


def survives() -> Iterable[str]:
    """Return the faults that soak may cause, in addition to loss."""
    return "duplication", "reordering", "corruption", "restarts", "new leases"


def invariants(run: Any) -> Iterable[str]:
    """Yield what is wrong: each worker takes each result once, and no slot is left in use.

    Slots are looked at if links only marked packets: the result of a chunk then reaches each switch that has a part of
    it, after all of its packets.
    """
    for job in run.jobs:
        chunks = sum(-(-one.length // job.work.values) for one in job.expected)
        for rank, worker in enumerate(job.workers):
            if job.undisturbed and worker.statistics.accepted != chunks:
                yield f"job {job.number}, rank {rank}: {worker.statistics.accepted} results taken of {chunks}"
    if run.undisturbed and run.fabric.network.faults.keys() <= {"ECN mark"}:
        for name, switch in run.fabric.engines.items():
            if left := sum(ranks != 0 for ranks in switch.register("ingress.aggregation.ranks").read()):
                yield f"{name}: {left} slots are in use after the last result"
