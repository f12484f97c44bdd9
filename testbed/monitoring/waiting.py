"""The workers that others in a job wait for, according to the workers' reports."""

from __future__ import annotations

from fanin.controller.jobs.reports import WorkerState
from fanin.testbed.monitoring.snapshot import JobView

_STILL_SECONDS = 1.0  # without anything new; below that, reports of busy workers differ only by their age
_SILENT_SECONDS = 3.0  # without a report; a waiting worker reports every second


def waiters(job: JobView, now: float) -> list[WorkerState]:
    """Return the workers at which nothing new has arrived for a second or more. `now` is in Unix time, in seconds."""
    return [
        worker
        for worker in job.workers
        if not worker.left
        and not silent(worker, now)
        and worker.report is not None
        and worker.report.waiting is not None
        and worker.report.waiting.silent >= _STILL_SECONDS
    ]


def waited_for(job: JobView, now: float) -> list[WorkerState]:
    """Return the workers that have not reached the all-reduce in which others wait, are silent in it, or have ended.

    If the first worker of a host is one of them because it waits for others of that host, those are returned. If others
    wait and none is returned, all workers are in the all-reduce, and a packet that was sent is missing.
    """
    waiting = waiters(job, now)
    call = max((_call(worker) for worker in waiting), default=0)
    late = [
        leader
        for leader in job.leaders
        if waiting and leader not in waiting and (leader.left or silent(leader, now) or _call(leader) < call)
    ]
    if job.per_host == 1:
        return late
    newest = max(worker.call for worker in job.workers)
    found = []
    for leader in late:
        here = [worker for worker in job.workers if worker.host == leader.host]
        found += [worker for worker in here if worker.left or worker.call < newest] or [leader]
    return found


def silent(worker: WorkerState, now: float) -> bool:
    """Return whether it has not reported for longer than a waiting worker does. One that computes is silent, too."""
    return now - (worker.heard or worker.joined) >= _SILENT_SECONDS


def waiting_since(job: JobView, now: float) -> float | None:
    """Return for how many seconds nothing new has arrived at the worker that waits longest; None if no worker waits."""
    found = [
        worker.report.waiting.silent + now - worker.heard
        for worker in waiters(job, now)
        if worker.report and worker.report.waiting and worker.heard
    ]
    return max(found, default=None)


def _call(worker: WorkerState) -> int:
    """Return the number of the all-reduce it is in, or else of the last one it has finished."""
    report = worker.report
    if report is None:
        return 0
    return report.all_reduces if report.waiting is None else report.waiting.all_reduce
