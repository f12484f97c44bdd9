"""Invariants of fanin's own protocol in soak: counts of workers and switches."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.assurance.soak.checks import JobRun, SoakRun
from fanin.assurance.soak.fabric import SoakFabric
from fanin.assurance.soak.scenario import Scenario
from fanin.controller.telemetry import Reason
from fanin.native.text import counted

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


def problems(run: SoakRun) -> Iterator[str]:
    """Yield what is wrong after a run."""
    scenario, fabric = run.scenario, run.fabric
    for job in run.jobs:
        for problem in _check_counts(scenario, job):
            yield f"job {job.number}, {problem}"
    if not run.in_time:
        return
    if run.undisturbed:
        chunks = ((job.contributions, sum(one.chunks for one in job.expected)) for job in run.jobs)
        contributions = sum(of_chunk * count for of_chunk, count in chunks)
        if run.added != contributions:
            yield f"switches added {run.added} contributions up, of {contributions} that the jobs have"
        yield from _check_switches(fabric)
    allowed = EXPECTED_DROPS | (
        EARLIER_DROPS
        if scenario.later
        or scenario.rerouted
        or any(run.mishaps[kind] for kind in ("switch restart", "grant again", "revoked"))
        else set()
    )
    # A lease id that a later job has with other slots.
    allowed |= {Reason.BAD_SLOT} if scenario.later and scenario.same_leases else set()
    allowed |= STRANGE_DROPS if scenario.strangers else set()
    allowed |= {Reason.MISMATCH} if scenario.taps else set()
    allowed |= CORRUPTED_DROPS if scenario.links.corruption else set()
    for reason, count in fabric.drops().items():
        if count and reason not in allowed and not any(work.mismatch for work in scenario.works):
            yield f"switches dropped {counted(count, 'packet')} as {reason.name}"


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


def _check_counts(scenario: Scenario, run: JobRun) -> Iterator[str]:
    """Check the counts of a job whose workers have all finished."""
    if not run.finished:
        return
    job, expected, fresh = run.job, run.expected, run.fresh
    # A job with one grant must not notice those of others, unless they had its hosts before it.
    alone = len(job.leases) == 1
    undisturbed = alone and fresh
    least, most = (sum(one.saturated[i] for one in expected) for i in (0, 1))
    chunks = sum(one.chunks for one in expected)
    allowed = EXPECTED_IGNORED | (set() if undisturbed else EARLIER_IGNORED)
    # Late packets of an earlier grant with the same id are recognized by their chunk.
    allowed |= {"unknown chunk"} if scenario.same_leases and not undisturbed else set()
    allowed |= STRANGE_IGNORED if scenario.strangers else set()
    # A switch that has lost its registers does not know who gives, and who takes.
    allowed |= {"malformed"} if run.work.operation != "all-reduce" and scenario.forgetful else set()
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
