"""Runs one scenario in virtual time, and checks it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fanin.assurance.soak.checks import check
from fanin.assurance.soak.fabric import SoakFabric
from fanin.assurance.soak.partitions import partitioned
from fanin.assurance.soak.revocation import TELLING_A_SWITCH, revoke, wait_for_a_sum
from fanin.assurance.soak.scenario import Revocation, Scenario, Work
from fanin.controller.jobs.budget import SlotAllocation
from fanin.controller.planner import Planner
from fanin.controller.telemetry import Event
from fanin.experiments.protocol import OURS, Protocol, protocol_of
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import SECOND
from fanin.simulator.fabric import Job
from fanin.simulator.hosts.stations import Vector
from fanin.simulator.job_spec import JobSpec
from fanin.simulator.network import Observer
from fanin.topologies.model import Link
from fanin.workers.lease import Lease
from fanin.workers.protocol import AnyWorker, MakeServer, MakeWorker, Worker
from fanin.workers.recovery import Recovery

NOTICE = 1e-3  # seconds from a switch's restart to the new leases

_Makers = tuple[MakeWorker, MakeServer | None]  # of workers, and of servers
_Happening = tuple[float, str, Callable[[], None]]  # time in seconds, kind, what happens


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a run. `violations` is empty if nothing was wrong; `seconds` are virtual."""

    violations: tuple[str, ...]
    packet_hops: int
    faults: Counter[str]
    seconds: float
    events: Counter[Event] = field(default_factory=Counter)


def run_scenario(
    scenario: Scenario,
    switch: Engine,
    make_worker: MakeWorker | None = None,
    observer: Observer | None = None,
    planner: Planner | None = None,
    protocol: Protocol | None = None,
) -> Outcome:
    """Run a scenario on switches with the program of `switch`, and check everything.

    Args:
        scenario: The scenario.
        switch: A switch that has the program (see Engine.new_instance).
        make_worker: Makes a worker; None makes ours.
        observer: Called with everything that arrives.
        planner: Planner of the switches' entries. None takes the protocol's, with the scenario's paths.
        protocol: The protocol of jobs in the network, which survives the scenario's faults; None: ours.
    """
    protocol = protocol or protocol_of(OURS)
    fabric = SoakFabric(
        scenario,
        switch,
        observer,
        planner or protocol.planner(scenario.paths),
        protocol.loopback("virtual"),
    )
    for outage in scenario.outages:
        link = scenario.topology.links[outage.link % len(scenario.topology.links)]
        fabric.network.cut(link.a.node, link.b.node, outage.begin, outage.begin + outage.seconds)
    inputs = [protocol.inputs(scenario.seed, number, work) for number, work in enumerate(scenario.works)]
    makers = make_worker or (_worker if protocol.ours else protocol.make_worker), protocol.make_server
    happenings = _start(scenario, fabric, inputs, makers)
    mishaps = Counter[str]()
    for time, kind, happens in sorted([*happenings, *_mishaps(scenario, fabric)], key=lambda one: one[0]):
        if fabric.run(max(time, fabric.network.now / SECOND)):
            break
        happens()
        mishaps[kind] += 1
    in_time = fabric.run(scenario.bound)
    if in_time:
        # Packets in flight must arrive.
        fabric.network.run(lambda: fabric.exhausted, scenario.bound + 60.0)
    problems = check(scenario, fabric, inputs, mishaps, protocol, in_time=in_time)
    if in_time:
        for job in fabric.jobs:
            fabric.end(job)
        problems += [*fabric.left_behind(), *fabric.queue.left_behind(list(fabric.engines))]
    mishaps["stall"] = sum(len(work.stalls) for work in scenario.works)
    mishaps["link down"] = len(scenario.outages)
    mishaps["stranger"] = fabric.forged
    mishaps["result from a tap"] = fabric.tap.sent if fabric.tap else 0
    mishaps["flip at an end"] = fabric.flips
    mishaps["mismatch"] = sum(bool(work.mismatch) for work in scenario.works)
    mishaps["gave up"] = sum(host.error is not None for job in fabric.jobs for host in fabric.hosts_of(job))
    mishaps["fell back to the ring"] = sum(job.by_ring is not None for job in fabric.jobs)
    mishaps["result sent after the loss"] = fabric.caught_up
    mishaps["job waited"] = fabric.queue.waited
    hosts = [host for job in fabric.jobs if job.leases for host in fabric.hosts_of(job)]
    mishaps["marked result"] = sum(host.marked for host in hosts)
    mishaps["window narrowed"] = sum(host.narrowed for host in hosts)
    ends = (station.ended[-1] for job in fabric.jobs for station in job.stations if station.ended)
    return Outcome(
        tuple(problems),
        fabric.network.hops,
        fabric.network.faults + mishaps,
        max(ends, default=0.0),
        Counter({event: count for event, count in fabric.events().items() if count}),
    )


def _start(
    scenario: Scenario,
    fabric: SoakFabric,
    inputs: Sequence[Sequence[Sequence[Vector]]],
    makers: _Makers,
) -> list[_Happening]:
    """Begin the first jobs, and return when and how the later ones come. `inputs` is [jobs][all-reduces][workers]."""
    draw = np.random.Generator(np.random.PCG64([scenario.seed, 1]))
    first_slot = scenario.first_slot
    later: list[_Happening] = []
    times = [*(0.0 for _ in scenario.jobs), *(one.time for one in scenario.queue)]
    works = zip(scenario.works, scenario.hosts, inputs, times, strict=True)
    for number, (work, hosts, vectors, time) in enumerate(works):
        spec = JobSpec(
            hosts=hosts,
            window=work.window,
            values=work.values,
            recovery=scenario.recovery(work),
            counted=1 if work.overflow else None,
            algorithm=work.algorithm,
            transport=work.transport,
            shards=work.shards,
            calls=(work.compression or "all-reduce",),
            priority=work.priority,
            chunks=work.chunks,
            first_slot=scenario.first_slot if scenario.slots else first_slot,
            slots=scenario.slots if work.in_network else None,
            servers=(scenario.server_of(number),) if scenario.servers and work.in_network else (),
            ring=bool(scenario.revocations),
        )
        first_slot += work.window
        starts = list(draw.random(work.workers) * work.skew)
        begin = partial(_begin, fabric, work, spec, vectors, starts, makers, time)
        join = partial(fabric.queue.join, hosts, work.window, begin)
        if not scenario.later:
            begin(None)
        elif len(fabric.jobs) < len(scenario.jobs):
            join()
        else:
            later.append((time, "job came", join))
    return later


def _begin(
    fabric: SoakFabric,
    work: Work,
    spec: JobSpec,
    vectors: Sequence[Sequence[Vector]],
    starts: Sequence[float],
    makers: _Makers,
    earliest: float,
    place: SlotAllocation | None,
) -> Job:
    """Begin a job, at `place` if it comes from the queue; `starts` are its workers' starts, in seconds after that."""
    now = max(earliest, fabric.network.now / SECOND)
    given = [[x.copy() for x in of_step] for of_step in vectors]
    if work.mismatch == "elements":
        given[-1][0] = given[-1][0][:-1] if len(given[-1][0]) > 1 else given[-1][0].repeat(2)
    if work.mismatch == "order":
        given[-2][0], given[-1][0] = given[-1][0], given[-2][0]
    make_worker, make_server = makers
    make = partial(_with_mismatch, work, make_worker) if work.mismatch else make_worker
    if work.operation != "all-reduce":
        make = partial(partitioned, work, make)
    fabric.to_come -= 1
    begins = [now + start for start in starts]
    job = fabric.start(
        spec,
        given,
        begins,
        make_worker=make,
        make_server=make_server,
        in_place=work.in_place,
        place=place,
    )
    for stall in work.stalls:
        begin = now + stall.begin
        fabric.network.stall(job.members[stall.rank % work.workers], begin, begin + stall.seconds)
    return job


def _mishaps(scenario: Scenario, fabric: SoakFabric) -> list[_Happening]:
    """Return the mishaps and their times."""
    names = list(fabric.engines)

    def pause() -> None:
        fabric.network.run(limit=fabric.network.now / SECOND + TELLING_A_SWITCH)

    def regrant(job: Job, lingering: float, *, cut: bool) -> None:
        if not job.granted:  # the job has ended
            return
        fabric.lingering = lingering
        job.regrant(pause, cut=cut)
        fabric.lingering = 0.0

    mishaps: list[_Happening] = []
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
    links = scenario.topology.links
    down: list[Link] = []
    for outage in scenario.outages:
        if outage.found is not None:
            link = links[outage.link % len(links)]
            found = outage.begin + outage.found
            mishaps.append((found, "rerouted", partial(_reroute, fabric, down, down.append, link)))
            mishaps.append(
                (found + outage.seconds, "rerouted", partial(_reroute, fabric, down, down.remove, link))
            )
    draw = np.random.Generator(np.random.PCG64([scenario.seed, 4]))
    for one in scenario.revocations:
        mishaps.append((one.time, "revoked", partial(_revoke, fabric, one, draw)))
    return mishaps


def _reroute(fabric: SoakFabric, down: list[Link], change: Callable[[Link], None], link: Link) -> None:
    """Change which links are known to be `down`, and update the routes."""
    change(link)
    fabric.reroute(fabric.topology.without(down))


def _revoke(fabric: SoakFabric, revocation: Revocation, draw: np.random.Generator) -> None:
    job = fabric.jobs[revocation.job % len(fabric.jobs)]
    if revocation.at_a_sum and job.granted:
        wait_for_a_sum(fabric, job)
    revoke(fabric, job, (draw.random(len(job.members)) * revocation.heard).tolist())


def _worker(lease: Lease, recovery: Recovery) -> Worker:
    return Worker(lease, recovery, non_finite="propagate", on_saturation="count")


def _with_mismatch(work: Work, make_worker: MakeWorker, lease: Lease, recovery: Recovery) -> AnyWorker:
    """Make a worker. Rank 0 gets another window, packet size or number of workers, or refuses a call."""
    if lease.rank == 0:
        other = {
            "window": {"window": lease.window + 1 if lease.window == 1 else lease.window - 1},
            "values": {"values": {64: 256, 256: 64, 128: 64, 512: 256}[lease.values]},
            "workers": {"workers": lease.workers + 1},
        }.get(work.mismatch, {})
        lease = replace(lease, **other)
    worker = make_worker(lease, recovery)
    if lease.rank == 0 and work.mismatch == "refused":
        assert isinstance(worker, Worker)
        worker.start = partial(_start_the_last_after_a_refused_call, worker, worker.start, len(work.elements))  # type: ignore[method-assign]
    return worker


def _start_the_last_after_a_refused_call(
    worker: Worker,
    start: Callable[..., None],
    calls: int,
    x: Vector,
    now: float,
    *others: Any,
    **options: Any,
) -> None:
    if worker.statistics.all_reduces == calls - 1:
        with suppress(TypeError):
            start(x.astype(np.int32), now)
    start(x, now, *others, **options)
