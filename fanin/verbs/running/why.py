"""`fanin why`: the reason why a job makes no progress."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fanin.cli_errors import failing
from fanin.options import Network
from fanin.output import say
from fanin.testbed.running import RunningNetwork, find_network
from fanin.topologies.errors import NetworkError

if TYPE_CHECKING:
    from fanin.testbed.monitoring.snapshot import FormingView, JobView, Snapshot
    from fanin.testbed.monitoring.why import Explanation

_SECONDS = 2.0  # in which packets are retransmitted, and lost again

# Keys are the letters in /proc/PID/stat.
_STATES = {
    "R": "computes",
    "S": "sleeps",
    "D": "waits for the kernel",
    "T": "is stopped (SIGSTOP, Ctrl-Z)",
    "t": "is stopped by a debugger",
    "Z": "has ended",
}


def why(
    name: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Job; all jobs by default")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each job")] = False,
    supervisor: Network = None,
) -> None:
    """Explain what a job is waiting for.

    For each open chunk you see the worker or switch that is missing, and at the end the most likely cause. Chunks are
    found in the registers of the switches. BMv2 does not give access to them; there, the explanation relies on worker
    reports, links and drops.

    Examples:
        fanin why
        fanin why --json
    """
    from fanin.testbed.job_service_client import JobServiceClient
    from fanin.testbed.monitoring.snapshot import Cells, Snapshot
    from fanin.testbed.monitoring.why import explain

    with failing("why", NetworkError):
        network = find_network(supervisor=supervisor)
        service = JobServiceClient(network.run)
        before = Snapshot.model_validate(service.look())
        found = _named(before, name)
        time.sleep(_SECONDS)
        now = Snapshot.model_validate(service.look())
        for job in now.jobs:
            if job.name not in found:
                continue
            if job.aborted or job.state != "in network":
                _show_without_chunks(job, as_json)
                continue
            told = service.cells(job.name).items()
            cells = {switch: Cells.model_validate(each) for switch, each in told}
            explanation = explain(job, cells, now, before, _processes(network, job))
            _show(job, explanation, as_json)
        for forming in now.forming:
            if name in (None, forming.name):
                _show_forming(forming, now.at, as_json)
    if not found and not as_json:
        say("No job is running on the network; start one with: fanin launch train.py")


def _named(look: Snapshot, name: str | None) -> set[str | None]:
    there = {job.name for job in look.jobs} | {forming.name for forming in look.forming}
    if name is None:
        return there
    if name not in there:
        names = ", ".join(sorted(filter(None, there))) or "none"
        raise NetworkError(f"{name}: no such job; the jobs are: {names}")
    return {name}


def _processes(network: RunningNetwork, job: JobView) -> dict[str, str]:
    """Return the states of the job's processes by host, as far as this user may read them.

    Process ids may be those inside the sandbox.
    """
    there = {(host, each.process) for host, found in network.processes().items() for each in found}
    inner = network.run.process_ids
    does = {}
    for worker in job.workers:
        ids = (worker.process, inner.get(worker.process))
        process = next((each for each in ids if (worker.host, each) in there), None)
        if process is not None and (state := _state(process)):
            does[worker.host] = state
    return does


def _state(process: int) -> str | None:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return _STATES["Z"]
    return _STATES.get(stat.rpartition(")")[2].split()[0])


def _show(job: JobView, explanation: Explanation, as_json: bool) -> None:
    if as_json:
        told = asdict(explanation)
        told["waiting"] = [worker.model_dump() for worker in explanation.waiting]
        _print_line(job.name, told)
        return
    say(f"{job.name}, lease {job.lease}{_who_waits(explanation)}")
    if explanation.unknown:
        say(f"The progress of its chunks is unknown: {explanation.unknown}")
    for missing in explanation.missing:
        chunks = ", ".join(_range_text(job, *each) for each in missing.chunks)
        say(f"  chunks {chunks}: {missing.hop} is missing")
        for fact in missing.known:
            say(f"    {fact}")
    say(explanation.culprit)


def _who_waits(explanation: Explanation) -> str:
    waits = []
    for worker in explanation.waiting:
        if worker.report and worker.report.waiting:
            waiting = worker.report.waiting
            what = "exponents" if waiting.announcing else "sums"
            missing = waiting.total - waiting.accepted
            waits.append(
                f"\n  {worker.host} waits in all-reduce {waiting.all_reduce} for {missing} of {waiting.total} chunks "
                f"({what}), no progress for {waiting.silent:.0f} s"
            )
    return "".join(waits)


def _range_text(job: JobView, first: int, last: int) -> str:
    assert job.slots is not None
    if last - first + 1 == job.window:
        return f"{first}-{last} (all its slots)"
    start, end = (job.slots[0] + chunk % job.window for chunk in (first, last))
    if first == last:
        return f"{first} (slot {start})"
    slots = f"{start}-{end}" if start < end else f"{start}-{job.slots[1]} and {job.slots[0]}-{end}"
    return f"{first}-{last} (slots {slots})"


def _show_without_chunks(job: JobView, as_json: bool) -> None:
    place = f", number {job.place}" if job.place else ""
    culprit = (
        f"Its workers have stopped making calls: {job.aborted}"
        if job.aborted
        else f"It is {job.state}{place}: {job.why}. Without a lease its workers do not report."
    )
    if as_json:
        _print_line(job.name, {"waiting": [], "missing": [], "unknown": "", "culprit": culprit})
    else:
        say(f"{job.name}\n{culprit}")


def _show_forming(forming: FormingView, now: float, as_json: bool) -> None:
    since = now - min(worker.joined for worker in forming.workers)
    here = ", ".join(f"{worker.host} (process {worker.process})" for worker in forming.workers)
    culprit = f"No worker has joined on {', '.join(forming.missing)}; waiting for {since:.0f} s: {here}."
    if as_json:
        _print_line(forming.name, {"waiting": [], "missing": [], "unknown": "", "culprit": culprit})
    else:
        say(f"{forming.name or 'a job without a name'}\n{culprit}")


def _print_line(job: str | None, told: dict[str, Any]) -> None:
    say(json.dumps({"job": job} | told))
