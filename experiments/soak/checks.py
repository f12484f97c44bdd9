"""What must be true of a run, whatever its links, switches and workers went through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from controller.telemetry import Reason
from experiments.expected_sums import QuantizedSums
from experiments.soak.scenario import Scenario, Work
from experiments.stations import Vector
from experiments.virtual import Fabric, Job
from topologies.virtual import SECOND

# What faults of links and stalls may lead to.
EXPECTED_DROPS = {Reason.NONE, Reason.LOST, Reason.OLD_CHUNK, Reason.DUPLICATE, Reason.STALE_RESULT}
EXPECTED_IGNORED = {"duplicate"}
# What a flipped bit may do to a packet (tests/p4src/test_checksums.py); hosts take some for somebody else's.
EXPECTED_DROPS_OF_CORRUPTED = {
    *(
        Reason.BAD_CHECKSUM,
        Reason.NOT_IP,
        Reason.MALFORMED,
        Reason.NO_ROUTE,
        Reason.BAD_SIZE,
        Reason.TRUNCATED,
    )
}
# With restarts, packets of an old lease, and packets that meet a switch without tables, too.
EXPECTED_DROPS_AFTER_RESTART = EXPECTED_DROPS | {Reason.NOT_ADMITTED}
EXPECTED_IGNORED_AFTER_RESTART = EXPECTED_IGNORED | {"other lease"}


def check_finished(
    scenario: Scenario, fabric: Fabric, inputs: Sequence[Sequence[Sequence[Vector]]], restarted: int
) -> Iterator[str]:
    """What is wrong after a run in which every worker finished. inputs: [jobs][all-reduces][workers]."""
    for number, (work, job, vectors) in enumerate(zip(scenario.jobs, fabric.jobs, inputs, strict=True)):
        for problem in _check_job(work, job, vectors, corrupting=scenario.faults.corruption > 0):
            yield f"job {number}, {problem}"
    network = fabric.network
    if network.store.in_use:
        yield f"{network.store.in_use} packets left over"
    if scenario.lossless and network.faults["queue drop"]:
        yield f"{network.faults['queue drop']} packets dropped by queues with room for a pause"
    expected = EXPECTED_DROPS_AFTER_RESTART if restarted else EXPECTED_DROPS
    if scenario.faults.corruption:
        expected = expected | EXPECTED_DROPS_OF_CORRUPTED
    for reason, count in fabric.drops().items():
        if count and reason not in expected:
            yield f"switches dropped {count} packets as {reason.name}"


def _check_job(
    work: Work, job: Job, inputs: Sequence[Sequence[Vector]], *, corrupting: bool
) -> Iterator[str]:
    counted = 1 if work.overflow else work.workers
    expected = []
    for step, vectors in enumerate(inputs):
        if step in job.leases:
            sums = QuantizedSums(work.values, work.window, counted)
        expected.append(sums.next(vectors))
    chunks = sum(one.chunks for one in expected)
    saturated = sum(one.saturated for one in expected)
    for rank, station in enumerate(job.stations):
        for step, (output, one) in enumerate(zip(station.outputs, expected, strict=True)):
            if not np.array_equal(output.view(np.int32), one.result.view(np.int32)):
                wrong = np.flatnonzero(output != one.result)
                yield f"rank {rank}, all-reduce {step}: {len(wrong)} wrong elements, the first at {wrong[:1]}"
        statistics = station.worker.statistics
        # A job whose switches have not been restarted must not notice the restart of others.
        if len(job.leases) == 1 and statistics.accepted != chunks:
            yield f"rank {rank}: {statistics.accepted} chunks delivered of {chunks}"
        if len(job.leases) == 1 and statistics.saturated != saturated:
            yield f"rank {rank}: {statistics.saturated} results flagged as saturated, {saturated} are"
        ignored = EXPECTED_IGNORED if len(job.leases) == 1 else EXPECTED_IGNORED_AFTER_RESTART
        if unexpected := sorted(set(+statistics.ignored) - ignored):
            yield f"rank {rank}: datagrams that were {', '.join(unexpected)}"
        if (station.not_ours and not corrupting) or station.deadline() is not None:
            yield f"rank {rank}: {station.not_ours} foreign frames, next deadline {station.deadline()}"


def unfinished(scenario: Scenario, fabric: Fabric) -> Iterator[str]:
    """Who waits for what after a run that did not finish."""
    for number, job in enumerate(fabric.jobs):
        for rank, station in enumerate(job.stations):
            if not station.finished:
                waits = station.worker.outstanding(fabric.network.now / SECOND) or "waits for nothing"
                yield f"job {number}, rank {rank} has not finished within {scenario.bound:.3g} s: {waits}"
