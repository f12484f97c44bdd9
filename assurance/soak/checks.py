"""Checks of what must hold in a run, whatever its links, switches, workers and strangers did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.assurance.soak.fabric import SoakFabric
from fanin.assurance.soak.hosts import SoakHost, SoakServer
from fanin.assurance.soak.partitions import gathered, own
from fanin.assurance.soak.scenario import Scenario, Work
from fanin.controller.telemetry import Event
from fanin.experiments.models.compressed_sums import compressed_sum
from fanin.experiments.protocol import Expected, Protocol
from fanin.simulator import SECOND
from fanin.simulator.fabric import Job
from fanin.simulator.hosts.stations import Vector
from fanin.workers.collective import StallError
from fanin.workers.host_based.algorithms.registry import algorithm_named
from fanin.workers.values.compression import Rounded, TopK


@dataclass(frozen=True)
class JobRun:
    """A job in the network after a run.

    Attributes:
        number: Number of the job.
        work: Its description.
        job: The job, with its stations by rank.
        hosts: Its hosts by rank.
        expected: The expected result of each all-reduce.
        fresh: Whether no job had its hosts before it.
    """

    number: int
    work: Work
    job: Job
    hosts: Sequence[SoakHost]
    expected: Sequence[Any]
    fresh: bool

    @property
    def workers(self) -> list[Any]:
        """Return its workers (participant()) by rank."""
        return [station.worker for station in self.job.stations]

    @property
    def contributions(self) -> int:
        """Return how many contributions switches add up for each chunk."""
        return self.job.contributions

    @property
    def finished(self) -> bool:
        """Return whether all workers have all results, all with leases of this job."""
        ended = all(host.done and host.error is None for host in self.hosts)
        return ended and not self.work.mismatch and self.job.by_ring is None

    @property
    def undisturbed(self) -> bool:
        """Return whether it finished with its first lease, which no job had before it."""
        return self.finished and self.fresh and len(self.job.leases) == 1


@dataclass(frozen=True)
class SoakRun:
    """A run, for the invariants of its protocol.

    Attributes:
        scenario: The scenario.
        fabric: The network after the run.
        mishaps: Number of mishaps, by kind.
        jobs: The jobs in the network.
        in_time: Whether the run finished within its bound.
    """

    scenario: Scenario
    fabric: SoakFabric
    mishaps: Counter[str]
    jobs: Sequence[JobRun]
    in_time: bool

    @property
    def undisturbed(self) -> bool:
        """Return whether it finished, and no chunk may have been added more than once or not at all."""
        return self.in_time and not self.scenario.disturbed

    @property
    def added(self) -> int:
        """Return how many contributions switches have added up."""
        events = self.fabric.events()
        return events[Event.NEW_CHUNK] + events[Event.ADDED]


def check(
    scenario: Scenario,
    fabric: SoakFabric,
    inputs: Sequence[Sequence[Sequence[Vector]]],
    mishaps: Counter[str],
    protocol: Protocol,
    *,
    in_time: bool,
) -> list[str]:
    """Return what is wrong after a run.

    Args:
        scenario: The scenario.
        fabric: The network after the run.
        inputs: Inputs, [jobs][all-reduces][workers].
        mishaps: Number of mishaps, by kind.
        protocol: The protocol of jobs in the network.
        in_time: Whether the run finished within its bound.
    """
    return [*_problems(scenario, fabric, inputs, mishaps, protocol, in_time)]


def _problems(
    scenario: Scenario,
    fabric: SoakFabric,
    inputs: Sequence[Sequence[Sequence[Vector]]],
    mishaps: Counter[str],
    protocol: Protocol,
    in_time: bool,
) -> Iterator[str]:
    now = fabric.network.now / SECOND
    if fabric.exhausted:
        yield f"stopped at {now:.3g} s, after {fabric.network.hops} packet-hops"
    if fabric.to_come:
        yield f"{fabric.to_come} jobs have not begun by {now:.3g} s"
    jobs = []
    begun = zip(scenario.works, fabric.jobs, inputs, strict=False)
    for number, (work, job, vectors) in enumerate(begun):
        of_job = fabric.hosts_of(job)
        if not work.in_network:
            for problem in (
                *(_check_compressed if work.compression else _check_sums_of_hosts)(job, vectors),
                *_check_ends(scenario, fabric, of_job, work),
            ):
                yield f"job {number}, {problem}"
            continue
        expected = _expected(work, job, vectors[: job.by_ring], protocol)
        jobs.append(JobRun(number, work, job, of_job, expected, fresh=number < len(scenario.jobs)))
        for problem in (
            *_check_sums(job, expected, work),
            *_check_sums_of_hosts(job, vectors, first=len(expected)),
            *_check_ends(scenario, fabric, of_job, work),
        ):
            yield f"job {number}, {problem}"
    if in_time:
        if fabric.network.in_flight:
            yield f"{fabric.network.in_flight} packets left over"
        yield from _check_links(scenario, fabric)
    yield from protocol.invariants(SoakRun(scenario, fabric, mishaps, jobs, in_time))


def _check_links(scenario: Scenario, fabric: SoakFabric) -> Iterator[str]:
    """Check what links sent, queued and dropped, once nothing is in flight."""
    faults, counts = fabric.network.faults, fabric.network.links.counts
    if scenario.lossless and faults["queue drop"] and not scenario.strangers:
        yield f"{faults['queue drop']} packets dropped by queues with room for a pause"
    arrived = int(counts.arrived.sum() + counts.lost.sum()) - faults["duplication"]
    if arrived != counts.packets.sum():
        yield f"links sent {counts.packets.sum()} packets, and {arrived} arrived or were lost"
    ends: dict[str, SoakHost | SoakServer] = {**fabric.hosts, **fabric.servers}
    for (near, _), on_link in zip(fabric.network.link_ends, counts.packets.tolist(), strict=True):
        if near in ends and (sent := ends[near].sent) != on_link:
            yield f"{near} sent {sent} packets, and its link {on_link}"
    watchdog = scenario.watchdog
    if watchdog is None and faults["storm"]:
        yield f"{faults['storm']} storms without a watchdog"
    if (watchdog is None or watchdog.action != "drop") and faults["watchdog drop"]:
        yield f"{faults['watchdog drop']} packets dropped by a watchdog that drops none"
    if fabric.order:
        yield from fabric.order.problems()
    if fabric.marks:
        yield from fabric.marks.problems(counts)
    if _in_order(scenario) and not (counts.lost.any() or counts.queue_drops.any() or faults["watchdog drop"]):
        for number, (work, job) in enumerate(zip(scenario.works, fabric.jobs, strict=False)):
            if work.in_network:
                continue
            for rank, station in enumerate(job.stations):
                streams = station.worker.statistics.streams
                if not streams.timeouts and (again := streams.retransmissions):
                    yield f"job {number}, rank {rank}: {again} packets retransmitted, although none was lost or late"


def _in_order(scenario: Scenario) -> bool:
    """Return whether packets between two hosts arrive in the order in which they were sent, unless they are lost."""
    links = scenario.links
    disturbed = links.reordering or links.duplication or links.corruption or scenario.paths != "ecmp"
    disturbed = disturbed or scenario.rerouted
    # Switches without tables lose packets, too.
    return not (disturbed or scenario.restarts or scenario.registers_lost or scenario.strangers)


def _expected(work: Work, job: Job, inputs: Sequence[Sequence[Vector]], protocol: Protocol) -> list[Expected]:
    expected = []
    for step, vectors in enumerate(inputs):
        if step in job.leases:
            sums = protocol.sums(work.values, work.window, 1 if work.overflow else work.workers)
        expected.append(gathered(work, vectors) if work.operation == "gather" else sums.next(vectors))
    return expected


def _check_sums(job: Job, expected: Sequence[Expected], work: Work) -> Iterator[str]:
    """Check the sums that there are, finished or not."""
    for step, one in enumerate(expected):
        outputs = [(rank, s.outputs[step]) for rank, s in enumerate(job.stations) if len(s.outputs) > step]
        if not outputs:
            return
        first_rank, first = outputs[0]
        if _mismatched(work, step, len(expected)):
            yield f"all-reduce {step}: a sum of workers that do not agree"
            return
        if len(first) != one.length:
            yield f"rank {first_rank}, all-reduce {step}: {len(first)} elements, not {one.length}"
            continue
        if work.operation == "scatter":
            for rank, output in outputs:
                part = own(work, rank, one.length)
                known = np.zeros_like(output)  # the rest may be anything
                known[part] = output[part]
                if len(wrong := np.flatnonzero(one.wrong(known)[part])):
                    yield _wrong(rank, step, wrong)
            continue
        wrong = np.flatnonzero(one.wrong(first))
        if len(wrong):
            yield _wrong(first_rank, step, wrong)
        for rank, output in outputs[1:]:
            if output.tobytes() != first.tobytes():
                yield f"rank {rank}, all-reduce {step}: other sums than rank {first_rank}"


def _check_sums_of_hosts(job: Job, inputs: Sequence[Sequence[Vector]], first: int = 0) -> Iterator[str]:
    """Check the sums that there are, from the first one between hosts on, bit for bit in the algorithm's order."""
    for step, vectors in enumerate(inputs[first:], first):
        assert job.spec.algorithm != "in-network"
        expected = algorithm_named(job.spec.algorithm).float32_sum(vectors, job.spec.shards)
        for rank, station in enumerate(job.stations):
            if len(station.outputs) > step:
                yield from _compare(rank, step, station.outputs[step], expected)


def _check_compressed(job: Job, inputs: Sequence[Sequence[Vector]]) -> Iterator[str]:
    """Check the sums of what compression leaves, in the order of ranks, bit for bit where they are certain.

    Where they are not certain, all ranks must agree.
    """
    (compressor,) = job.spec.calls
    assert isinstance(compressor, TopK | Rounded)
    for step, vectors in enumerate(inputs):
        expected, certain = compressed_sum(compressor, vectors)
        outputs = [(rank, s.outputs[step]) for rank, s in enumerate(job.stations) if len(s.outputs) > step]
        for rank, output in outputs:
            yield from _compare(rank, step, output, expected, certain)
            if output.tobytes() != outputs[0][1].tobytes():
                yield f"rank {rank}, all-reduce {step}: other sums than rank {outputs[0][0]}"


def _compare(
    rank: int, step: int, output: Vector, expected: Vector, certain: NDArray[np.bool_] | None = None
) -> Iterator[str]:
    """Compare bit for bit, where the expected value is certain (None: everywhere)."""
    if len(output) != len(expected):
        yield f"rank {rank}, all-reduce {step}: {len(output)} elements, not {len(expected)}"
        return
    differs = output.view(np.uint32) != expected.view(np.uint32)
    wrong = np.flatnonzero(differs if certain is None else differs & certain)
    if len(wrong):
        yield _wrong(rank, step, wrong)


def _wrong(rank: int, step: int, wrong: NDArray[np.intp]) -> str:
    return f"rank {rank}, all-reduce {step}: {len(wrong)} wrong elements, the first at {wrong[0]}"


def _mismatched(work: Work, step: int, steps: int) -> bool:
    last = {"elements": 1, "refused": 1, "order": 2}.get(work.mismatch, steps)
    return bool(work.mismatch) and step >= steps - last


def _check_ends(
    scenario: Scenario, fabric: SoakFabric, hosts: Sequence[SoakHost], work: Work
) -> Iterator[str]:
    """Check that workers finish. One may give up where registers were lost, and must where workers do not agree."""
    for rank, host in enumerate(hosts):
        error = host.error
        if not host.done:
            now = fabric.network.now / SECOND
            outstanding = getattr(host.station.worker, "outstanding", None)  # of fanin's workers
            waits = (outstanding and outstanding(now)) or "waits for no result"
            yield f"rank {rank} has not finished by {now:.3g} s: {waits}"
        elif error is not None and not work.mismatch:
            stalled = isinstance(error, StallError) and "chunk" in str(error)
            if not (stalled and scenario.registers_lost and work.in_network):
                yield f"rank {rank}: {type(error).__name__}: {error}"
