"""Flows in virtual time: transfers from one host to another, using the transport of host-based all-reduce.

They can use any hosts. They fill queues, and are marked, dropped and paused like the packets of a job.
"""

from __future__ import annotations

import heapq
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

_PORT = 20_000  # UDP port where flows are received
PORT_WITH_A_JOB = 19_999  # the same, on a host that has a job
_SOURCE_PORTS = (32_768, 61_000)  # the range from which Linux gives each new socket one
_STREAM = slice(2, 10)  # bytes of a datagram that hold source, destination and session
_PORTS_DRAW = 2  # separates draws of ports from other draws with the same seed


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSpec:
    """One flow: `size` bytes of payload from host `source` to host `destination`, beginning at `start` (seconds)."""

    source: str
    destination: str
    size: int
    start: float = 0.0


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
        ports = np.random.default_rng((seed, _PORTS_DRAW)).integers(*_SOURCE_PORTS, len(flows)).tolist()
        names = dict.fromkeys(name for flow in flows for name in (flow.source, flow.destination))
        self._stations = {name: FlowStation(fabric, name, priority) for name in names}
        for session, (flow, port) in enumerate(zip(flows, ports, strict=True)):
            source, destination = self._stations[flow.source], self._stations[flow.destination]
            there = Ends(source.host.rank, destination.host.rank, session, payload=payload)
            back = Ends(destination.host.rank, source.host.rank, session)
            control = congestion_control(fabric.topology, flow.source)
            sender, _ = open_stream(transport, there, window, recovery, self.counts, control)
            _, receiver = open_stream(transport, back, window, recovery, self.counts)
            received_at = PORT_WITH_A_JOB if flow.destination in shared else _PORT
            source.will_send(session, flow, sender, destination.host, (port, received_at))
            destination.will_receive(session, flow, receiver, source.host, (received_at, port))
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


class FlowStation:
    """A Station with the ends of all flows at one host, which take turns on its network card.

    Attributes:
        ended: When each flow to this host had arrived, in seconds, by its number.
        expected: Bytes still to come of the other flows, by number.
        ports: UDP ports of the flows here.
    """

    def __init__(self, fabric: Fabric, name: str, priority: int) -> None:
        self.host = fabric.topology.host(name)
        self.ended: dict[int, float] = {}
        self.expected: dict[int, int] = {}
        self.ports: set[int] = set()
        self._priority = priority
        self._card = fabric.card(name)
        self._gateway_mac = fabric.topology.switch(self.host.leaf).mac
        self._filter = stations.FrameFilter(self.host.ip)
        self._to_begin: list[tuple[float, int, int]] = []  # a heap: when, which flow, bytes
        self._senders: dict[int, Sender] = {}
        self._sending: dict[int, Sender] = {}  # flows with something to send, or with unacknowledged packets
        self._receivers: dict[int, Receiver] = {}
        self._peers: dict[int, int] = {}  # rank of the other host, by flow
        self._headers: dict[int, stations.Flow] = {}
        self._answering: set[int] = set()  # flows that are owed an acknowledgement

    def will_send(
        self, session: int, flow: FlowSpec, sender: Sender, to: Host, ports: tuple[int, int]
    ) -> None:
        """Register `flow` as one that begins here; `ports` are the UDP ports of this and the other end."""
        heapq.heappush(self._to_begin, (flow.start, session, flow.size))
        self._senders[session] = sender
        self._open(session, to, ports)

    def will_receive(
        self, session: int, flow: FlowSpec, receiver: Receiver, sender: Host, ports: tuple[int, int]
    ) -> None:
        """Register `flow` as one that ends here; `ports` are the UDP ports of this and the other end."""
        self.expected[session] = flow.size
        self._receivers[session] = receiver
        self._open(session, sender, ports)

    def _open(self, session: int, other: Host, ports: tuple[int, int]) -> None:
        self.ports.add(ports[0])
        self._peers[session] = other.rank
        self._headers[session] = stations.Flow(
            self.host, self._gateway_mac, other.ip, *ports, ECN_CAPABLE, self._priority
        )

    def receive(self, frames: Frames, lengths: NDArray[np.int64], now: float) -> None:
        """See Station."""
        for alike in segments(lengths):
            length = int(lengths[alike.start])
            ours, marked = self._filter(frames[alike, :length])
            if not len(ours) or length < HEADERS + HEADER_BYTES:
                continue
            datagrams = ours[:, HEADERS:]
            streams = np.ascontiguousarray(datagrams[:, _STREAM]).view("V8")[:, 0]
            _, kinds = np.unique(streams, return_inverse=True)
            order = np.argsort(kinds, kind="stable")
            for part in segments(kinds[order]):
                rows = order[part]
                self._take(datagrams[rows], 0 if marked is None else int(marked[rows].sum()), now)

    def _take(self, datagrams: Frames, marked: int, now: float) -> None:
        """Take datagrams of one flow, in their order."""
        kind, _, source, destination, session, _, _ = HEADER.unpack(datagrams[0, :HEADER_BYTES].tobytes())
        if destination != self.host.rank or self._peers.get(session) != source:
            return
        if kind == DATA and session in self._receivers:
            self._answering.add(session)
            payloads = datagrams[:, HEADER_BYTES:]
            arrived = self._receivers[session].accept(packet_numbers(datagrams), payloads, marked)
            if session in self.expected:
                self.expected[session] -= sum(rows.size for rows in arrived)
                if not self.expected[session]:
                    del self.expected[session]
                    self.ended[session] = now
        elif kind != DATA and session in self._sending:
            sender = self._sending[session]
            for answer in datagrams:
                answered, _, _, _, _, number, seen = HEADER.unpack(answer[:HEADER_BYTES].tobytes())
                sender.acknowledge(answered, number, seen, answer[HEADER_BYTES:], now)
            if sender.done:
                del self._sending[session]

    def frames_to_send(self, now: float) -> list[Frames]:
        """Return acknowledgements, then data of the flows in turn; see Station."""
        while self._to_begin and self._to_begin[0][0] <= now:
            _, session, size = heapq.heappop(self._to_begin)
            sender = self._sending[session] = self._senders.pop(session)
            sender.write(np.broadcast_to(np.uint8(0), size))  # takes no memory
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
        begin = [self._to_begin[0][0]] if self._to_begin else []
        begin += [] if self._card.ready_at is None else [self._card.ready_at]
        return min([*begin, *(sender.deadline() for sender in self._sending.values())], default=None)
