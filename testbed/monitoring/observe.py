"""Observes the jobs of a running network for some seconds: what their workers, links and processes do."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from fanin.controller.jobs.reports import CallTime
from fanin.native.text import nearest
from fanin.testbed.job_service_client import JobServiceClient
from fanin.testbed.load import Processors
from fanin.testbed.monitoring.call_times import Activity
from fanin.testbed.monitoring.slow import Slowness, explain_slow
from fanin.testbed.monitoring.snapshot import Snapshot
from fanin.testbed.process_stats import PROCESSES, process_stats
from fanin.testbed.running import RunningNetwork
from fanin.topologies.errors import NetworkError

_SAMPLE_SECONDS = 0.1  # between two looks at what processes do


def jobs_named(look: Snapshot, name: str | None) -> set[str | None]:
    """Return the names of the jobs of a snapshot, or only `name`.

    Raises:
        NetworkError: If there is no such job.
    """
    there = {job.name for job in look.jobs} | {forming.name for forming in look.forming}
    if name is None:
        return there
    if name not in there:
        names = sorted(filter(None, there))
        near = nearest(name, names, f"the jobs are: {', '.join(names) or 'none'}")
        raise NetworkError(f"{name}: no such job{near}")
    return {name}


def observe(network: RunningNetwork, name: str | None, seconds: float) -> Iterator[tuple[str, Slowness]]:
    """Yield each job, and what it spent its time on.

    Args:
        network: The network.
        name: Name of the job; None for all.
        seconds: How long to observe them.

    Raises:
        NetworkError: If there is no such job.
    """
    service = JobServiceClient(network.run)
    before = Snapshot.model_validate(service.look())
    found = jobs_named(before, name)
    inner = network.run.process_ids
    ids = {
        inner.get(worker.process, worker.process): worker.process
        for job in before.jobs
        for worker in job.workers
    }
    processors = Processors()
    processors.begin()
    active = _sampled(ids, seconds)
    processors.end()
    now = Snapshot.model_validate(service.look())
    for job in now.jobs:
        if job.name in found:
            times = [[CallTime.model_validate(each) for each in calls] for calls in service.times(job.name)]
            activity = [active.get(worker.process) for worker in job.workers]
            yield job.name, explain_slow(job, times, now, before, processors.utilization, activity)


def _sampled(ids: Mapping[int, int], seconds: float) -> dict[int, Activity]:
    """Sample the states of processes for some seconds.

    A thread counts as busy if it runs or waits for a processor: others may keep it from running.

    Args:
        ids: Numbers of the workers, by their process ids on this machine.
        seconds: How long.

    Returns:
        What each process that this user may see was doing, by the worker's number.
    """
    own: Counter[int] = Counter()
    children: Counter[int] = Counter()
    seen: Counter[int] = Counter()
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _SAMPLE_SECONDS))
        busy = {process: _is_busy(process) for process in ids}
        for process, state in busy.items():
            if state is not None:
                seen[process] += 1
                own[process] += state
        for process in _above_busy(ids):
            children[process] += 1
    return {ids[each]: Activity(own[each] / count, children[each] / count) for each, count in seen.items()}


def _is_busy(process: int) -> bool | None:
    """Return whether any thread of a process runs or could run; None if there is no such process."""
    states = [fields[0] for _, fields in process_stats(PROCESSES / str(process) / "task")]
    return "R" in states if states else None


def _above_busy(processes: Iterable[int]) -> set[int]:
    """Return which of the processes have a child, or a child's child, that runs or could run."""
    parents: dict[int, int] = {}
    running: list[int] = []
    for process, (state, parent, *_) in process_stats():
        parents[process] = int(parent)
        if state == "R":
            running.append(process)
    wanted, found = set(processes), set()
    for process in running:
        above = parents[process]
        while above in parents and above not in wanted:
            above = parents[above]
        if above in wanted:
            found.add(above)
    return found
