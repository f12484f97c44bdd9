"""Requests in virtual time: front ends ask servers over connections, and servers answer after they have computed.

A server computes for a limited number of requests at once; the others wait in a queue.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fanin.simulator.fabric import Fabric
from fanin.simulator.flows import FIRST_SOURCE_PORT, FLOW_PORT, LAST_SOURCE_PORT
from fanin.simulator.job_spec import CongestionControlOf, dctcp
from fanin.simulator.messages import Connections, MessageStation, Then, Way
from fanin.simulator.network import ON_WAKES
from fanin.workers.collective import Transport
from fanin.workers.recovery import Recovery

_GREETING = 64  # bytes of each packet that opens a connection
_PORTS_DRAW = 4  # separates draws of ports from other draws with the same seed


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


class _Server(MessageStation):
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
        self._connections = Connections(
            fabric=fabric,
            transport=service.transport,
            window=service.window,
            recovery=service.recovery,
            congestion_control=service.congestion_control,
        )
        self.counts = self._connections.counts
        self._fabric, self._service = fabric, service
        ports = np.random.default_rng((service.seed, _PORTS_DRAW))
        self._open: dict[tuple[str, str], tuple[Way, Way]] = {}
        self._left = [len(request.questions) for request in requests]
        self._unfinished = len(requests)
        self._ports = defaultdict[tuple[str, str], int](
            lambda: int(ports.integers(FIRST_SOURCE_PORT, LAST_SOURCE_PORT))
        )
        names = dict.fromkeys(one.server for request in requests for one in request.questions)
        self.servers = {name: _Server(fabric, name, service.slots) for name in names}
        self._front_ends = {
            name: MessageStation(fabric, name)
            for name in dict.fromkeys(request.front_end for request in requests)
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
        return self._fabric.network.run(lambda: not self._unfinished, limit, watched=ON_WAKES)

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
        ways: tuple[Way, Way],
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

    def _connect(self, front_end: str, server: str) -> tuple[Way, Way]:
        """Return the directions of a new connection, to the server and back."""
        near, far = self._front_ends[front_end], self.servers[server]
        port = self._ports[front_end, server]
        return self._connections.connect(near, far, (port, FLOW_PORT))
