"""Metrics of a running network for Prometheus. Their names follow its conventions (docs/how-to/inside.md)."""

from __future__ import annotations

import asyncio
import io
import logging
import socket
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from http.client import parse_headers
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fanin.controller.admission import Admit, accepting
from fanin.controller.jobs.reports import WorkerState
from fanin.controller.telemetry import Event, Reason
from fanin.testbed.monitoring.inspector import Inspector
from fanin.testbed.monitoring.snapshot import JobView, Snapshot
from fanin.testbed.monitoring.waiting import waited_for

REQUEST_SECONDS = 10.0
_LOOK_SECONDS = 10.0  # a switch has 2 s of these to answer
_MAX_REQUEST_BYTES = 1 << 14
_MOST_ANSWERED = 32  # clients that have their answer and do not close

_logger = logging.getLogger(__name__)

Sample = tuple[Sequence[str], float]


def metrics_of(look: Snapshot) -> Iterator[Metric]:
    """Yield all metrics of a snapshot. An unknown value has no sample."""
    yield from _of_switches(look)
    yield from _of_links(look)
    yield from _of_jobs(look)


def _of_switches(look: Snapshot) -> Iterator[Metric]:
    switches = look.switches.items()
    known = [(name, view) for name, view in switches if not view.error]
    up = [([name], float(not view.error)) for name, view in switches]
    yield _gauge("fanin_switch_up", "1 if the switch reports its counters.", ["switch"], up)
    slots = [([name], view.slots) for name, view in switches]
    yield _gauge("fanin_switch_slots_in_use", "Slots of jobs with a lease.", ["switch"], slots)
    received = [([name], view.received) for name, view in known]
    yield _counter("fanin_switch_received_packets", "Packets received at all ports.", ["switch"], received)
    sent = [([name], view.sent) for name, view in known]
    yield _counter("fanin_switch_sent_packets", "Packets sent at all ports.", ["switch"], sent)
    drops = [([name, r.name], view.drops.get(r.name, 0)) for name, view in known for r in Reason if r]
    yield _counter("fanin_switch_dropped_packets", "Packets dropped.", ["switch", "reason"], drops)
    events = [([name, e.name], view.events.get(e.name, 0)) for name, view in known for e in Event]
    help_text = "Aggregation events."
    yield _counter("fanin_switch_aggregation_events", help_text, ["switch", "event"], events)


def _of_links(look: Snapshot) -> Iterator[Metric]:
    ends = ["sender", "receiver"]

    def known(values: Iterable[float | None]) -> list[Sample]:
        pairs = zip(look.links, values, strict=True)
        return [([link.sender, link.receiver], value) for link, value in pairs if value is not None]

    links = look.links
    yield _gauge("fanin_link_up", "1 if both ends are up.", ends, known(link.up for link in links))
    capacity = known(None if link.rate is None else link.rate / 8 for link in links)
    yield _gauge("fanin_link_capacity_bytes_per_second", "Rate of the link.", ends, capacity)
    waiting = known(link.queue_bytes for link in links)
    yield _gauge("fanin_link_queue_bytes", "Bytes waiting to be sent.", ends, waiting)
    size = known(link.bytes for link in links)
    yield _counter("fanin_link_bytes", "Bytes of Ethernet frames.", ends, size)
    yield _counter("fanin_link_packets", "Packets.", ends, known(link.packets for link in links))
    lost = known(link.lost for link in links)
    yield _counter("fanin_link_lost_packets", "Packets lost, or dropped by a full queue.", ends, lost)


def _of_jobs(look: Snapshot) -> Iterator[Metric]:
    forming = len(look.forming)
    yield _gauge("fanin_jobs_forming", "Jobs waiting for workers to join.", [], [([], forming)])
    leases = sum(job.lease is not None for job in look.jobs)
    yield _gauge("fanin_leases", "Leases in force of the network's jobs.", [], [([], leases)])
    jobs = list({job.name: job for job in look.jobs}.values())  # a new job may have the name of one that ends
    states = [([job.name, job.state], 1) for job in jobs]
    yield _gauge("fanin_job_state", "1 if the job is in this state.", ["job", "state"], states)
    slots = [([job.name], job.window) for job in jobs]
    yield _gauge("fanin_job_slots", "Slots of the job at each of its switches.", ["job"], slots)
    since = [([job.name], job.since) for job in jobs]
    yield _gauge("fanin_job_start_time_seconds", "When all its workers had joined.", ["job"], since)
    yield from _of_workers(jobs, look.at)


def _of_workers(jobs: Sequence[JobView], now: float) -> Iterator[Metric]:
    names = ["job", "host", "rank"]

    def labels_of(job: JobView, worker: WorkerState) -> list[str]:
        return [job.name, worker.host, str(job.rank(worker))]

    workers = [(labels_of(job, worker), worker) for job in jobs for worker in job.workers]
    missing = [labels_of(job, worker) for job in jobs for worker in waited_for(job, now)]
    waited = [(labels, float(labels in missing)) for labels, _ in workers]
    yield _gauge("fanin_worker_waited_for", "1 if other workers wait for it.", names, waited)
    help_text = "Number of the last call that it is known to have come to."
    calls = [(labels, float(worker.call)) for labels, worker in workers]
    yield _counter("fanin_worker_calls", help_text, names, calls)
    heard = [(labels, worker.heard) for labels, worker in workers if worker.heard is not None]
    yield _gauge("fanin_worker_last_report_timestamp_seconds", "Time of its last report.", names, heard)
    reports = [(labels, worker.report) for labels, worker in workers if worker.report is not None]
    waits = [(labels, 0.0 if r.waiting is None else r.waiting.silent) for labels, r in reports]
    help_text = "How long nothing new has arrived at it in an all-reduce."
    yield _gauge("fanin_worker_waiting_seconds", help_text, names, waits)
    rtts = [(labels, r.smoothed_rtt) for labels, r in reports if r.smoothed_rtt is not None]
    yield _gauge("fanin_worker_rtt_seconds", "Smoothed round-trip time.", names, rtts)
    for name, help_text, counted in (
        ("all_reduces", "All-reduces finished.", "all_reduces"),
        ("received_bytes", "UDP payload received.", "bytes_received"),
        ("sent_bytes", "UDP payload sent.", "bytes_sent"),
        ("retransmissions", "Packets retransmitted.", "retransmissions"),
    ):
        samples = [(labels, float(getattr(r, counted))) for labels, r in reports]
        yield _counter(f"fanin_worker_{name}", help_text, names, samples)


def _gauge(name: str, help_text: str, labels: Sequence[str], samples: Iterable[Sample]) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _counter(name: str, help_text: str, labels: Sequence[str], samples: Iterable[Sample]) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


class _Taken(Collector):
    """A collector of one snapshot."""

    def __init__(self, look: Snapshot) -> None:
        self._look = look

    def collect(self) -> Iterable[Metric]:
        """Return all metrics."""
        return metrics_of(self._look)


@asynccontextmanager
async def serving(inspector: Inspector, listener: socket.socket) -> AsyncIterator[None]:
    """Answer GET /metrics on `listener`, inside the context. The processor time of this process is among the metrics.

    A client has REQUEST_SECONDS to send its request, and as long again to read each part of the answer. Of clients that
    have their answer and do not close, the oldest make room for others.
    """
    answered: dict[asyncio.Task[None] | None, None] = {}  # the oldest first

    async def serve(connection: socket.socket, admit: Admit) -> None:
        reader, writer = await asyncio.open_connection(sock=connection, limit=_MAX_REQUEST_BYTES)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            if admit():
                writer.write(await _answer(head, inspector))
                async with asyncio.timeout(REQUEST_SECONDS):
                    await writer.drain()
                    writer.write_eof()
                    answered[asyncio.current_task()] = None
                    if len(answered) > _MOST_ANSWERED and (oldest := next(iter(answered))):
                        oldest.cancel()
                        del answered[oldest]
                    while await reader.read(_MAX_REQUEST_BYTES):  # until the client has all of it and closes
                        pass
        except (
            OSError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ):  # the client sends no request, or does not read
            pass
        finally:
            answered.pop(asyncio.current_task(), None)
            writer.transport.abort()

    async with accepting(listener, serve):
        yield


async def _answer(head: bytes, inspector: Inspector) -> bytes:
    """Return the response to a request, made by the WSGI application of prometheus_client."""
    request, _, fields = head.partition(b"\r\n")
    method, _, target = request.decode("latin-1").partition(" ")
    path, _, query = target.rpartition(" ")[0].partition("?")
    headers = parse_headers(io.BytesIO(fields))
    environ: dict[str, Any] = {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query}
    for name in ("Accept", "Accept-Encoding"):
        if name in headers:
            environ[f"HTTP_{name.upper().replace('-', '_')}"] = headers[name]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    response: list[str] = []

    def start(status: str, told: Sequence[tuple[str, str]], *_: object) -> None:
        response.extend([f"HTTP/1.0 {status}", *(f"{name}: {value}" for name, value in told), "", ""])

    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            registry.register(_Taken(await inspector.look()))
        body = b"".join(make_wsgi_app(registry)(environ, start))
    except Exception as error:  # the next scrape may succeed
        _logger.warning("metrics cannot be served: %r", error)
        response[:] = ["HTTP/1.0 500 Internal Server Error", "", ""]
        body = b"the state of the network cannot be read; see the log of fanin up\n"
    return "\r\n".join(response).encode("latin-1") + body
