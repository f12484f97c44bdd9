"""One scenario in virtual time, and what was wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from controller.planner import OURS, Planner
from controller.telemetry import Event
from experiments.scenario.worker_file import AnyWorker, MakeWorker
from experiments.soak.checks import check
from experiments.soak.hosts import SoakHost
from experiments.soak.inputs import make_inputs
from experiments.soak.scenario import Scenario, Work
from experiments.soak.strangers import Stranger
from experiments.virtual.fabric import Fabric, Job, JobSpec
from experiments.virtual.stations import Vector, WorkerStation
from p4switch.engine.engine import Engine
from topologies.virtual import SECOND, HostModel
from topologies.virtual.network import Observer
from workers.lease import Lease
from workers.protocol import Worker
from workers.recovery import Recovery

NOTICE = 1e-3  # seconds from a switch's restart to the new leases
_TELLING_A_SWITCH = 5e-5  # seconds


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did, and what was wrong with it: nothing, if `violations` is empty. `seconds` are virtual."""

    violations: tuple[str, ...]
    packet_hops: int
    faults: Counter[str]
    seconds: float
    events: Counter[Event] = field(default_factory=Counter)


class SoakFabric(Fabric):
    """A Fabric with strangers at its hosts. hosts: by name."""

    def __init__(
        self, scenario: Scenario, switch: Engine, observer: Observer | None, planner: Planner
    ) -> None:
        self.hosts: dict[str, SoakHost] = {}
        self.lingering = 0.0  # seconds that workers of an earlier grant go on
        self._scenario = scenario
        self._strangers: list[Stranger] = []
        super().__init__(
            scenario.topology,
            switch,
            host=HostModel(scenario.coalescing),
            seed=scenario.seed,
            observer=observer,
            numbers=scenario.numbers,
            planner=planner,
        )

    @property
    def forged(self) -> int:
        """Packets of strangers so far."""
        return sum(stranger.forged for stranger in self._strangers)

    def place(self, host: str, station: WorkerStation[Any], start: float) -> None:
        """See Fabric."""
        scenario = self._scenario
        stranger = None
        if scenario.strangers:
            number = len(self._strangers)
            lease = station.worker.lease
            stranger = Stranger(
                scenario.topology,
                scenario.topology.host(host),
                lease,
                scenario.strangers,
                [scenario.seed, 3, number],
                flips=not scenario.links.corruption,
                followed=scenario.same_leases,
            )
            self._strangers.append(stranger)
        earlier = self.hosts.get(host) if self.lingering else None
        self.hosts[host] = SoakHost(station, stranger, earlier, start + self.lingering)
        self.network.replace_station(host, self.hosts[host], start)

    def run(self, limit: float) -> bool:
        """Until every worker has all its sums or has failed: True. False: not by `limit` (seconds)."""
        waiting = list(self.hosts.values())

        def done() -> bool:
            while waiting and waiting[-1].done:
                waiting.pop()
            return not waiting

        return self.network.run(done, limit)


def run_scenario(
    scenario: Scenario,
    switch: Engine,
    make_worker: MakeWorker | None = None,
    observer: Observer | None = None,
    planner: Planner = OURS,
) -> Outcome:
    """Run it on switches like `switch` (see Engine.another), and check everything."""
    fabric = SoakFabric(scenario, switch, observer, planner)
    inputs = _start(scenario, fabric, make_worker or _worker)
    mishaps = Counter[str]()
    for time, kind, happens in _mishaps(scenario, fabric):
        if fabric.run(max(time, fabric.network.now / SECOND)):
            break
        happens()
        mishaps[kind] += 1
    in_time = fabric.run(scenario.bound)
    if in_time:
        fabric.network.run(limit=scenario.bound + 60.0)  # what is still on its way must come to rest
    problems = check(scenario, fabric, fabric.hosts, inputs, mishaps, in_time=in_time)
    mishaps["stall"] = sum(len(work.stalls) for work in scenario.jobs)
    mishaps["stranger"] = fabric.forged
    mishaps["mismatch"] = sum(bool(work.mismatch) for work in scenario.jobs)
    mishaps["gave up"] = sum(host.error is not None for host in fabric.hosts.values())
    ends = (station.ended[-1] for job in fabric.jobs for station in job.stations if station.ended)
    return Outcome(
        tuple(problems),
        fabric.network.hops,
        fabric.network.faults + mishaps,
        max(ends, default=0.0),
        Counter({event: count for event, count in fabric.events().items() if count}),
    )


def _start(scenario: Scenario, fabric: SoakFabric, make_worker: MakeWorker) -> list[list[list[Vector]]]:
    """Begin all jobs; their inputs, [jobs][all-reduces][workers]."""
    draw = np.random.Generator(np.random.PCG64([scenario.seed, 1]))
    inputs = [make_inputs(scenario.seed, number, work) for number, work in enumerate(scenario.jobs)]
    first_slot = scenario.first_slot
    for work, hosts, vectors in zip(scenario.jobs, scenario.hosts, inputs, strict=True):
        spec = JobSpec(
            hosts=hosts,
            window=work.window,
            values=work.values,
            recovery=scenario.recovery(work),
            counted=1 if work.overflow else None,
            chunks=work.chunks,
            first_slot=first_slot,
        )
        first_slot += work.window
        given = [[x.copy() for x in of_step] for of_step in vectors]
        if work.mismatch == "elements":
            given[-1][0] = given[-1][0][:-1] if len(given[-1][0]) > 1 else given[-1][0].repeat(2)
        starts = list(draw.random(work.workers) * work.skew)
        make = partial(_with_mismatch, work, make_worker) if work.mismatch else make_worker
        fabric.start(spec, given, starts, make_worker=make, in_place=work.in_place)
        for stall in work.stalls:
            host = hosts[stall.rank % work.workers]
            fabric.network.stall(host, stall.begin, stall.begin + stall.seconds)
    return inputs


def _mishaps(scenario: Scenario, fabric: SoakFabric) -> list[tuple[float, str, Callable[[], None]]]:
    """When what happens, in its order."""
    names = list(fabric.engines)

    def pause() -> None:
        fabric.network.run(limit=fabric.network.now / SECOND + _TELLING_A_SWITCH)

    def regrant(job: Job, lingering: float, *, cut: bool) -> None:
        fabric.lingering = lingering
        job.regrant(pause, cut=cut)
        fabric.lingering = 0.0

    mishaps: list[tuple[float, str, Callable[[], None]]] = []
    for restart in scenario.restarts:
        name = names[restart.switch % len(names)]
        mishaps.append((restart.time, "switch restart", partial(fabric.restart_switch, name, NOTICE)))
    for loss in scenario.registers_lost:
        name = names[loss.switch % len(names)]
        mishaps.append((loss.time, "registers lost", partial(fabric.lose_registers, name)))
    for grant in scenario.regrants:
        job = fabric.jobs[grant.job % len(fabric.jobs)]
        again = partial(regrant, job, grant.lingering, cut=grant.cut)
        mishaps.append((grant.time, "grant again", again))
    return sorted(mishaps, key=lambda mishap: mishap[0])


def _worker(lease: Lease, recovery: Recovery) -> Worker:
    return Worker(lease, recovery, non_finite="propagate", on_saturation="count")


def _with_mismatch(work: Work, make_worker: MakeWorker, lease: Lease, recovery: Recovery) -> AnyWorker:
    """Rank 0 has another window, other packets or another number of workers."""
    if lease.rank == 0:
        other = {
            "elements": {},
            "window": {"window": lease.window + 1 if lease.window == 1 else lease.window - 1},
            "values": {"values": 320 - lease.values},
            "workers": {"workers": lease.workers + 1},
        }[work.mismatch]
        lease = replace(lease, **other)
    return make_worker(lease, recovery)
