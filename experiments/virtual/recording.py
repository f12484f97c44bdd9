"""Recordings of runs in virtual time: every call, every packet on a link, every change of a switch's slots."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from operator import itemgetter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fanin.controller.tree import Aggregator
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.experiments.virtual.point import run_virtual
from fanin.experiments.virtual.steps import buckets
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import TableError
from fanin.simulator import VirtualNetwork
from fanin.simulator.compiled import FATES, PythonProgram
from fanin.simulator.fabric import Cluster
from fanin.simulator.flows import PORT_WITH_A_JOB
from fanin.simulator.links import Packets, Transit
from fanin.simulator.network import SwitchProgram
from fanin.simulator.units import SECOND
from fanin.topologies.model import LOOPBACK_IN, Topology
from fanin.workers.host_based.transport import DATA, HEADER, HEADER_BYTES
from fanin.workers.wire import HEADER as AGGREGATION_HEADER
from fanin.workers.wire import HEADERS, UDP_PORTS, UPDATE, VERSION_SHIFT

Kind = Literal["values", "sums", "between hosts", "acknowledgements", "other traffic"]
Again = Literal["", "retransmission", "copy"]

_REGISTERS = tuple(f"ingress.aggregation.{name}" for name in ("lease", "chunk", "seen", "done"))
_BYTES = HEADERS + max(HEADER_BYTES, AGGREGATION_HEADER.itemsize)  # of a frame, to tell what it carries
_ROUNDING = 1e-12  # seconds


class RecordingError(ValueError):
    """A point that cannot be recorded. The message explains what to do."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A packet on a link.

    Attributes:
        link: The number of the link, in one direction.
        sender: The name of the node that sends it.
        receiver: The name of the node at the other end.
        joined: Seconds when it joins the sender's queue.
        begin: Seconds when its first bit leaves the sender.
        sent: Seconds when its last bit has left the sender.
        end: Seconds when the receiver has its last bit, or, for a packet that is lost on the link, would have it.
        size: Bytes on the wire.
        kind: What it carries.
        stream: What its number counts in, such as "lease 1" or "h1 → h2".
        number: Its chunk or, between hosts, its packet number in the stream.
        again: "retransmission" if the link has carried the same values, or lost them, before; "copy" if the link itself
            has duplicated the packet; "" otherwise.
        lost: Why it never arrives, or "". A packet that its queue drops has only one time.
    """

    link: int
    sender: str
    receiver: str
    joined: float
    begin: float
    sent: float
    end: float
    size: int
    kind: Kind
    stream: str
    number: int
    again: Again = ""
    lost: str = ""


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
class CellChange:
    """The contents of a cell of a switch from some time on. A slot has two cells, one for each version.

    Attributes:
        time: Seconds when the switch has processed the packet that changes it.
        switch: The name of the switch.
        slot: The number of the slot.
        version: 0 or 1.
        stream: The lease of the chunk, as in Flight.
        chunk: The number of the chunk.
        seen: The children that have contributed, as bits.
        done: Whether it holds the result, and not only this switch's part.
    """

    time: float
    switch: str
    slot: int
    version: int
    stream: str
    chunk: int
    seen: int
    done: bool


@dataclass(frozen=True, slots=True)
class PacketRecording:
    """A run of a point in virtual time, or a part of it.

    Attributes:
        title: What tells it from other points.
        operation: The collective operation of its calls.
        network: The network.
        workers: The names of the hosts that take part, by rank.
        aggregators: The switches of the job's first aggregation trees, each with its children.
        calls: All calls, by their numbers and ranks.
        flights: What the links carried or dropped, by the time at which it arrived or was lost.
        changes: The changes of cells, by time. Empty if the program has not the registers of p4src/aggregation.p4.
    """

    title: str
    operation: str
    network: Topology
    workers: tuple[str, ...]
    aggregators: tuple[Aggregator, ...]
    calls: tuple[Call, ...]
    flights: tuple[Flight, ...]
    changes: tuple[CellChange, ...]

    def last_all_reduce(self) -> PacketRecording:
        """Return the last repetition with all its buckets. Its time 0 is when the last worker began.

        It differs from the first one: workers announce the scale of the values of a length before they send any
        (docs/reference/protocol.md).
        """
        calls = [call for call in self.calls if call.repetition == self.calls[-1].repetition and call.bucket]
        begun = [call.begin for call in calls if call.bucket == 1]
        first, zero, end = min(begun), max(begun), max(call.end for call in calls)
        return replace(
            self,
            calls=tuple(replace(call, begin=call.begin - zero, end=call.end - zero) for call in calls),
            flights=tuple(
                replace(
                    each,
                    joined=each.joined - zero,
                    begin=each.begin - zero,
                    sent=each.sent - zero,
                    end=each.end - zero,
                )
                for each in self.flights
                # What was on its way before is of the barrier.
                if each.end <= end + _ROUNDING and each.begin > first - _ROUNDING
            ),
            changes=tuple(
                replace(change, time=change.time - zero)
                for change in self.changes
                if first <= change.time <= end
            ),
        )

    @property
    def seconds(self) -> float:
        """Return how long the calls took after the last worker had begun the first of them, as results count it."""
        first = min(self.calls, key=lambda call: (call.repetition, call.bucket))
        same = [
            call for call in self.calls if (call.repetition, call.bucket) == (first.repetition, first.bucket)
        ]
        return max(call.end for call in self.calls) - max(call.begin for call in same)


def record(title: str, settings: Settings, switch: Engine) -> PacketRecording:
    """Run a point in virtual time and record it.

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
    recorder = _Recorder()
    run_virtual(settings, switch, recorder.watch, recorder.arrived, recorder.make_network)
    cluster = recorder.cluster
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
        recorder.aggregators,
        tuple(calls),
        tuple(recorder.flights()),
        tuple(recorder.changes),
    )


class _Recorder:
    """A journal of links, an observer of what arrives, and a reader of the cells of switches."""

    def __init__(self) -> None:
        self.changes: list[CellChange] = []
        self.aggregators: tuple[Aggregator, ...] = ()
        self._notes: list[NDArray[np.void]] = []
        self._times: dict[str, deque[int]] = {}  # of packets that a switch processes next, in picoseconds
        self._cells: dict[tuple[str, int], list[int]] = {}

    def watch(self, cluster: Cluster) -> None:
        """Begin to record."""
        self.cluster = cluster
        cluster.network.record(self._notes.append)
        self._times = {name: deque() for name in cluster.engines}
        self.aggregators = tuple(part for tree in cluster.job.trees for part in tree.aggregators)

    def make_network(self, *arguments: Any, **options: Any) -> VirtualNetwork:
        """Return a network whose switches are recorded."""
        return _RecordedNetwork(self, *arguments, **options)

    # -- packets ---------------------------------------------------------------------------------------------

    def arrived(self, arrived: Transit, _: Packets) -> None:
        """Note when packets arrive at switches, as an observer of the network."""
        ends = self.cluster.network.link_ends
        for time, link in zip(arrived.times.tolist(), arrived.links.tolist(), strict=True):
            _, node = ends[link]
            if node in self._times:
                self._times[node].append(time)

    def flights(self) -> Iterator[Flight]:
        """Yield all packets that have arrived or been lost, in the order of that."""
        cluster = self.cluster
        links = [link for link in cluster.topology.links for _ in range(2)]
        contents = _Contents(cluster)
        before: set[tuple[int, Kind, str, int]] = set()
        ended: list[tuple[int, int, Flight]] = []
        for note in np.concatenate(self._notes):  # in the order in which each link has sent them
            link, lost = int(note["link"]), FATES[note["fate"]]
            kind, stream, number = contents.of(note["head"].tobytes())
            same = link, kind, stream, number
            repeats = same in before and kind != "acknowledgements"
            before.add(same)
            if not lost and note["end"] >= cluster.network.now:  # it is still on its way
                continue
            sender, receiver = cluster.network.link_ends[link]
            flight = Flight(
                link=link,
                sender=sender,
                receiver=receiver,
                joined=int(note["joined"]) / SECOND,
                begin=int(note["begin"]) / SECOND,
                sent=int(note["sent"]) / SECOND,
                end=int(note["end"]) / SECOND,
                size=int(note["length"]) + links[link].properties.virtual_overhead,
                kind=kind,
                stream=stream,
                number=number,
                again="copy" if note["copy"] else "retransmission" if repeats else "",
                lost=lost,
            )
            ended.append((int(note["end"]), len(ended), flight))
        yield from (flight for _, _, flight in sorted(ended, key=itemgetter(0, 1)))

    # -- cells -----------------------------------------------------------------------------------------------

    def processed(self, switch: str, header: bytes) -> None:
        """Note what the cell that a packet names holds, once the switch has processed the packet."""
        time = self._times[switch].popleft()
        if not _is_aggregation(header):
            return
        engine = self.cluster.engines[switch]
        fields = np.frombuffer(header, AGGREGATION_HEADER, 1, HEADERS)[0]
        version, slot = divmod(int(fields["pool_index"]), 1 << VERSION_SHIFT)
        cell = 2 * slot + version
        try:
            holds = [engine.register(name).read(cell, 1)[0] for name in _REGISTERS]
        except TableError:  # another program, or a slot that no switch has
            return
        if self._cells.get((switch, cell), [0] * len(holds)) != holds:
            self._cells[switch, cell] = holds
            lease, chunk, seen, done = holds
            self.changes.append(
                CellChange(time / SECOND, switch, slot, version, f"lease {lease}", chunk, seen, bool(done))
            )


class _RecordedSwitch:
    """A switch that processes packets one by one, so that each change of a cell is seen."""

    def __init__(self, recorder: _Recorder, name: str, engine: PythonProgram) -> None:
        self._recorder = recorder
        self._name = name
        self._engine = engine

    def process(self, port: int, packet: bytes, now: int) -> Iterable[tuple[int, bytes]]:
        """Process a packet; see PythonProgram."""
        left = self._engine.process(port, packet, now)
        if port != LOOPBACK_IN:  # nobody observes what comes back from there
            self._recorder.processed(self._name, packet[:_BYTES])
        return left


class _RecordedNetwork(VirtualNetwork):
    """A network whose switches are recorded."""

    def __init__(self, recorder: _Recorder, *arguments: Any, **options: Any) -> None:
        self._recorder = recorder
        super().__init__(*arguments, **options)

    def replace_switch(self, name: str, program: SwitchProgram) -> None:
        """See VirtualNetwork."""
        assert isinstance(program, PythonProgram)  # engines can be called from Python, too
        super().replace_switch(name, _RecordedSwitch(self._recorder, name, program))


class _Contents:
    """Tells what frames carry, from their headers."""

    def __init__(self, cluster: Cluster) -> None:
        self._names = {host.ip.packed: host.name for host in cluster.topology.hosts}
        self._members = cluster.members

    def of(self, frame: bytes) -> tuple[Kind, str, int]:
        """Return what a frame carries, the stream it belongs to, and its number there; see Flight."""
        if _is_aggregation(frame):
            fields = np.frombuffer(frame, AGGREGATION_HEADER, 1, HEADERS)[0]
            kind: Kind = "values" if fields["kind"] >> 4 == UPDATE else "sums"
            return kind, f"lease {fields['lease']}", int(fields["tsi"])
        what, flow, _, _, session, number, _ = HEADER.unpack(frame[HEADERS : HEADERS + HEADER_BYTES])
        source, destination = self._name(frame[26:30]), self._name(frame[30:34])
        stream = f"{source} → {destination}" + (f", flow {flow}" if flow else "")
        if PORT_WITH_A_JOB in _ports(frame) or not {source, destination} <= {*self._members}:
            return "other traffic", f"{stream}, transfer {session}", number
        return ("between hosts" if what == DATA else "acknowledgements"), stream, number

    def _name(self, address: bytes) -> str:
        return self._names[address] if address in self._names else str(IPv4Address(address))


def _ports(frame: bytes) -> tuple[int, int]:
    return int.from_bytes(frame[34:36]), int.from_bytes(frame[36:38])


def _is_aggregation(frame: bytes) -> bool:
    return any(port in UDP_PORTS for port in _ports(frame))
