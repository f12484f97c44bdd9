"""One scenario in virtual time, and what was wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from controller.telemetry import Event
from experiments.soak.checks import check_finished, unfinished
from experiments.soak.scenario import RECOVERY, Scenario, Work
from experiments.stations import Vector
from experiments.virtual import Fabric, JobSpec, MakeWorker
from p4switch.engine import Engine
from topologies.virtual import SECOND, HostModel
from topologies.virtual.network import Observer
from workers import native
from workers.collective import CollectiveError
from workers.protocol import Lease, Worker
from workers.recovery import Recovery

NOTICE = 1e-3  # seconds from a switch's restart to the new leases


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did, and what was wrong with it: nothing, if `violations` is empty. `seconds` are virtual."""

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
) -> Outcome:
    """Run it on switches like `switch` (see Engine.another), and check everything."""
    fabric = Fabric(
        scenario.topology,
        switch,
        links=scenario.links,
        host=HostModel(scenario.coalescing),
        seed=scenario.seed,
        observer=observer,
    )
    draw = np.random.Generator(np.random.PCG64([scenario.seed, 1]))
    inputs = [_inputs(scenario.seed, number, work) for number, work in enumerate(scenario.jobs)]
    for work, hosts, vectors in zip(scenario.jobs, scenario.hosts, inputs, strict=True):
        spec = JobSpec(
            hosts=hosts,
            window=work.window,
            values=work.values,
            recovery=RECOVERY,
            counted=1 if work.overflow else None,
        )
        starts = list(draw.random(work.workers) * work.skew)
        fabric.start(spec, vectors, starts, make_worker=make_worker or _worker)
        for stall in work.stalls:
            host = hosts[stall.rank % work.workers]
            fabric.network.stall(host, stall.begin, stall.begin + stall.seconds)
    restarted = 0
    problems: list[str] = []
    try:
        for restart in sorted(scenario.restarts, key=lambda r: r.time):
            if fabric.run(max(restart.time, fabric.network.now / SECOND)):
                break
            names = list(fabric.engines)
            fabric.restart_switch(names[restart.switch % len(names)], NOTICE)
            restarted += 1
        if fabric.run(scenario.bound):
            fabric.network.run()  # what is still on its way must come to rest
            problems += check_finished(scenario, fabric, inputs, restarted)
        else:
            problems += unfinished(scenario, fabric)
    except CollectiveError as error:
        problems.append(f"{type(error).__name__}: {error}")
    stalls = sum(len(work.stalls) for work in scenario.jobs)
    ends = (station.ended[-1] for job in fabric.jobs for station in job.stations if station.ended)
    return Outcome(
        tuple(problems),
        fabric.network.hops,
        fabric.network.faults + Counter({"stall": stalls, "switch restart": restarted}),
        max(ends, default=0.0),
        Counter({event: count for event, count in fabric.events().items() if count}),
    )


def _worker(lease: Lease, recovery: Recovery) -> Worker:
    return native.make_worker(lease, recovery, on_saturation="count")


def _inputs(seed: int, job: int, work: Work) -> Sequence[Sequence[Vector]]:
    """[all-reduces][workers]."""
    inputs = []
    draw = np.random.Generator(np.random.PCG64([seed, 2, job]))
    # Exponents that differ from worker to worker, and from block to block a little more in each step.
    scales = np.exp2(draw.integers(-20, 20, (work.workers, 1))).astype(np.float32)
    for elements in work.elements:
        values = draw.random((work.workers, elements), np.float32) * np.float32(2) - np.float32(1)
        drift = np.exp2(draw.integers(-2, 3, -(-elements // work.values))).astype(np.float32)
        values *= scales * drift.repeat(work.values)[:elements]
        # Of one sign: then the saturated sum does not depend on the order of the additions.
        inputs.append(list(np.abs(values) if work.overflow else values))
    return inputs
