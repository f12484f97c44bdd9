"""The dashboard of `fanin up`: a running network in the browser, with new loads of links ten times a second."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from fanin.browser.server import Page
from fanin.controller.tree import SLOTS
from fanin.testbed.monitoring.inspector import Inspector
from fanin.testbed.monitoring.snapshot import JobView, LinkView, Snapshot, per_second
from fanin.testbed.monitoring.waiting import silent, waited_for, waiting_since
from fanin.topologies.model import Topology

_LOAD_SECONDS = 0.1
_STATE_SECONDS = 1.0  # workers report once a second
_STATE_SHARE = 0.02  # of a core: larger networks are looked at less often
_MOST_PAGES = 64
_FULL = 0.95  # utilization from which a link counts as full

_logger = logging.getLogger(__name__)

Document = dict[str, Any]


def dashboard(topology: Topology, inspector: Inspector) -> Page:
    """Return the page of a running network. It must be served in the network namespace of the switches."""
    return Page("dashboard", [WebSocketRoute("/live", _Live(topology, inspector).serve)])


def network_document(topology: Topology) -> Document:
    """Return what does not change while the network runs. Each link has two directions, one after the other."""
    return {
        "name": topology.name,
        "hosts": [host.name for host in topology.ranked_hosts],
        "tiers": [[switch.name for switch in tier] for tier in topology.tiers],
        "links": [[link.a.node, link.b.node] for link in topology.links],
        "slots": SLOTS,
    }


class _Live:
    """Looks at the network while at least one page is open, and sends what it sees to all of them."""

    def __init__(self, topology: Topology, inspector: Inspector) -> None:
        self._topology, self._inspector = topology, inspector
        self._pages = 0
        self._watch: asyncio.Task[None] | None = None
        self._load, self._state = "", ""  # the newest of each, in JSON
        self._news = asyncio.Event()  # replaced whenever there are some

    async def serve(self, page: WebSocket) -> None:
        """Send the network, and then everything new, until the page is closed."""
        if self._pages >= _MOST_PAGES:
            await page.close(1013, "too many pages are open")
            return
        await page.accept()
        sent = ""
        with suppress(WebSocketDisconnect):
            await page.send_text(json.dumps({"network": network_document(self._topology)}))
            async with self._watching():
                while True:
                    # A page that is slower than the news misses some loads, and never the newest state.
                    if self._state != sent:
                        sent = self._state
                        await page.send_text(sent)
                    await self._news.wait()
                    await page.send_text(self._load)

    def _announce(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    @asynccontextmanager
    async def _watching(self) -> AsyncIterator[None]:
        self._pages += 1
        if self._watch is None:
            self._watch = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self._pages -= 1
            if not self._pages:
                self._watch.cancel()
                self._watch, self._state = None, ""

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tell_loads())
            tasks.create_task(self._tell_states())

    async def _tell_loads(self) -> None:
        loads, due = _Loads(self._topology), time.monotonic()
        while True:
            self._load = json.dumps({"load": loads.take(time.monotonic())})
            self._announce()
            due = max(due + _LOAD_SECONDS, time.monotonic())
            await asyncio.sleep(due - time.monotonic())

    async def _tell_states(self) -> None:
        before: Snapshot | None = None
        while True:
            spent = time.process_time()
            try:
                now = await self._inspector.look()
            except Exception as error:  # the next look may succeed
                _logger.warning("the network cannot be looked at: %r", error)
                await asyncio.sleep(_STATE_SECONDS)
                continue
            self._state = json.dumps({"state": state_of(now, before)})
            before, spent = now, time.process_time() - spent
            await asyncio.sleep(max(_STATE_SECONDS, spent / _STATE_SHARE))


class _Loads:
    """The bits per second that each direction of each link carries, as the kernel counts them at switches."""

    def __init__(self, topology: Topology) -> None:
        switches = {switch.name for switch in topology.switches}
        self._ends = []  # for each direction, the interface, and whether it sends there
        for link in topology.links:
            for sender in (link.a.node, link.b.node):
                sends = sender in switches
                self._ends.append(((link.end(sender) if sends else link.far_end(sender)).interface, sends))
        self._before: tuple[float, Mapping[str, tuple[int, int]]] | None = None

    def take(self, now: float) -> list[float | None]:
        """Return the rates since the last call; None where they are unknown, as after the first one."""
        counted = interface_bytes(Path("/proc/self/net/dev").read_text())
        then, before = self._before or (now, {})
        self._before = now, counted
        return [
            None
            if (rate := per_second(_of(counted, end), _of(before, end), now - then)) is None
            else round(8 * rate)
            for end in self._ends
        ]


def _of(counted: Mapping[str, tuple[int, int]], end: tuple[str, bool]) -> int | None:
    interface, sends = end
    return counted[interface][sends] if interface in counted else None


def interface_bytes(text: str) -> dict[str, tuple[int, int]]:
    """Return the bytes that each interface has received and sent, from the text of /proc/net/dev."""
    found = {}
    for line in text.splitlines()[2:]:
        name, _, columns = line.partition(":")
        numbers = columns.split()
        found[name.strip()] = int(numbers[0]), int(numbers[8])
    return found


def state_of(now: Snapshot, before: Snapshot | None) -> Document:
    """Return what the page shows of a snapshot, with rates since the one before."""
    earlier = before or now
    seconds = now.at - earlier.at
    drops = {}
    for name, switch in now.switches.items():
        then = earlier.switches.get(name)
        counts = then.drops if then and not then.error else {}
        drops[name] = {
            reason: [count, per_second(count, counts.get(reason, 0), seconds) or 0.0]
            for reason, count in switch.drops.items()
        }
    return {
        "at": now.at,
        "links": [
            {
                "rate": link.rate,
                "up": link.up,
                "lost": link.lost,
                "losing": per_second(link.lost, then.lost, seconds) or 0.0,
                "queue": link.queue_bytes,
            }
            for link, then in zip(now.links, earlier.links, strict=True)
        ],
        "switches": {
            name: {
                "slots": switch.slots,
                "packets": None
                if switch.error
                else per_second(switch.received, earlier.switches[name].received, seconds),
                "drops": drops[name],
                "error": switch.error,
            }
            for name, switch in now.switches.items()
        },
        "jobs": [_job(job, _same(job, earlier), now.at) for job in now.jobs],
        "forming": [
            {"name": job.name or "a job", "joined": len(job.workers), "missing": job.missing}
            for job in now.forming
        ],
        "alarms": [*_alarms(now, earlier)],
    }


def _same(job: JobView, before: Snapshot) -> JobView | None:
    return next((one for one in before.jobs if (one.name, one.since) == (job.name, job.since)), None)


def _job(job: JobView, before: JobView | None, now: float) -> Document:
    late = {worker.host for worker in waited_for(job, now)}
    workers = []
    for worker, then in zip(job.workers, before.workers if before else job.workers, strict=True):
        report, waiting = worker.report, worker.report.waiting if worker.report else None
        rate = None
        if report and then.report and worker.heard and then.heard:
            rate = per_second(report.bytes_received, then.report.bytes_received, worker.heard - then.heard)
        workers.append(
            {
                "host": worker.host,
                "left": worker.left,
                "late": worker.host in late,
                "silent": silent(worker, now),
                "done": report.all_reduces if report else None,
                "part": waiting.accepted / waiting.total if waiting and waiting.total else None,
                "bits": None if rate is None else 8 * rate,
                "rtt": report.smoothed_rtt if report else None,
                "retransmissions": report.retransmissions if report else None,
            }
        )
    return {
        "name": job.name,
        "state": f"{job.state}, number {job.place}" if job.place else job.state,
        "why": job.aborted or job.why,
        "seconds": now - job.since,
        "window": job.window,
        "tree": [part.switch for part in job.tree],
        "workers": workers,
    }


def _alarms(now: Snapshot, before: Snapshot) -> Iterator[str]:
    for name, switch in now.switches.items():
        if switch.error:
            yield f"{name}: {switch.error}"
    for there, back in zip(now.links[::2], now.links[1::2], strict=True):
        if there.up is False or back.up is False:
            yield f"{there.sender} – {there.receiver}: the link is down"
    for link, then in zip(now.links, before.links, strict=True):
        yield from _alarms_of(link, then, now.at - before.at)
    for job in now.jobs:
        late = [job.named(worker) for worker in waited_for(job, now.at)]
        since = waiting_since(job, now.at)
        if since is not None:
            whom = ", ".join(late) if late else f"packets (fanin why {job.name})"
            yield f"{job.name}: waits for {whom}, for {since:.0f} s"
        if job.aborted:
            yield f"{job.name}: {job.aborted}"


def _alarms_of(link: LinkView, before: LinkView, seconds: float) -> Iterator[str]:
    if link.rate is not None and link.built_rate is not None and link.rate < link.built_rate:
        yield f"{link.name}: {link.rate / link.built_rate:.0%} of the rate that it was built with"
    losing = per_second(link.lost, before.lost, seconds)
    if losing:
        yield f"{link.name}: loses {losing:,.0f} packets a second"
    rate = per_second(link.bytes, before.bytes, seconds)
    if rate is not None and link.rate is not None and 8 * rate > _FULL * link.rate:
        yield f"{link.name}: full"
