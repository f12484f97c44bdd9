"""Jobs that arrive by a trace in virtual time, wait for hosts and slots, and leave."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fanin.controller.jobs.budget import Budget, NoRoomError, SlotAllocation
from fanin.experiments.models.timers import recovery, virtual_window
from fanin.experiments.results.checking import Errors, oracle_of
from fanin.experiments.results.measured import JobTimes, Measured
from fanin.experiments.results.usage import Usage
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.arrivals import Arrivals
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.experiments.virtual.outcome import (
    LIMIT,
    UnfinishedError,
    make_fabric,
    network_figures,
    worker_figures,
)
from fanin.experiments.virtual.usage import LinkMeter, QueueSampler
from fanin.experiments.workloads.job_trace import TracedJob
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import SECOND
from fanin.simulator.fabric import Fabric, Job
from fanin.simulator.hosts.stations import Vector
from fanin.simulator.job_spec import JobSpec
from fanin.simulator.network import ON_WAKES, MakeNetwork
from fanin.workers.collective import Algorithm


@dataclass(frozen=True, slots=True)
class _Running:
    """A job that has begun, with its slots and its port, and the host of its server, if it has any."""

    number: int
    job: Job
    place: SlotAllocation | None
    server: str | None


class _Cluster:
    """Hosts, slots and jobs of a point. Jobs begin in the order of their arrivals, without overtaking."""

    def __init__(self, settings: Settings, arrivals: Arrivals, fabric: Fabric) -> None:
        self._settings, self._fabric = settings, fabric
        self.traced = arrivals.jobs
        self._to_come = deque(range(len(self.traced)))
        self._waiting: deque[int] = deque()
        self._running: list[_Running] = []
        self._free = list(settings.members)  # in the order of placement
        protocol = settings.implementation
        self._servers = [*settings.servers, *settings.bystanders] if protocol.make_server else None
        self._budget = Budget(settings.network, settings.implementation.planner(settings.paths))
        self.began: dict[int, float] = {}
        self.ended: dict[int, float] = {}
        self.errors: list[Errors] = []
        self.retransmissions = 0

    def run(self) -> None:
        """Run until all jobs have left.

        Raises:
            UnfinishedError: If a job does not end.
        """
        network = self._fabric.network
        while self._to_come or self._waiting or self._running:
            self._begin_waiting()
            comes = self.traced[self._to_come[0]].arrival if self._to_come else LIMIT
            if self._running and network.run(self._any_done, comes, watched=ON_WAKES):
                for running in [one for one in self._running if _done(one.job)]:
                    self._end(running)
            elif self._to_come:
                self._waiting.append(self._to_come.popleft())
            else:
                raise UnfinishedError(f"arrivals: not finished after {LIMIT:g} s of virtual time")

    @property
    def _shared(self) -> int | None:
        """Return the slots that all jobs share; None if each has its own."""
        return self._settings.shared_slots

    def _any_done(self) -> bool:
        return any(_done(one.job) for one in self._running)

    def _begin_waiting(self) -> None:
        while self._waiting:
            number = self._waiting[0]
            traced = self.traced[number]
            if traced.workers > len(self._free):
                return
            hosts, place, server = tuple(self._free[: traced.workers]), None, None
            if self.algorithm_of(traced) == "in-network":
                if self._servers == []:
                    return
                # Jobs that share slots have none of their own. One of the budget stands for each, with its UDP port.
                slots = 1 if self._shared else virtual_window(self._settings)
                try:
                    place = self._budget.take(hosts, slots)
                except NoRoomError as error:
                    if not self._running:
                        raise UnfinishedError(f"arrivals: job {number} can never begin: {error}") from None
                    return
                server = self._servers.pop(0) if self._servers else None
            self._waiting.popleft()
            del self._free[: traced.workers]
            self._running.append(_Running(number, self._begin(number, hosts, place, server), place, server))

    def _begin(
        self, number: int, hosts: tuple[str, ...], place: SlotAllocation | None, server: str | None
    ) -> Job:
        settings, traced = self._settings, self.traced[number]
        now = max(traced.arrival, self._fabric.network.now / SECOND)
        self.began[number] = now
        spec = JobSpec(
            hosts=hosts,
            window=virtual_window(settings),
            window_per=settings.window_per,
            values=settings.values,
            recovery=recovery(settings),
            algorithm=self.algorithm_of(traced),
            transport=settings.transport or "selective-repeat",
            shards=settings.shards,
            flows=settings.flows_per_pair,
            congestion_control=settings.congestion_control,
            payload=settings.payload,
            priority=settings.priority,
            slots=self._shared if place else None,
            servers=(server,) if server else (),
        )
        if place and self._shared:
            place = SlotAllocation(replace(place.tree, job=replace(place.job, base=0)))
        protocol = settings.implementation
        return self._fabric.start(
            spec,
            list(self._vectors(number)),
            [now] * traced.workers,
            make_worker=protocol.make_worker,
            make_server=protocol.make_server,
            in_place=True,
            place=place,
        )

    def _end(self, running: _Running) -> None:
        """Take back the hosts and slots of a job that has all its sums, and check these."""
        job, number = running.job, running.number
        self._running.remove(running)
        self.ended[number] = max(station.ended[-1] for station in job.stations)
        self.retransmissions += sum(station.retransmissions for station in job.stations)
        oracle = oracle_of(self._settings, job.spec.algorithm, job.spec.window)
        for index, vectors in enumerate(self._vectors(number)):
            self.errors.append(oracle.promise(vectors).hold(one.outputs[index] for one in job.stations))
        job.end()
        if running.place is not None:
            self._budget.give_back(running.place)
        if running.server is not None and self._servers is not None:
            self._servers.append(running.server)
        for host in job.members:
            self._fabric.vacate(host)
        place = {host: index for index, host in enumerate(self._settings.members)}
        self._free = sorted([*self._free, *job.members], key=place.__getitem__)

    def algorithm_of(self, traced: TracedJob) -> Algorithm:
        """Return the algorithm of a job: its own, or that of the scenario."""
        return traced.algorithm or self._settings.algorithm

    def _vectors(self, number: int) -> Iterator[list[Vector]]:
        """Yield a vector of each worker of a job for each all-reduce, the same whenever it is called."""
        traced, settings = self.traced[number], self._settings
        draws = [np.random.default_rng((settings.seed, number, rank)) for rank in range(traced.workers)]
        for _ in range(traced.rounds):
            yield [settings.implementation.vector(draw, traced.size // ELEMENT_BYTES) for draw in draws]


def _done(job: Job) -> bool:
    return all(station.finished for station in job.stations)


def run_arrivals(
    settings: Settings, arrivals: Arrivals, switch: Engine, make_network: MakeNetwork
) -> Measured:
    """Run a point with a table arrivals.

    Args:
        settings: The point, with the largest vector of a job as its vector (Settings.as_vectors).
        arrivals: Its table.
        switch: The program of its switches.
        make_network: Builds the network, with the arguments of VirtualNetwork.

    Raises:
        UnfinishedError: If the run does not end.
        CollectiveError: If a worker gives up.
        ControllerError: If the controller fails.
    """
    assert settings.elements is not None
    fabric = make_fabric(settings, switch, make_network)
    meter = LinkMeter(fabric, settings.priority)
    sampler = QueueSampler(fabric.network, settings.queue_samples)
    cluster = _Cluster(settings, arrivals, fabric)
    cluster.run()
    numbers = range(len(cluster.traced))
    seconds = [cluster.ended[number] - cluster.traced[number].arrival for number in numbers]
    waits = [cluster.began[number] - cluster.traced[number].arrival for number in numbers]
    return Measured(
        seconds=tuple(seconds),
        elements=settings.elements,
        retransmissions=cluster.retransmissions,
        closed_form_seconds=None,
        window=virtual_window(settings),
        recovery=recovery(settings),
        usage=Usage(meter.end_phase("job"), (), sampler.samples),
        arrivals=JobTimes(
            jobs=len(seconds),
            mean_job_seconds=float(np.mean(seconds)),
            p99_job_seconds=float(np.percentile(seconds, 99)),
            mean_job_wait_seconds=float(np.mean(waits)),
            jobs_seconds=tuple(seconds),
            makespan_seconds=max(cluster.ended.values()) - cluster.traced[0].arrival,
        ),
        **Errors.of_all(cluster.errors).columns,
        **worker_figures(settings, fabric),
        **network_figures(fabric),
    )
