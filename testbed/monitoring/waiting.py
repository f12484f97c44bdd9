"""Who is waited for in a job, as far as its workers' reports tell."""

from __future__ import annotations

from fanin.controller.jobs.reports import WorkerState
from fanin.testbed.monitoring.snapshot import JobView

_STILL_SECONDS = (
    1.0  # without anything new: below, reports of busy workers differ since one is older than the other
)
_SILENT_SECONDS = 3.0  # without a report: one that waits reports every second


def waiters(job: JobView, now: float) -> list[WorkerState]:
    """The workers to whom nothing new has come for a second and more. now: in seconds of the Unix epoch."""
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
    """The workers that have not come to the all-reduce in which others wait, or are silent in it, or have ended.

    Empty while somebody waits: all of them are in it, and what they sent or are to receive is missing.
    """
    waiting = waiters(job, now)
    call = max((_call(worker) for worker in waiting), default=0)
    return [
        worker
        for worker in job.workers
        if waiting and worker not in waiting and (worker.left or silent(worker, now) or _call(worker) < call)
    ]


def silent(worker: WorkerState, now: float) -> bool:
    """Whether it has not reported for longer than a worker does that waits; one that computes is silent, too."""
    return now - (worker.heard or worker.joined) >= _SILENT_SECONDS


def waiting_since(job: JobView, now: float) -> float | None:
    """For how many seconds nothing new has come to the worker that waits longest; None: nobody waits."""
    found = [
        worker.report.waiting.silent + now - worker.heard
        for worker in waiters(job, now)
        if worker.report and worker.report.waiting and worker.heard
    ]
    return max(found, default=None)


def _call(worker: WorkerState) -> int:
    """The number of the all-reduce it is in, or else of the one it has finished last."""
    report = worker.report
    if report is None:
        return 0
    return report.all_reduces if report.waiting is None else report.waiting.all_reduce
