"""`fanin why`: the reason why a job makes no progress, or only slow progress."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fanin.cli_errors import failing
from fanin.native.text import counted
from fanin.options import Network
from fanin.output import say
from fanin.testbed.running import RunningNetwork, find_network
from fanin.topologies.errors import NetworkError

if TYPE_CHECKING:
    from fanin.testbed.monitoring.slow import Slowness
    from fanin.testbed.monitoring.snapshot import FormingView, JobView
    from fanin.testbed.monitoring.why import Explanation

NO_JOB = "No job is running on the network; start one with: fanin launch train.py"
_SECONDS = 2.0  # in which packets are retransmitted, and lost again

_MOST = 5  # rows of a table

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
    slow: Annotated[
        bool, typer.Option("--slow", help="Explain what a job that makes progress spends its time on")
    ] = False,
    seconds: Annotated[
        float, typer.Option("--interval", min=1.0, help="Seconds to observe the job with --slow")
    ] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each job")] = False,
    supervisor: Network = None,
) -> None:
    """Explain what a job is waiting for, or what makes it slow.

    For each open chunk you see the worker or switch that is missing, and at the end the most likely cause. Chunks are
    found in the registers of the switches. BMv2 does not give access to them; there, the explanation relies on worker
    reports, links and drops.

    With --slow you see how much of the time each rank computes and waits for calls, and which rank comes last. You
    also see which calls cost most, and which links are full at their current rate.

    Examples:
        fanin why
        fanin why --slow --interval 10
    """
    from fanin.testbed.job_service_client import JobServiceClient
    from fanin.testbed.monitoring.observe import jobs_named
    from fanin.testbed.monitoring.snapshot import Cells, Snapshot
    from fanin.testbed.monitoring.why import explain

    with failing("why", NetworkError):
        network = find_network(supervisor=supervisor)
        if slow:
            _why_slow(network, name, seconds, as_json)
            return
        service = JobServiceClient(network.run)
        before = Snapshot.model_validate(service.look())
        found = jobs_named(before, name)
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
        say(NO_JOB)


def _processes(network: RunningNetwork, job: JobView) -> dict[int, str]:
    """Return the states of the job's processes by their ids, as far as this user may read them.

    Process ids may be those inside the sandbox.
    """
    there = {(host, each.process) for host, found in network.processes().items() for each in found}
    inner = network.run.process_ids
    does = {}
    for worker in job.workers:
        ids = (worker.process, inner.get(worker.process))
        process = next((each for each in ids if (worker.host, each) in there), None)
        if process is not None and (state := _state(process)):
            does[worker.process] = state
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
                f"\n  {worker.host} waits in all-reduce {waiting.all_reduce} for {missing} of "
                f"{counted(waiting.total, 'chunk')} ({what}), no progress for {waiting.silent:.0f} s"
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


def _why_slow(network: RunningNetwork, name: str | None, seconds: float, as_json: bool) -> None:
    """Observe the jobs for some seconds, and print what they spend their time on."""
    from fanin.testbed.monitoring.observe import observe

    found = False
    for job, slowness in observe(network, name, seconds):
        found = True
        if as_json:
            _print_line(job, asdict(slowness))
        else:
            _show_slowness(job, slowness)
    if not found and not as_json:
        say(NO_JOB)


def _show_slowness(name: str, slowness: Slowness) -> None:
    from fanin.table import new_table, print_table

    if slowness.unknown:
        say(f"{name}: what it spends its time on is unknown: {slowness.unknown}.")
        return
    say(
        f"{name}, {slowness.calls} calls in {slowness.seconds:.1f} s: computing {slowness.computing:.0%}, waiting for "
        f"the last rank {slowness.waiting:.0%}, moving data {slowness.moving:.0%}\n\n{slowness.summary}\n"
    )
    ranks = new_table(["rank", "host"], "computes", "exposed", "hidden", "comes last", "late ms")
    for rank in slowness.ranks:
        each = 1e3 * rank.late_seconds / rank.last if rank.last else 0.0
        exposed = f"{'≤ ' if rank.estimated else ''}{rank.exposed:.0%}"
        shares = f"{rank.computing:.0%}", exposed, f"{rank.hidden:.0%}"
        ranks.add_row(str(rank.rank), rank.host, *shares, f"{rank.last} times", f"{each:,.3g}")
    calls = new_table(["call"], "times", "waits ms", "moves ms", "of the time", "exposed")
    for group in slowness.groups[:_MOST]:
        waits, moves = (f"{1e3 * each:,.3g}" for each in (group.waiting_seconds, group.moving_seconds))
        calls.add_row(
            group.what, str(group.count), waits, moves, f"{group.share:.0%}", f"{group.exposed:.0%}"
        )
    links = new_table(["link"], "Mb/s", "of Mb/s", "used", "while data moves")
    for link in slowness.links[:_MOST]:
        rates = f"{link.bits_per_second / 1e6:,.4g}", f"{link.rate / 1e6:,.4g}"
        links.add_row(link.name, *rates, f"{link.used:.0%}", f"{link.moving:.0%}")
    for table in (ranks, calls, links):
        print_table(table)
        say("")
    for number, cause in enumerate(slowness.causes, start=1):
        say(f"{number}. {cause.cause}, about {cause.share:.0%} of the time: {cause.evidence}.")
        say(f"   What to change: {cause.change}.")


def _print_line(job: str | None, told: dict[str, Any]) -> None:
    say(json.dumps({"job": job} | told))
