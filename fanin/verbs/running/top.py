"""`fanin top`: the activity of a running network."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.cli_errors import ending, failing
from fanin.options import Network
from fanin.output import say
from fanin.testbed.running import find_network
from fanin.topologies.errors import NetworkError

if TYPE_CHECKING:
    from rich.table import Table

    from fanin.controller.jobs.reports import Report
    from fanin.testbed.monitoring.snapshot import JobView, Snapshot


def top(
    seconds: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two updates")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show one interval and exit")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON with totals for each update")
    ] = False,
    supervisor: Network = None,
) -> None:
    """Watch the jobs, switches and links of a running network.

    The display updates until Ctrl-C. Rates are those of the last interval. Workers report about once per second during
    all-reduces. For each job, you see which workers it is waiting for.

    Examples:
        fanin top --once
        fanin top --once --json
    """
    from fanin.testbed.job_service_client import JobServiceClient
    from fanin.testbed.monitoring.snapshot import Snapshot

    with failing("top", NetworkError), ending():
        service = JobServiceClient(find_network(supervisor=supervisor).run)

        def snapshot() -> Snapshot:
            return Snapshot.model_validate(service.look())

        if as_json:
            say(snapshot().model_dump_json())
            while not once:
                time.sleep(seconds)
                say(snapshot().model_dump_json())
        else:
            _show(snapshot, seconds, once)


def _show(snapshot: Callable[[], Snapshot], seconds: float, once: bool) -> None:
    from rich.console import Group
    from rich.live import Live

    from fanin.console import console
    from fanin.table import fitting, print_table

    before = snapshot()
    time.sleep(seconds)
    now = snapshot()
    if once or not console.is_terminal:
        while True:
            for table in _tables(now, before):
                print_table(table)
                say("")
            if once:
                return
            time.sleep(seconds)
            before, now = now, snapshot()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            blocks: list[Table | str] = []
            for table in _tables(now, before):
                blocks.extend(fitting(table, 1, console))
                blocks.append("")
            live.update(Group(*blocks), refresh=True)
            time.sleep(seconds)
            before, now = now, snapshot()


def _tables(now: Snapshot, before: Snapshot) -> list[Table]:
    """Return the tables of jobs, switches and links."""
    return [_jobs(now, before), _switches(now, before), _links(now, before)]


def _jobs(now: Snapshot, before: Snapshot) -> Table:
    from fanin.table import new_table

    table = new_table(
        ["job", "state", "waiting for"],
        *("for", "workers", "slots", "window", "Mb/s each", "resent", "RTT ms"),
    )
    earlier = {(job.name, job.since): job for job in before.jobs}
    for job in now.jobs:
        same = earlier.get((job.name, job.since))
        state = f"{job.state}, number {job.place}" if job.place else job.state
        reports = [worker.report for worker in job.workers if worker.report]
        again = sum(report.retransmissions for report in reports)
        rtts = [report.smoothed_rtt for report in reports if report.smoothed_rtt is not None]
        rate = None if same is None else _rate(job, same, now.at)
        table.add_row(
            job.name,
            state,
            _waits_for(job, now.at),
            str(timedelta(seconds=int(now.at - job.since))),
            str(len(job.workers)),
            "" if job.slots is None else str(job.window),
            _congestion_window(job, reports),
            "" if rate is None else f"{8e-6 * rate:,.4g}",
            f"{again:,}" if reports else "",
            f"{1e3 * max(rtts):,.4g}" if rtts else "",
        )
    for forming in now.forming:
        since = min(worker.joined for worker in forming.workers)
        name, age = forming.name or "", str(timedelta(seconds=int(now.at - since)))
        missing = f"{' '.join(forming.missing)} to join"
        table.add_row(name, "forming", missing, age, str(len(forming.workers)))
    return table


def _congestion_window(job: JobView, reports: Sequence[Report]) -> str:
    """Return the smallest congestion window of a job's workers in chunks, or "" for a job without slots."""
    if job.slots is None or not reports:
        return ""
    return str(int(min(report.congestion_window for report in reports)))


def _rate(job: JobView, before: JobView, now: float) -> float | None:
    """Return the bytes per second that workers received between their last two reports, on average."""
    from fanin.testbed.monitoring.snapshot import per_second
    from fanin.testbed.monitoring.waiting import silent

    found = []
    for worker, then in zip(job.workers, before.workers, strict=True):
        if worker.report and then.report and worker.heard and then.heard:
            received, earlier = worker.report.bytes_received, then.report.bytes_received
            rate = per_second(received, earlier, worker.heard - then.heard)
            if rate is None and silent(worker, now):
                rate = 0.0
            if rate is not None:
                found.append(rate)
    return sum(found) / len(found) if found else None


def _waits_for(job: JobView, now: float) -> str:
    from fanin.testbed.monitoring.waiting import waited_for, waiting_since

    since = waiting_since(job, now)
    if since is None:
        return job.why
    awaited = ", ".join(job.named(worker) for worker in waited_for(job, now)) or "packets (fanin why)"
    return f"{awaited}, {since:.0f} s"


def _switches(now: Snapshot, before: Snapshot) -> Table:
    from fanin.controller.tree import SLOTS
    from fanin.table import new_table
    from fanin.testbed.monitoring.snapshot import SwitchView, per_second

    table = new_table(["switch", "drops by reason (per second)"], "packets/s", f"of {SLOTS:,} slots")
    seconds = now.at - before.at
    for name, switch in now.switches.items():
        then = before.switches.get(name, SwitchView(slots=0))
        known = not switch.error and not then.error
        rate = per_second(switch.received, then.received, seconds) if known else None
        drops = []
        for reason, count in switch.drops.items():
            growth = per_second(count, then.drops.get(reason, 0), seconds)
            drops.append(f"{reason} {count:,}" + (f" ({growth:,.0f})" if growth else ""))
        table.add_row(
            name,
            switch.error or ", ".join(drops),
            "" if rate is None else f"{rate:,.0f}",
            f"{switch.slots:,}",
        )
    return table


def _links(now: Snapshot, before: Snapshot) -> Table:
    from fanin.table import new_table
    from fanin.testbed.monitoring.snapshot import per_second

    table = new_table(["link"], "Mb/s", "of Mb/s", "used", "queue kB", "lost", "state")
    for link, then in zip(now.links, before.links, strict=True):
        rate = per_second(link.bytes, then.bytes, now.at - before.at)
        used = "" if rate is None or link.rate is None else f"{100 * 8 * rate / link.rate:.0f}%"
        table.add_row(
            link.name,
            "" if rate is None else f"{8e-6 * rate:,.4g}",
            "" if link.rate is None else f"{link.rate / 1e6:,.4g}",
            used,
            "" if link.queue_bytes is None else f"{link.queue_bytes / 1e3:,.4g}",
            "" if link.lost is None else f"{link.lost:,}",
            "down" if link.up is False else "",
        )
    return table
