"""Flows in virtual time: transfers from one host to another, using the transport of host-based all-reduce.

They can use any hosts. They fill queues, and are marked, dropped and paused like the packets of a job.
"""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from fanin.simulator.compiled import CardInC
from fanin.simulator.fabric import Fabric
from fanin.simulator.hosts import stations
from fanin.simulator.job_spec import CongestionControlOf, dctcp
from fanin.simulator.segments import segments
from fanin.topologies.model import Host, Topology
from fanin.workers.collective import Transport
from fanin.workers.congestion import ECN_CAPABLE
from fanin.workers.host_based.congestion_control import MakeControl
from fanin.workers.host_based.engine.compiled import FLOW, in_c, library, settings_of
from fanin.workers.host_based.engine.flows import CompiledFlows
from fanin.workers.host_based.transport import (
    DATA,
    HEADER,
    HEADER_BYTES,
    PAYLOAD,
    Ends,
    Receiver,
    Sender,
    StreamCounts,
    open_stream,
    packet_numbers,
)
from fanin.workers.recovery import Recovery
from fanin.workers.wire import HEADERS

Frames = NDArray[np.uint8]  # [m, length]

FLOW_PORT = 20_000  # UDP port where flows are received
PORT_WITH_A_JOB = 19_999  # the same, on a host that has a job
FIRST_SOURCE_PORT, LAST_SOURCE_PORT = 32_768, 61_000  # the range from which Linux gives each new socket one
_STREAM = slice(2, 10)  # bytes of a datagram that hold source, destination and session
_PORTS_DRAW = 2  # separates draws of ports from other draws with the same seed


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSpec:
    """One flow: `size` bytes of payload from host `source` to host `destination`, beginning at `start` (seconds).

    `kind` is a number that results carry; by it, scripts tell flows apart. It changes nothing in the run.
    """

    source: str
    destination: str
    size: int
    start: float = 0.0
    kind: int = 100  # of ordinary flows in HPCC's simulations


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedFlow(FlowSpec):
    """A flow that has arrived.

    Attributes:
        seconds: Time from its start until its last byte was delivered at the destination.
    """

    seconds: float


class Flows:
    """Flows on a fabric, alone or next to jobs that were started before.

    Args:
        fabric: The network.
        flows: The flows.
        window: Maximum number of packets in flight per flow.
        transport: Transport between the hosts.
        recovery: Timers of the transport.
        congestion_control: Makes the congestion control of each flow.
        seed: Seed for the UDP port of each flow, which spreads the flows over the spines.
        priority: Priority of the packets, where links have queues for each.
        payload: Bytes of payload in a full packet.

    Raises:
        ValueError: A flow is invalid, or one of its hosts already has flows.
        TopologyError: There is no such host.
    """

    def __init__(
        self,
        fabric: Fabric,
        flows: Sequence[FlowSpec],
        *,
        window: int = 256,
        transport: Transport = "selective-repeat",
        recovery: Recovery,
        congestion_control: CongestionControlOf = dctcp,
        seed: int = 0,
        priority: int = 0,
        payload: int = PAYLOAD,
    ) -> None:
        for number, flow in enumerate(flows):
            _check(f"flows[{number}]", flow)
        self._flows, self._fabric = flows, fabric
        self._counts = StreamCounts()
        self._transport, self._window, self._recovery = transport, window, recovery
        self._congestion_control, self._payload, self._priority = congestion_control, payload, priority
        self._facts = np.zeros(len(flows), FLOW)
        self._unfinished = np.array([len(flows)], np.int64)
        self._in_c: CompiledFlows | None = None
        shared = {name for job in fabric.jobs for name in job.members}
        draw = np.random.default_rng((seed, _PORTS_DRAW))
        ports = draw.integers(FIRST_SOURCE_PORT, LAST_SOURCE_PORT, len(flows)).tolist()
        ends: dict[str, list[_End]] = {}
        for session, (flow, port) in enumerate(zip(flows, ports, strict=True)):
            source, destination = (fabric.topology.host(name) for name in (flow.source, flow.destination))
            self._facts[session] = source.rank, destination.rank, flow.size, flow.size, flow.start, np.nan
            received_at = PORT_WITH_A_JOB if flow.destination in shared else FLOW_PORT
            ends.setdefault(flow.source, []).append(
                _End(session, destination, (port, received_at), sends=True)
            )
            ends.setdefault(flow.destination, []).append(
                _End(session, source, (received_at, port), sends=False)
            )
        controls = {name: congestion_control(fabric.topology, name) for name in ends}
        fast = [
            name
            for name in ends
            if name not in shared and fabric.has_plain_card(name) and in_c(transport, controls[name](window))
        ]
        if not library():
            fast = []
        if fast:
            self._run_in_c({name: ends[name] for name in fast}, controls)
        for name in [name for name in ends if name not in fast]:
            self._run_in_python(name, ends[name], controls[name])

    def _run_in_c(self, ends: Mapping[str, Sequence[_End]], controls: Mapping[str, MakeControl]) -> None:
        """Leave hosts that have nothing else to do to C."""
        headers = np.zeros((len(self._flows), 2, HEADERS), np.uint8)
        made = self._in_c = CompiledFlows(self._facts, headers, self._unfinished, len(ends))
        for name, here in ends.items():
            frames = _Headers(self._fabric.topology, name, self._priority)
            for end in here:
                headers[end.session, int(not end.sends)] = frames.to(end.other, end.ports).header(0)
            settings = settings_of(
                self._transport, self._window, self._payload, self._recovery, controls[name](self._window)
            )
            worker = made.add_host(frames.host.rank, settings)
            card = self._fabric.card(name)
            station = CardInC(
                *(*made.functions, 0, worker, card.byte_seconds, card.ahead, card.overhead),
                frames.host.ip.packed,
                made,
            )
            begin = min((self._flows[end.session].start for end in here if end.sends), default=0.0)
            self._fabric.add_flow_station(name, station, {end.ports[0] for end in here}, begin)

    def _run_in_python(self, name: str, ends: Sequence[_End], control: MakeControl) -> None:
        """Handle a host that C cannot: it has a job as well, no plain card, or a transport or control that C lacks."""
        station = FlowStation(self._fabric, name, self._priority, self._facts, self._unfinished)
        rank, settings = station.host.rank, (self._window, self._recovery, self._counts)
        for end in ends:
            stream = Ends(rank, end.other.rank, end.session, payload=self._payload)
            sender, receiver = open_stream(self._transport, stream, *settings, control)
            station.open_stream(end.session, end.other, end.ports)
            if end.sends:
                station.will_send(end.session, self._flows[end.session], sender)
            else:
                station.will_receive(end.session, receiver)
        self._fabric.add_flow_station(name, station, station.ports, station.deadline() or 0.0)

    @property
    def counts(self) -> StreamCounts:
        """Return the events of the transport so far, over all flows."""
        found = StreamCounts(
            self._counts.retransmissions, self._counts.timeouts, Counter(self._counts.ignored)
        )
        if self._in_c:
            self._in_c.count(found)
        return found

    @property
    def finished(self) -> bool:
        """Return whether every flow has arrived."""
        return not self._unfinished[0]

    @property
    def completed(self) -> list[FinishedFlow]:
        """Return the flows that have arrived so far, in the order in which they were given."""
        return [
            FinishedFlow(**asdict(flow), seconds=ended - flow.start)
            for flow, ended in zip(self._flows, self._facts["ended"].tolist(), strict=True)
            if not math.isnan(ended)
        ]

    @property
    def missing(self) -> list[int]:
        """Return the bytes of each flow that have not been delivered at its destination so far."""
        missing: list[int] = self._facts["missing"].tolist()
        return missing

    def run(self, limit: float) -> bool:
        """Run until every flow has arrived; return False if `limit` (seconds) comes first. It may be called again."""
        return self._fabric.network.run(lambda: self.finished, limit, watched=self._unfinished)


@dataclass(frozen=True, slots=True)
class _End:
    """An end of a flow: the flow's number, the host at the other end, and the UDP ports of this and the other end."""

    session: int
    other: Host
    ports: tuple[int, int]
    sends: bool


class _Headers:
    """Headers of what a host sends."""

    def __init__(self, topology: Topology, name: str, priority: int) -> None:
        self.host = topology.host(name)
        self._gateway_mac = topology.switch(self.host.leaf).mac
        self._priority = priority
        self._made: dict[tuple[int, tuple[int, int]], stations.Flow] = {}

    def to(self, other: Host, ports: tuple[int, int]) -> stations.Flow:
        """Return those of frames to another host, from and to these UDP ports."""
        key = other.rank, ports
        if key not in self._made:
            self._made[key] = stations.Flow(
                self.host, self._gateway_mac, other.ip, *ports, ECN_CAPABLE, self._priority
            )
        return self._made[key]


def _check(place: str, flow: FlowSpec) -> None:
    if flow.source == flow.destination:
        raise ValueError(f"{place}: from {flow.source} to itself; give it another destination")
    if flow.size < 1:
        raise ValueError(f"{place}.size: is {flow.size}, must be at least 1 byte")
    if not 0 <= flow.start < float("inf"):
        raise ValueError(f"{place}.start: is {flow.start}, must be a time from 0 on, in seconds")


class StreamStation(ABC):
    """A Station with the ends of streams at one host, which take turns on its network card.

    Args:
        fabric: The network.
        name: Name of the host.
        priority: Priority of its packets.

    Attributes:
        host: The host.
        ports: UDP ports of the streams here.
    """

    def __init__(self, fabric: Fabric, name: str, priority: int) -> None:
        self.ports: set[int] = set()
        self._frames = _Headers(fabric.topology, name, priority)
        self.host = self._frames.host
        self._card = fabric.card(name)
        self._filter = stations.FrameFilter(self.host.ip)
        self._sending: dict[
            int, Sender
        ] = {}  # streams with something to send, or with unacknowledged packets
        self._receivers: dict[int, Receiver] = {}
        self._peers: dict[int, int] = {}  # rank of the other host, by stream
        self._headers: dict[int, stations.Flow] = {}
        self._answering: set[int] = set()  # streams that are owed an acknowledgement

    @abstractmethod
    def _begin(self, now: float) -> None:
        """Give senders what they have to send from now on."""

    @abstractmethod
    def _arrived(self, session: int, size: int, now: float) -> None:
        """Process the next `size` bytes of a stream, which have arrived in order."""

    @property
    @abstractmethod
    def _begins_at(self) -> float | None:
        """Return when to _begin() next, in seconds; None if that is unknown."""

    def open_stream(self, session: int, other: Host, ports: tuple[int, int]) -> None:
        """Take part in a stream to or from another host; `ports` are the UDP ports of this and the other end."""
        self.ports.add(ports[0])
        self._peers[session] = other.rank
        self._headers[session] = self._frames.to(other, ports)

    def will_receive(self, session: int, receiver: Receiver) -> None:
        """Receive a stream."""
        self._receivers[session] = receiver

    def _send(self, session: int, sender: Sender, size: int) -> None:
        """Send `size` more bytes of a stream."""
        self._sending[session] = sender
        sender.write(np.broadcast_to(np.uint8(0), size))  # takes no memory

    def receive(self, frames: Frames, lengths: NDArray[np.int64], now: float) -> None:
        """See Station."""
        for alike in segments(lengths):
            length = int(lengths[alike.start])
            ours, marked = self._filter(frames[alike, :length])
            if not len(ours) or length < HEADERS + HEADER_BYTES:
                continue
            datagrams = ours[:, HEADERS:]
            ends = datagrams[:, : _STREAM.stop]  # the kind, and the stream
            if len(ends) == 1 or bool((ends == ends[0]).all()):
                self._take(datagrams, 0 if marked is None else int(marked.sum()), now)
                continue
            streams = np.ascontiguousarray(datagrams[:, _STREAM]).view("V8")[:, 0]
            _, kinds = np.unique(streams, return_inverse=True)
            order = np.argsort(kinds, kind="stable")
            for part in segments(kinds[order]):
                rows = order[part]
                self._take(datagrams[rows], 0 if marked is None else int(marked[rows].sum()), now)

    def _take(self, datagrams: Frames, marked: int, now: float) -> None:
        """Take datagrams of one stream, in their order."""
        kind, _, source, destination, session, _, _ = HEADER.unpack(datagrams[0, :HEADER_BYTES].tobytes())
        if destination != self.host.rank or self._peers.get(session) != source:
            return
        if kind == DATA and session in self._receivers:
            self._answering.add(session)
            payloads = datagrams[:, HEADER_BYTES:]
            arrived = self._receivers[session].accept(packet_numbers(datagrams), payloads, marked)
            if size := sum(rows.size for rows in arrived):
                self._arrived(session, size, now)
        elif kind != DATA and session in self._sending:
            sender = self._sending[session]
            for answer in datagrams:
                answered, _, _, _, _, number, seen = HEADER.unpack(answer[:HEADER_BYTES].tobytes())
                sender.acknowledge(answered, number, seen, answer[HEADER_BYTES:], now)
            if sender.done:
                del self._sending[session]

    def frames_to_send(self, now: float) -> list[Frames]:
        """Return acknowledgements, then data of the streams in turn; see Station."""
        self._begin(now)
        for session in sorted(self._answering):
            answer = self._receivers[session].answer()
            if answer is not None:
                self._card.acknowledge(self._headers[session].frames(answer))
        self._answering.clear()
        for session, sender in self._sending.items():
            for batch in sender.datagrams(now):
                self._card.send(session, self._headers[session].frames(batch))
        return self._card.take(now)

    def deadline(self) -> float | None:
        """See Station."""
        known = [time for time in (self._begins_at, self._card.ready_at) if time is not None]
        return min([*known, *(sender.deadline() for sender in self._sending.values())], default=None)


class FlowStation(StreamStation):
    """A Station with the ends of all flows at one host.

    Args:
        fabric: The network.
        name: Name of the host.
        priority: Priority of its packets.
        facts: The flows, FLOW [flows], in which the station counts what is missing and writes when a flow has ended.
        unfinished: How many flows have not ended [1], which it counts.
    """

    def __init__(
        self,
        fabric: Fabric,
        name: str,
        priority: int,
        facts: NDArray[np.void],
        unfinished: NDArray[np.int64],
    ) -> None:
        super().__init__(fabric, name, priority)
        self._facts, self._unfinished = facts, unfinished
        self._to_begin: list[tuple[float, int, int]] = []  # a heap: when, which flow, bytes
        self._senders: dict[int, Sender] = {}

    def will_send(self, session: int, flow: FlowSpec, sender: Sender) -> None:
        """Register `flow` as one that begins here."""
        heapq.heappush(self._to_begin, (flow.start, session, flow.size))
        self._senders[session] = sender

    def _begin(self, now: float) -> None:
        while self._to_begin and self._to_begin[0][0] <= now:
            _, session, size = heapq.heappop(self._to_begin)
            self._send(session, self._senders.pop(session), size)

    @property
    def _begins_at(self) -> float | None:
        return self._to_begin[0][0] if self._to_begin else None

    def _arrived(self, session: int, size: int, now: float) -> None:
        flow = self._facts[session]
        flow["missing"] -= size
        if not flow["missing"]:
            flow["ended"] = now
            self._unfinished[0] -= 1
