"""Hosts in virtual time that send one another messages over open connections, and act when messages have arrived."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from fanin.simulator.fabric import Fabric
from fanin.simulator.flows import StreamStation
from fanin.simulator.job_spec import CongestionControlOf, dctcp
from fanin.workers.collective import Transport
from fanin.workers.host_based.transport import PAYLOAD, Ends, Sender, StreamCounts, open_stream
from fanin.workers.recovery import Recovery

Then = Callable[[float], None]  # called with the time in seconds


@dataclass(slots=True)
class Way:
    """A direction of a connection, as the ends of it share it.

    Attributes:
        sender: The sender of the stream.
        session: The number of the stream.
        messages: Bytes that are still to arrive of each message, and what happens when all have.
    """

    sender: Sender
    session: int
    messages: deque[tuple[int, Then]] = field(default_factory=deque)


class MessageStation(StreamStation):
    """A host that sends messages, and does something when those of others have arrived."""

    def __init__(self, fabric: Fabric, name: str, priority: int = 0) -> None:
        super().__init__(fabric, name, priority)
        self.agenda: list[tuple[float, int, Then]] = []  # a heap: when, an order of equal times, what
        self._order = count()
        self._ways: dict[int, Way] = {}  # that end here

    def at(self, time: float, then: Then) -> None:
        """Do something at a time (seconds)."""
        heapq.heappush(self.agenda, (time, next(self._order), then))

    def say(self, way: Way, size: int, then: Then) -> None:
        """Send a message of `size` bytes; `then` is called at the other end when all of it has arrived."""
        way.messages.append((size, then))
        self._send(way.session, way.sender, size)

    def expect(self, way: Way) -> None:
        """Receive the messages of a direction."""
        self._ways[way.session] = way

    def _begin(self, now: float) -> None:
        while self.agenda and self.agenda[0][0] <= now:
            time, _, then = heapq.heappop(self.agenda)
            then(time)

    @property
    def _begins_at(self) -> float | None:
        return self.agenda[0][0] if self.agenda else None

    def _arrived(self, session: int, size: int, now: float) -> None:
        messages = self._ways[session].messages
        while size:
            left, then = messages.popleft()
            if left > size:
                messages.appendleft((left - size, then))
                return
            size -= left
            then(now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """The transport of connections.

    Attributes:
        fabric: The network.
        transport: Transport of the connections.
        window: Maximum number of packets in flight on a connection, each way.
        recovery: Timers of the transport.
        congestion_control: Makes the congestion control of each end of a connection.
        payload: Bytes of payload in a full packet.
        counts: Events of the transport, over all connections.
    """

    fabric: Fabric
    transport: Transport
    window: int
    recovery: Recovery
    congestion_control: CongestionControlOf = dctcp
    payload: int = PAYLOAD
    counts: StreamCounts = field(default_factory=StreamCounts)
    _sessions: count[int] = field(default_factory=count)

    def connect(self, near: MessageStation, far: MessageStation, ports: tuple[int, int]) -> tuple[Way, Way]:
        """Return the directions of a new connection, there and back; `ports` are the UDP ports here and there."""
        return self._way(near, far, ports), self._way(far, near, (ports[1], ports[0]))

    def _way(self, source: MessageStation, destination: MessageStation, ports: tuple[int, int]) -> Way:
        session = next(self._sessions)
        there = Ends(source.host.rank, destination.host.rank, session, payload=self.payload)
        back = Ends(destination.host.rank, source.host.rank, session)
        control = self.congestion_control(self.fabric.topology, source.host.name)
        opened = self.window, self.recovery, self.counts
        sender, _ = open_stream(self.transport, there, *opened, control)
        _, receiver = open_stream(self.transport, back, *opened)
        source.open_stream(session, destination.host, ports)
        destination.open_stream(session, source.host, (ports[1], ports[0]))
        destination.will_receive(session, receiver)
        way = Way(sender, session)
        destination.expect(way)
        return way
