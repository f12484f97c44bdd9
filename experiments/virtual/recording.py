"""Recordings of runs in virtual time: every call of a worker and every packet on a link, for drawings and traces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.experiments.virtual.point import run_virtual
from fanin.experiments.virtual.steps import buckets
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import Cluster
from fanin.simulator.links import Packets, Transit
from fanin.simulator.units import SECOND
from fanin.topologies.model import Topology
from fanin.workers.host_based.transport import DATA
from fanin.workers.wire import HEADERS, UDP_PORTS, UPDATE

Kind = Literal["values", "sums", "between hosts", "acknowledgements"]


class RecordingError(ValueError):
    """A point that cannot be recorded. The message explains what to do."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A packet on a link.

    Attributes:
        link: The number of the link, in one direction.
        sender: The name of the node that sends it.
        receiver: The name of the node at the other end.
        begin: Seconds when its first bit leaves the sender.
        sent: Seconds when its last bit has left the sender.
        end: Seconds when the receiver has its last bit.
        size: Bytes on the wire.
        kind: What it carries.
    """

    link: int
    sender: str
    receiver: str
    begin: float
    sent: float
    end: float
    size: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class Call:
    """A worker's call of a collective operation.

    Attributes:
        rank: The worker's rank.
        begin: Seconds when the worker begins.
        end: Seconds when it has its result.
        repetition: The number of the repetition, from 0.
        bucket: The number of the bucket, from 1; 0 is the barrier before them.
        size: Bytes of the worker's vector.
    """

    rank: int
    begin: float
    end: float
    repetition: int
    bucket: int
    size: int


@dataclass(frozen=True, slots=True)
class PacketRecording:
    """A run of a point in virtual time.

    Attributes:
        title: What tells it from other points.
        operation: The collective operation of its calls.
        network: The network.
        workers: The names of the hosts that take part, by rank.
        calls: All calls, by their numbers and ranks.
        flights: What the links carried, by the time at which it arrived.
    """

    title: str
    operation: str
    network: Topology
    workers: tuple[str, ...]
    calls: tuple[Call, ...]
    flights: tuple[Flight, ...]


def record(title: str, settings: Settings, switch: Engine) -> PacketRecording:
    """Run a point in virtual time and record it.

    Lost packets never arrive, so they are not recorded; what replaces them is. Where a link has jitter, or reorders,
    a packet seems to be sent later than it was, by as much as it is late.

    Args:
        title: What tells the point from others.
        settings: The point.
        switch: The program of its switches.

    Raises:
        RecordingError: The point runs live or cuts a model among workers.
        CollectiveError: A worker gives up.
        UnfinishedError: The run does not end.
        DeadlockError: Links pause one another in a circle.
        ControllerError: The controller fails.
        PythonFileError: The user's worker or controller fails.
    """
    if settings.world == "live":
        raise RecordingError("a live network is not recorded: add --set world=virtual")
    if settings.parallelism is not None:
        raise RecordingError("a step of a model cut among workers is not recorded: leave out parallelism")
    arrivals = _Arrivals()
    run_virtual(settings, switch, arrivals.watch, arrivals)
    cluster = arrivals.cluster
    assert cluster is not None
    # The barrier before each vector has one element.
    sizes = [ELEMENT_BYTES, *(ELEMENT_BYTES * (part.stop - part.start) for part in buckets(settings))]
    calls = [
        Call(rank, begin, end, *divmod(number, len(sizes)), sizes[number % len(sizes)])
        for rank, station in enumerate(cluster.stations)
        for number, (begin, end) in enumerate(zip(station.began, station.ended, strict=True))
    ]
    calls.sort(key=lambda call: (call.repetition, call.bucket, call.rank))
    return PacketRecording(
        title,
        settings.collective,
        cluster.topology,
        cluster.members,
        tuple(calls),
        tuple(arrivals.flights(cluster)),
    )


class _Arrivals:
    """An observer that keeps what arrives, as arrays."""

    def __init__(self) -> None:
        self.cluster: Cluster | None = None
        self._seen: list[tuple[Transit, NDArray[np.int64], NDArray[np.uint8]]] = []

    def watch(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def __call__(self, arrived: Transit, store: Packets) -> None:
        numbers = arrived.packets
        self._seen.append((arrived, store.lengths[numbers].copy(), store.rows[numbers, : HEADERS + 1].copy()))

    def flights(self, cluster: Cluster) -> Iterator[Flight]:
        """Yield everything that arrived."""
        directions = [link for link in cluster.topology.links for _ in range(2)]
        for arrived, lengths, headers in self._seen:
            columns = arrived.links.tolist(), arrived.times.tolist(), lengths.tolist(), headers
            for number, time, length, frame in zip(*columns, strict=True):
                link, (sender, receiver) = directions[number], cluster.network.link_ends[number]
                size = length + link.properties.virtual_overhead
                rate, end = link.rate_bits_per_second, time / SECOND
                sent = end - link.properties.virtual_delay
                begin = sent - (8 * size / rate if rate else 0)
                yield Flight(number, sender, receiver, begin, sent, end, size, _kind(frame.tobytes()))


def _kind(frame: bytes) -> Kind:
    """Return what a frame carries, from its UDP ports and the first byte behind its headers."""
    ports = int.from_bytes(frame[34:36]), int.from_bytes(frame[36:38])
    first = frame[HEADERS]
    if any(port in UDP_PORTS for port in ports):
        return "values" if first >> 4 == UPDATE else "sums"
    return "between hosts" if first == DATA else "acknowledgements"
