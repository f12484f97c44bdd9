"""Checks of what must hold in a run, whatever its links, switches, workers and strangers did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fanin.assurance.soak.fabric import SoakFabric
from fanin.assurance.soak.hosts import SoakHost
from fanin.assurance.soak.scenario import Scenario, Work
from fanin.controller.telemetry import Event, Reason
from fanin.experiments.models.compressed_sums import compressed_sum
from fanin.experiments.models.expected_sums import QuantizedSum, QuantizedSums
from fanin.simulator import SECOND
from fanin.simulator.fabric import Job
from fanin.simulator.hosts.stations import Vector
from fanin.workers.collective import StallError
from fanin.workers.host_based.algorithms.registry import algorithm_named
from fanin.workers.values.compression import Rounded, TopK

# Drops that faults of links and stalls may cause.
EXPECTED_DROPS = {Reason.NONE, Reason.LOST, Reason.OLD_CHUNK, Reason.DUPLICATE, Reason.STALE_RESULT}
EXPECTED_IGNORED = {"duplicate"}
# Packets of an earlier grant, and packets that meet a switch without tables.
EARLIER_DROPS = {Reason.NOT_ADMITTED, Reason.NO_ROUTE, Reason.BAD_CHUNK}
EARLIER_IGNORED = {"other lease"}
STRANGE_DROPS = set(Reason)
# Drops that a flipped bit may cause, in IPv4 or UDP, or in the fields that identify them.
CORRUPTED_DROPS = {Reason.BAD_CHECKSUM, Reason.TRUNCATED, Reason.MALFORMED, Reason.NOT_IP}
CORRUPTED_DROPS |= {Reason.NOT_ADMITTED, Reason.NO_ROUTE, Reason.BAD_SIZE, Reason.FORGED, Reason.NO_CHECKSUM}
STRANGE_IGNORED = {"other lease", "malformed", "impossible", "unknown chunk"}


def check(
    scenario: Scenario,
    fabric: SoakFabric,
    inputs: Sequence[Sequence[Sequence[Vector]]],
    mishaps: Counter[str],
    *,
    in_time: bool,
) -> list[str]:
    """Return what is wrong after a run.

    Args:
        scenario: The scenario.
        fabric: The network after the run.
        inputs: Inputs, [jobs][all-reduces][workers].
        mishaps: Number of mishaps, by kind.
        in_time: Whether the run finished within its bound.
    """
    return [*_problems(scenario, fabric, inputs, mishaps, in_time)]


def _problems(
    scenario: Scenario,
    fabric: SoakFabric,
    inputs: Sequence[Sequence[Sequence[Vector]]],
    mishaps: Counter[str],
    in_time: bool,
) -> Iterator[str]:
    now = fabric.network.now / SECOND
    if fabric.exhausted:
        yield f"stopped at {now:.3g} s, after {fabric.network.hops} packet-hops"
    if fabric.to_come:
        yield f"{fabric.to_come} jobs have not begun by {now:.3g} s"
    contributions = 0
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
        expected = _expected(work, job, vectors[: job.by_ring])
        contributions += job.contributions * sum(one.chunks for one in expected)
        for problem in (
            *_check_sums(job, expected, work),
            *_check_sums_of_hosts(job, vectors, first=len(expected)),
            *_check_ends(scenario, fabric, of_job, work),
            *_check_counts(scenario, job, of_job, expected, work, fresh=number < len(scenario.jobs)),
        ):
            yield f"job {number}, {problem}"
    network = fabric.network
    if not in_time:
        return
    if network.in_flight:
        yield f"{network.in_flight} packets left over"
    yield from _check_links(scenario, fabric)
    if not scenario.disturbed:
        added = fabric.events()[Event.NEW_CHUNK] + fabric.events()[Event.ADDED]
        if added != contributions:
            yield f"switches added {added} contributions up, of {contributions} that the jobs have"
        yield from _check_switches(fabric)
    allowed = EXPECTED_DROPS | (
        EARLIER_DROPS
        if scenario.later
        or scenario.rerouted
        or any(mishaps[kind] for kind in ("switch restart", "grant again", "revoked"))
        else set()
    )
    # A lease id that a later job has with other slots.
    allowed |= {Reason.BAD_SLOT} if scenario.later and scenario.same_leases else set()
    allowed |= STRANGE_DROPS if scenario.strangers else set()
    allowed |= {Reason.MISMATCH} if scenario.taps else set()
    allowed |= CORRUPTED_DROPS if scenario.links.corruption else set()
    for reason, count in fabric.drops().items():
        if count and reason not in allowed and not any(work.mismatch for work in scenario.works):
            yield f"switches dropped {count} packets as {reason.name}"


def _check_links(scenario: Scenario, fabric: SoakFabric) -> Iterator[str]:
    """Check what links sent, queued and dropped, once nothing is in flight."""
    faults, counts = fabric.network.faults, fabric.network.links.counts
    if scenario.lossless and faults["queue drop"] and not scenario.strangers:
        yield f"{faults['queue drop']} packets dropped by queues with room for a pause"
    arrived = int(counts.arrived.sum() + counts.lost.sum()) - faults["duplication"]
    if arrived != counts.packets.sum():
        yield f"links sent {counts.packets.sum()} packets, and {arrived} arrived or were lost"
    for (near, _), on_link in zip(fabric.network.link_ends, counts.packets.tolist(), strict=True):
        if near in fabric.hosts and (sent := fabric.hosts[near].sent) != on_link:
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


def _check_switches(fabric: SoakFabric) -> Iterator[str]:
    """Report packets that switches have made up or lost, once nothing is on its way.

    A switch sends as many results of a chunk as it takes contributions, one sum up for each result from its parent, and
    each other packet that it does not drop once.
    """
    counts = fabric.network.links.counts
    sent = counts.packets + counts.queue_drops + counts.watchdog_drops
    ends = fabric.network.link_ends
    arrived_at_switches = sum(counts.arrived[i] for i, (_, far) in enumerate(ends) if far in fabric.engines)
    sent_by_switches = sum(sent[i] for i, (near, _) in enumerate(ends) if near in fabric.engines)
    arrived_at_switches += fabric.tap.sent if fabric.tap else 0
    passed = arrived_at_switches - sum(fabric.drops().values())
    if sent_by_switches != passed:
        yield f"switches sent {sent_by_switches} packets, for {passed} that arrived and were not dropped"


def _in_order(scenario: Scenario) -> bool:
    """Return whether packets between two hosts arrive in the order in which they were sent, unless they are lost."""
    links = scenario.links
    disturbed = links.reordering or links.duplication or links.corruption or scenario.paths != "ecmp"
    disturbed = disturbed or scenario.rerouted
    # Switches without tables lose packets, too.
    return not (disturbed or scenario.restarts or scenario.registers_lost or scenario.strangers)


def _expected(work: Work, job: Job, inputs: Sequence[Sequence[Vector]]) -> list[QuantizedSum]:
    expected = []
    for step, vectors in enumerate(inputs):
        if step in job.leases:
            sums = QuantizedSums(work.values, work.window, 1 if work.overflow else work.workers)
        expected.append(sums.next(vectors))
    return expected


def _check_sums(job: Job, expected: Sequence[QuantizedSum], work: Work) -> Iterator[str]:
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
            waits = host.station.worker.outstanding(now) or "waits for no result"
            yield f"rank {rank} has not finished by {now:.3g} s: {waits}"
        elif error is not None and not work.mismatch:
            stalled = isinstance(error, StallError) and "chunk" in str(error)
            if not (stalled and scenario.registers_lost and work.in_network):
                yield f"rank {rank}: {type(error).__name__}: {error}"


def _check_counts(
    scenario: Scenario,
    job: Job,
    hosts: Sequence[SoakHost],
    expected: Sequence[QuantizedSum],
    work: Work,
    *,
    fresh: bool,
) -> Iterator[str]:
    """Check the counts of a job whose workers have all finished; `fresh` if no job had its hosts before it."""
    if (
        work.mismatch
        or job.by_ring is not None
        or any(host.error is not None or not host.done for host in hosts)
    ):
        return
    # A job with one grant must not notice those of others, unless they had its hosts before it.
    alone = len(job.leases) == 1
    undisturbed = alone and fresh
    least, most = (sum(one.saturated[i] for one in expected) for i in (0, 1))
    chunks = sum(one.chunks for one in expected)
    allowed = EXPECTED_IGNORED | (set() if undisturbed else EARLIER_IGNORED)
    # Late packets of an earlier grant with the same id are recognized by their chunk.
    allowed |= {"unknown chunk"} if scenario.same_leases and not undisturbed else set()
    allowed |= STRANGE_IGNORED if scenario.strangers else set()
    for rank, station in enumerate(job.stations):
        statistics = station.worker.statistics
        if alone and statistics.accepted != chunks:
            yield f"rank {rank}: {statistics.accepted} chunks delivered of {chunks}"
        if alone and not least <= statistics.saturated <= most:
            yield f"rank {rank}: {statistics.saturated} results flagged as saturated, {least} to {most} are"
        if unexpected := sorted(set(+statistics.ignored) - allowed):
            yield f"rank {rank}: datagrams that were {', '.join(unexpected)}"
        foreign = station.not_ours and not (scenario.strangers or scenario.links.corruption) and fresh
        if station.deadline() is not None or foreign:
            yield f"rank {rank}: {station.not_ours} foreign frames, next deadline {station.deadline()}"
