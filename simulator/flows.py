"""Flows in virtual time: transfers from one host to another, using the transport of host-based all-reduce.

They can use any hosts. They fill queues, and are marked, dropped and paused like the packets of a job.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from fanin.simulator.fabric import Fabric
from fanin.simulator.hosts import stations
from fanin.simulator.job_spec import CongestionControlOf, dctcp
from fanin.simulator.segments import segments
from fanin.topologies.model import Host
from fanin.workers.collective import Transport
from fanin.workers.congestion import ECN_CAPABLE
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

    Attributes:
        counts: Events of the transport, over all flows.

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
        shared = {name for job in fabric.jobs for name in job.members}
        self.counts = StreamCounts()
        self._flows = flows
        self._fabric = fabric
        ports = (
            np.random.default_rng((seed, _PORTS_DRAW))
            .integers(FIRST_SOURCE_PORT, LAST_SOURCE_PORT, len(flows))
            .tolist()
        )
        names = dict.fromkeys(name for flow in flows for name in (flow.source, flow.destination))
        self._stations = {name: FlowStation(fabric, name, priority) for name in names}
        for session, (flow, port) in enumerate(zip(flows, ports, strict=True)):
            source, destination = self._stations[flow.source], self._stations[flow.destination]
            there = Ends(source.host.rank, destination.host.rank, session, payload=payload)
            back = Ends(destination.host.rank, source.host.rank, session)
            control = congestion_control(fabric.topology, flow.source)
            sender, _ = open_stream(transport, there, window, recovery, self.counts, control)
            _, receiver = open_stream(transport, back, window, recovery, self.counts)
            received_at = PORT_WITH_A_JOB if flow.destination in shared else FLOW_PORT
            source.open_stream(session, destination.host, (port, received_at))
            source.will_send(session, flow, sender)
            destination.open_stream(session, source.host, (received_at, port))
            destination.will_receive(session, receiver)
            destination.expected[session] = flow.size
        for name, station in self._stations.items():
            fabric.add_flow_station(name, station, station.ports, station.deadline() or 0.0)

    @property
    def finished(self) -> bool:
        """Return whether every flow has arrived."""
        return not any(station.expected for station in self._stations.values())

    @property
    def completed(self) -> list[FinishedFlow]:
        """Return the flows that have arrived so far, in the order in which they were given."""
        ended = {session: at for station in self._stations.values() for session, at in station.ended.items()}
        return [
            FinishedFlow(**asdict(flow), seconds=ended[session] - flow.start)
            for session, flow in enumerate(self._flows)
            if session in ended
        ]

    @property
    def missing(self) -> list[int]:
        """Return the bytes of each flow that have not been delivered at its destination so far."""
        left = {
            session: size for station in self._stations.values() for session, size in station.expected.items()
        }
        return [left.get(session, 0) for session in range(len(self._flows))]

    def run(self, limit: float) -> bool:
        """Run until every flow has arrived; return False if `limit` (seconds) comes first. It may be called again."""
        waiting = list(self._stations.values())

        def done() -> bool:
            while waiting and not waiting[-1].expected:
                waiting.pop()
            return not waiting

        return self._fabric.network.run(done, limit)


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
        self.host = fabric.topology.host(name)
        self.ports: set[int] = set()
        self._priority = priority
        self._card = fabric.card(name)
        self._gateway_mac = fabric.topology.switch(self.host.leaf).mac
        self._filter = stations.FrameFilter(self.host.ip)
        self._sending: dict[
            int, Sender
        ] = {}  # streams with something to send, or with unacknowledged packets
        self._receivers: dict[int, Receiver] = {}
        self._peers: dict[int, int] = {}  # rank of the other host, by stream
        self._headers: dict[int, stations.Flow] = {}
        self._alike: dict[tuple[int, tuple[int, int]], stations.Flow] = {}  # by the other host and the ports
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
        key = other.rank, ports
        if key not in self._alike:
            gateway = self._gateway_mac
            self._alike[key] = stations.Flow(
                self.host, gateway, other.ip, *ports, ECN_CAPABLE, self._priority
            )
        self._headers[session] = self._alike[key]

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

    Attributes:
        ended: When each flow to this host had arrived, in seconds, by its number.
        expected: Bytes still to come of the other flows, by number.
    """

    def __init__(self, fabric: Fabric, name: str, priority: int) -> None:
        super().__init__(fabric, name, priority)
        self.ended: dict[int, float] = {}
        self.expected: dict[int, int] = {}
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
        if session not in self.expected:
            return
        self.expected[session] -= size
        if not self.expected[session]:
            del self.expected[session]
            self.ended[session] = now
