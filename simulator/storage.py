"""File servers in virtual time, from which the workers of a job read their data, and to which they write checkpoints.

A worker asks for a batch, and the server sends it at once. A checkpoint waits for its turn: a worker asks, and sends
when the server lets it. Reading and writing have a connection each, so neither waits behind the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from fanin.simulator.fabric import Fabric, Job
from fanin.simulator.flows import FIRST_SOURCE_PORT, FLOW_PORT, LAST_SOURCE_PORT
from fanin.simulator.hosts.stations import WorkerStation
from fanin.simulator.messages import Connections, MessageStation, Then, Way
from fanin.simulator.network import ON_WAKES

ASKING = 64  # bytes of a message that asks, lets a worker write, or says that all has arrived
_PORTS_DRAW = 9  # separates draws of ports from other draws with the same seed


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageUse:
    """The use of file servers by each worker.

    Attributes:
        batch: Bytes that it reads for each step; 0: nothing.
        prefetch: Batches that it asks for before a step needs them.
        checkpoint: Bytes that it writes for each checkpoint; 0: nothing.
        every: Steps from one checkpoint to the next.
        writers: Workers that write to a server at the same time. None: all.
        steps: Steps of the job.
    """

    batch: int
    prefetch: int
    checkpoint: int
    every: int
    writers: int | None
    steps: int


class Storage:
    """File servers, and the use that a job makes of them.

    Args:
        fabric: The network.
        job: The job, whose steps need data if it reads any.
        servers: Names of the servers' hosts; workers are spread evenly over them.
        use: What each worker reads and writes.
        connections: The transport.
        priority: Priority of the packets, where links have queues for each.
        seed: Seed for the UDP ports.

    Attributes:
        counts: Events of the transport, over all connections.
    """

    def __init__(
        self,
        fabric: Fabric,
        job: Job,
        servers: Sequence[str],
        use: StorageUse,
        connections: Connections,
        priority: int = 0,
        seed: int = 0,
    ) -> None:
        self._fabric, self.counts = fabric, connections.counts
        ports = iter(
            np.random.default_rng((seed, _PORTS_DRAW))
            .choice(np.arange(FIRST_SOURCE_PORT, LAST_SOURCE_PORT), 2 * len(job.members), replace=False)
            .tolist()
        )
        self._servers = [_Server(fabric, name, use.writers, priority) for name in servers]
        self._clients = []
        for member, worker, server in zip(job.members, job.stations, cycle(self._servers), strict=False):
            client = _Client(fabric, member, worker, server, use, priority)
            client.reads, client.writes = (
                connections.connect(client, server, (next(ports), FLOW_PORT)) for _ in range(2)
            )
            self._clients.append(client)
            if use.batch:
                worker.loaded = []
        for station in (*self._servers, *self._clients):
            fabric.add_flow_station(station.host.name, station, station.ports, 0.0)

    def run(self, limit: float) -> bool:
        """Run until all checkpoints are written; return False if `limit` (seconds) comes first."""
        return self._fabric.network.run(
            lambda: all(client.idle for client in self._clients), limit, watched=ON_WAKES
        )

    def read_seconds(self, first: int = 0) -> list[float]:
        """Return the time of each worker's reads from its `first` one on, from the question to the last byte."""
        return [seconds for client in self._clients for seconds in client.read_seconds[first:]]

    @property
    def checkpoint_seconds(self) -> list[float]:
        """Return the time of each checkpoint, from the first worker that asked to the last that had written."""
        each = zip(*(client.written for client in self._clients), strict=True)
        return [max(ended for _, ended in parts) - min(asked for asked, _ in parts) for parts in each]


class _Server(MessageStation):
    """A file server, which lets only some workers write at the same time."""

    def __init__(self, fabric: Fabric, name: str, writers: int | None, priority: int) -> None:
        super().__init__(fabric, name, priority)
        self._free = writers
        self._queue: deque[Then] = deque()

    def take_turn(self, then: Then, now: float) -> None:
        """Call `then` as soon as one more worker may write."""
        self._queue.append(then)
        self._next(now)

    def end_turn(self, now: float) -> None:
        """Let the next worker write."""
        if self._free is not None:
            self._free += 1
        self._next(now)

    def _next(self, now: float) -> None:
        while self._queue and self._free != 0:
            if self._free is not None:
                self._free -= 1
            self._queue.popleft()(now)


class _Client(MessageStation):
    """The reads and writes of a worker.

    Attributes:
        reads: The connection for reading.
        writes: The connection for writing.
        read_seconds: Time of each read.
        written: When it asked to write each checkpoint, and when the server had it, in seconds.
    """

    reads: tuple[Way, Way]
    writes: tuple[Way, Way]

    def __init__(
        self,
        fabric: Fabric,
        name: str,
        worker: WorkerStation[Any],
        server: _Server,
        use: StorageUse,
        priority: int,
    ) -> None:
        super().__init__(fabric, name, priority)
        self.read_seconds: list[float] = []
        self.written: list[tuple[float, float]] = []
        self._worker, self._server, self._use = worker, server, use
        self._asked = 0  # batches
        self._checkpoints = 0  # begun

    @property
    def idle(self) -> bool:
        """Return whether all checkpoints that are due have been written."""
        return len(self.written) == self._due

    @property
    def _due(self) -> int:
        use = self._use
        return self._worker.steps_done // use.every if use.checkpoint else 0

    @property
    def _wanted(self) -> int:
        """Return how many batches to have asked for by now."""
        use, worker = self._use, self._worker
        if not use.batch:
            return 0
        ahead = worker.steps_loaded + use.prefetch if use.prefetch else worker.steps_done + 1
        return min(ahead, use.steps)

    def _begin(self, now: float) -> None:
        super()._begin(now)
        while self._asked < self._wanted:
            self._asked += 1
            self._read(now)
        # A checkpoint begins when the one before is complete.
        if self._checkpoints < self._due and self._checkpoints == len(self.written):
            self._checkpoints += 1
            self._write(now)

    def _read(self, asked: float) -> None:
        there, back = self.reads

        def arrived(now: float) -> None:
            self.read_seconds.append(now - asked)
            self._worker.load(now)

        self.say(there, ASKING, lambda _: self._server.say(back, self._use.batch, arrived))

    def _write(self, asked: float) -> None:
        (there, back), server = self.writes, self._server

        def ended(now: float) -> None:
            self.written.append((asked, now))

        def stored(now: float) -> None:
            server.say(back, ASKING, ended)
            server.end_turn(now)

        def may_write(_: float) -> None:
            server.say(back, ASKING, lambda _: self.say(there, self._use.checkpoint, stored))

        self.say(there, ASKING, lambda now: server.take_turn(may_write, now))
