"""Requests in virtual time: front ends ask servers over connections, and servers answer after they have computed.

A server computes for a limited number of requests at once; the others wait in a queue.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from fanin.simulator.fabric import Fabric
from fanin.simulator.flows import FIRST_SOURCE_PORT, FLOW_PORT, LAST_SOURCE_PORT, StreamStation
from fanin.simulator.job_spec import CongestionControlOf, dctcp
from fanin.workers.collective import Transport
from fanin.workers.host_based.transport import Ends, Sender, StreamCounts, open_stream
from fanin.workers.recovery import Recovery

_GREETING = 64  # bytes of each packet that opens a connection
_PORTS_DRAW = 4  # separates draws of ports from other draws with the same seed

Then = Callable[[float], None]  # called with the time in seconds


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a front end to one server.

    Attributes:
        server: Name of the server's host.
        seconds: Time for which the server computes.
    """

    server: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Request:
    """Questions that a front end asks at the same time; the request ends with the last answer.

    Attributes:
        front_end: Name of its host.
        start: Time in seconds.
        questions: The questions, each to another server.
    """

    front_end: str
    start: float
    questions: Sequence[Question]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The sending and serving of requests.

    Attributes:
        request_bytes: Size of a question.
        answer_bytes: Size of an answer.
        slots: Questions for which a server computes at the same time.
        reuse: Whether connections stay open for later requests; if not, each question has its own.
        greetings: Round trips before the first question on a new connection. Connections that are reused are open from
            the beginning.
        window: Maximum number of packets in flight on a connection, each way.
        transport: Transport of the connections.
        recovery: Timers of the transport.
        congestion_control: Makes the congestion control of each end of a connection.
        seed: Seed for the UDP ports. All connections between two hosts have the same ones, and so the same path.
    """

    request_bytes: int
    answer_bytes: int
    slots: int
    reuse: bool
    greetings: int
    window: int
    transport: Transport
    recovery: Recovery
    congestion_control: CongestionControlOf = dctcp
    seed: int = 0


@dataclass(slots=True)
class _Way:
    """A direction of a connection, as the ends of it share it.

    Attributes:
        sender: The sender of the stream.
        session: The number of the stream.
        messages: Bytes that are still to arrive of each message, and what happens when all have.
    """

    sender: Sender
    session: int
    messages: deque[tuple[int, Then]] = field(default_factory=deque)


class _Host(StreamStation):
    """A host that sends messages, and does something when those of others have arrived."""

    def __init__(self, fabric: Fabric, name: str) -> None:
        super().__init__(fabric, name, 0)
        self.agenda: list[tuple[float, int, Then]] = []  # a heap: when, an order of equal times, what
        self._order = count()
        self._ways: dict[int, _Way] = {}  # that end here

    def at(self, time: float, then: Then) -> None:
        """Do something at a time (seconds)."""
        heapq.heappush(self.agenda, (time, next(self._order), then))

    def say(self, way: _Way, size: int, then: Then) -> None:
        """Send a message of `size` bytes; `then` is called at the other end when all of it has arrived."""
        way.messages.append((size, then))
        self._send(way.session, way.sender, size)

    def expect(self, way: _Way) -> None:
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


class _Server(_Host):
    """A server with its queue.

    Attributes:
        waits: Seconds for which each question has waited.
        busy: Seconds for which it has computed, over all questions.
    """

    def __init__(self, fabric: Fabric, name: str, slots: int) -> None:
        super().__init__(fabric, name)
        self.waits: list[float] = []
        self.busy = 0.0
        self._free = slots
        self._queue: deque[tuple[float, float, Then]] = deque()  # when it came, seconds, what follows

    def serve(self, seconds: float, now: float, then: Then) -> None:
        """Compute for a question as soon as the server can."""
        self._queue.append((now, seconds, then))
        self._next(now)

    def _next(self, now: float) -> None:
        while self._free and self._queue:
            came, seconds, then = self._queue.popleft()
            self._free -= 1
            self.waits.append(now - came)
            self.busy += seconds
            self.at(now + seconds, lambda time, then=then: self._done(time, then))  # type: ignore[misc]

    def _done(self, now: float, then: Then) -> None:
        self._free += 1
        then(now)
        self._next(now)


class Requests:
    """Requests on a fabric without jobs.

    Args:
        fabric: The network.
        requests: The requests.
        service: How they are sent and served.

    Attributes:
        ended: When each request has ended, in seconds; NaN before that.
        counts: Events of the transport, over all connections.
    """

    def __init__(self, fabric: Fabric, requests: Sequence[Request], service: Service) -> None:
        self.ended = np.full(len(requests), np.nan)
        self.counts = StreamCounts()
        self._fabric, self._service = fabric, service
        ports = np.random.default_rng((service.seed, _PORTS_DRAW))
        self._sessions = count()
        self._open: dict[tuple[str, str], tuple[_Way, _Way]] = {}
        self._left = [len(request.questions) for request in requests]
        self._unfinished = len(requests)
        self._ports = defaultdict[tuple[str, str], int](
            lambda: int(ports.integers(FIRST_SOURCE_PORT, LAST_SOURCE_PORT))
        )
        names = dict.fromkeys(one.server for request in requests for one in request.questions)
        self.servers = {name: _Server(fabric, name, service.slots) for name in names}
        self._front_ends = {
            name: _Host(fabric, name) for name in dict.fromkeys(request.front_end for request in requests)
        }
        for number, request in enumerate(requests):
            self._front_ends[request.front_end].at(
                request.start,
                lambda now, number=number, request=request: self._ask(number, request, now),  # type: ignore[misc]
            )
        for name, station in (self.servers | self._front_ends).items():
            fabric.add_flow_station(name, station, (), station.deadline() or 0.0)

    def run(self, limit: float) -> bool:
        """Run until every request has ended; return False if `limit` (seconds) comes first."""
        return self._fabric.network.run(lambda: not self._unfinished, limit)

    def _ask(self, number: int, request: Request, now: float) -> None:
        """Ask all questions of a request."""
        for question in request.questions:
            key = request.front_end, question.server
            greetings = 0
            if key not in self._open or not self._service.reuse:
                self._open[key] = self._connect(*key)
                greetings = 0 if self._service.reuse else self._service.greetings
            self._greet(number, request, question, self._open[key], greetings, now)

    def _greet(
        self,
        number: int,
        request: Request,
        question: Question,
        ways: tuple[_Way, _Way],
        left: int,
        _now: float,
    ) -> None:
        """Go through what is left of the greetings on a connection, then ask a question and wait for the answer."""
        there, back = ways
        server, front_end = self.servers[question.server], self._front_ends[request.front_end]

        def answer(_: float) -> None:
            server.say(back, self._service.answer_bytes, lambda now: self._answered(number, now))

        def greeted(now: float) -> None:
            self._greet(number, request, question, ways, left - 1, now)

        if left:
            front_end.say(there, _GREETING, lambda _: server.say(back, _GREETING, greeted))
        else:
            front_end.say(
                there, self._service.request_bytes, lambda now: server.serve(question.seconds, now, answer)
            )

    def _answered(self, number: int, now: float) -> None:
        self._left[number] -= 1
        if not self._left[number]:
            self.ended[number] = now
            self._unfinished -= 1

    def _connect(self, front_end: str, server: str) -> tuple[_Way, _Way]:
        """Return the directions of a new connection, to the server and back."""
        near, far = self._front_ends[front_end], self.servers[server]
        port = self._ports[front_end, server]
        return self._way(near, far, (port, FLOW_PORT)), self._way(far, near, (FLOW_PORT, port))

    def _way(self, source: _Host, destination: _Host, ports: tuple[int, int]) -> _Way:
        service, session = self._service, next(self._sessions)
        there = Ends(source.host.rank, destination.host.rank, session)
        back = Ends(destination.host.rank, source.host.rank, session)
        control = service.congestion_control(self._fabric.topology, source.host.name)
        opened = service.transport, there, service.window, service.recovery, self.counts
        sender, _ = open_stream(*opened, control)
        _, receiver = open_stream(service.transport, back, *opened[2:])
        source.open_stream(session, destination.host, ports)
        destination.open_stream(session, source.host, ports[::-1])
        destination.will_receive(session, receiver)
        way = _Way(sender, session)
        destination.expect(way)
        return way
