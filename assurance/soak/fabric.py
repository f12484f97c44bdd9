"""A network in soak: with strangers at its hosts, and jobs that come and go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fanin.assurance.soak.hosts import SoakHost, SoakServer
from fanin.assurance.soak.marks import Marks
from fanin.assurance.soak.order import SendingOrder
from fanin.assurance.soak.queue import Queue
from fanin.assurance.soak.scenario import Scenario
from fanin.assurance.soak.strangers import Flips, Stranger, Tap
from fanin.controller.jobs.budget import Budget
from fanin.controller.planner import Planner
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import SECOND, HostModel
from fanin.simulator.fabric import Fabric, Job
from fanin.simulator.hosts.stations import ServerStation, WorkerStation
from fanin.simulator.links import Packets, Transit
from fanin.simulator.network import Observer
from fanin.workers.host_based.participant import HostBasedWorker

MAX_HOPS = 20_000_000  # packet-hops of a run


class SoakFabric(Fabric):
    """A Fabric with strangers at its hosts.

    Attributes:
        hosts: Hosts of workers, by name.
        servers: Hosts of servers, by name.
        queue: Queue of jobs that come and go.
        to_come: Number of jobs that have not begun yet.
        order: Check of the order in which links sent, where it is known.
        marks: Check of congestion marks, where it is known which are right.
        tap: Tap on the links between switches.
    """

    def __init__(
        self,
        scenario: Scenario,
        switch: Engine,
        observer: Observer | None,
        planner: Planner,
        loopback: float | None = None,
    ) -> None:
        self.hosts: dict[str, SoakHost] = {}
        self.servers: dict[str, SoakServer] = {}
        self.queue = Queue(Budget(scenario.topology, planner))
        self.to_come = len(scenario.works)
        self.caught_up = 0  # workers that were sent a result when their lease was lost
        self.lingering = 0.0  # seconds for which workers of an earlier grant continue
        self._scenario = scenario
        self._strangers: list[Stranger] = []
        self._flips: list[Flips] = []
        self._ended: dict[Job, Sequence[SoakHost]] = {}
        self.order = SendingOrder(scenario) if SendingOrder.judged_by(scenario) else None
        self.tap = Tap(scenario, self._inject) if scenario.taps else None
        every = not (scenario.disturbed or scenario.strangers or scenario.servers)
        self.marks = Marks(scenario, every=every) if Marks.judged_by(scenario) else None
        super().__init__(
            scenario.topology,
            switch,
            host=HostModel(scenario.coalescing),
            seed=scenario.seed,
            observer=_all(self.order, self.marks, observer, self.tap),
            priorities=scenario.prioritized,
            numbers=scenario.numbers,
            planner=planner,
            loopback=loopback,
        )

    @property
    def flips(self) -> int:
        """Return the number of bits flipped at the ends of hosts' links so far."""
        return sum(one.flips for one in self._flips)

    @property
    def forged(self) -> int:
        """Return the number of packets from strangers so far."""
        return sum(stranger.forged for stranger in self._strangers)

    def _inject(self, switch: str, port: int, frame: bytes, now: int) -> None:
        """Run a frame through a switch. Should anything come of it, which it should not, that is lost."""
        self.engines[switch].process(port, frame, now)

    def place(self, host: str, station: WorkerStation[Any], start: float) -> None:
        """Run a station on a host, with its stranger and its flipped bits; see Fabric."""
        scenario = self._scenario
        stranger = None
        if scenario.strangers and not isinstance(station.worker, HostBasedWorker):
            number = len(self._strangers)
            lease = station.worker.lease
            stranger = Stranger(
                scenario.topology,
                scenario.topology.host(host),
                lease,
                scenario.strangers,
                [scenario.seed, 3, number],
                flips=not scenario.links.corruption,
                followed=scenario.same_leases and not scenario.descending,
                preceded=scenario.same_leases and scenario.descending,
            )
            self._strangers.append(stranger)
        before = self.hosts.get(host)
        flips = None
        if self.checksums and not isinstance(station.worker, HostBasedWorker):
            flips = Flips(scenario.links.corruption, [scenario.seed, 5, len(self._flips)])
            self._flips.append(flips)
        self.hosts[host] = SoakHost(
            station, stranger, before if self.lingering else None, start + self.lingering, flips
        )
        self.hosts[host].sent = before.sent if before else 0
        self.network.replace_station(host, self.hosts[host], start)

    def place_server(self, host: str, station: ServerStation, udp_port: int) -> None:  # noqa: ARG002
        """Run the server of a job on a host; see Fabric. In soak, a host has one server."""
        sent = self.servers[host].sent if host in self.servers else 0
        self.servers[host] = SoakServer(station, sent)
        self.network.replace_station(host, self.servers[host], self.network.now / SECOND)

    def hosts_of(self, job: Job) -> Sequence[SoakHost]:
        """Return the hosts of a job by rank; for a job that has ended, those that it had."""
        return self._ended.get(job) or [self.hosts[name] for name in job.members]

    def run(self, limit: float) -> bool:
        """Run until every worker has all its sums or has failed; return False at `limit` (seconds), or if exhausted.

        Jobs of the queue end, and others begin in their place.
        """
        while self.to_come or self.queue.running:
            if not self._run(lambda: any(map(self._done, self.queue.running)), limit):
                return False
            for job in filter(self._done, list(self.queue.running)):
                self.end(job)
            self.queue.grant()
        waiting = list(self.hosts.values())

        def done() -> bool:
            while waiting and waiting[-1].done:
                waiting.pop()
            return not waiting

        return self._run(done, limit)

    def _run(self, done: Callable[[], bool], limit: float) -> bool:
        return self.network.run(lambda: self.exhausted or done(), limit) and not self.exhausted

    @property
    def exhausted(self) -> bool:
        """Return whether packets have crossed more links than any run needs, so that it may never end."""
        return self.network.hops > MAX_HOPS

    def end(self, job: Job) -> None:
        """End a job after all its workers have ended."""
        self._ended[job] = self.hosts_of(job)
        job.end()
        if job in self.queue.running:
            self.queue.leave(job)

    def _done(self, job: Job) -> bool:
        return all(host.done for host in self.hosts_of(job))


def _all(*those: Observer | None) -> Observer | None:
    """Return an observer that passes what it sees on to those there are; None if there are none."""
    observers = [observer for observer in those if observer]

    def observe(arrived: Transit, store: Packets) -> None:
        for observer in observers:
            observer(arrived, store)

    return observe if observers else None
