"""Metrics of a network that is up, as Prometheus scrapes them; names as its conventions have them (docs/inside.md)."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from controller.telemetry import Event, Reason
from experiments.inside.inspector import Inspector
from experiments.inside.look import JobView, Look
from experiments.inside.waiting import waited_for

_SECONDS = 10.0  # for one look: switches that do not answer are given 2

Sample = tuple[Sequence[str], float]


def metrics_of(look: Look) -> Iterator[Metric]:
    """All of a look. What is not known has no sample."""
    yield from _of_switches(look)
    yield from _of_links(look)
    yield from _of_jobs(look)


def _of_switches(look: Look) -> Iterator[Metric]:
    switches = look.switches.items()
    known = [(name, view) for name, view in switches if not view.error]
    up = [([name], float(not view.error)) for name, view in switches]
    yield _gauge("fanin_switch_up", "Whether the switch tells what it has counted.", ["switch"], up)
    slots = [([name], view.slots) for name, view in switches]
    yield _gauge("fanin_switch_slots_in_use", "Slots of jobs with a lease.", ["switch"], slots)
    received = [([name], view.received) for name, view in known]
    yield _counter("fanin_switch_received_packets", "Packets received at all ports.", ["switch"], received)
    sent = [([name], view.sent) for name, view in known]
    yield _counter("fanin_switch_sent_packets", "Packets sent at all ports.", ["switch"], sent)
    drops = [([name, r.name], view.drops.get(r.name, 0)) for name, view in known for r in Reason if r]
    yield _counter("fanin_switch_dropped_packets", "Packets dropped.", ["switch", "reason"], drops)
    events = [([name, e.name], view.events.get(e.name, 0)) for name, view in known for e in Event]
    help_text = "What aggregation did with packets."
    yield _counter("fanin_switch_aggregation_events", help_text, ["switch", "event"], events)


def _of_links(look: Look) -> Iterator[Metric]:
    ends = ["sender", "receiver"]

    def known(values: Iterable[float | None]) -> list[Sample]:
        pairs = zip(look.links, values, strict=True)
        return [([link.sender, link.receiver], value) for link, value in pairs if value is not None]

    links = look.links
    yield _gauge("fanin_link_up", "Whether both ends are up.", ends, known(link.up for link in links))
    capacity = known(None if link.rate is None else link.rate / 8 for link in links)
    yield _gauge("fanin_link_capacity_bytes_per_second", "Rate of the link.", ends, capacity)
    waiting = known(link.queue_bytes for link in links)
    yield _gauge("fanin_link_queue_bytes", "Bytes that wait to be sent.", ends, waiting)
    size = known(link.bytes for link in links)
    yield _counter("fanin_link_bytes", "Bytes of Ethernet frames.", ends, size)
    yield _counter("fanin_link_packets", "Packets.", ends, known(link.packets for link in links))
    lost = known(link.lost for link in links)
    yield _counter("fanin_link_lost_packets", "Packets lost, or without room in the queue.", ends, lost)


def _of_jobs(look: Look) -> Iterator[Metric]:
    forming = len(look.forming)
    yield _gauge("fanin_jobs_forming", "Jobs that wait for workers to join.", [], [([], forming)])
    leases = sum(job.lease is not None for job in look.jobs)
    yield _gauge("fanin_leases", "Leases in force of the network's jobs.", [], [([], leases)])
    jobs = list({job.name: job for job in look.jobs}.values())  # one that ends may have a name like the next
    states = [([job.name, job.state], 1) for job in jobs]
    yield _gauge("fanin_job_state", "1: the job is in this state.", ["job", "state"], states)
    slots = [([job.name], job.window) for job in jobs]
    yield _gauge("fanin_job_slots", "Slots of the job at each of its switches.", ["job"], slots)
    since = [([job.name], job.since) for job in jobs]
    yield _gauge("fanin_job_start_time_seconds", "When all its workers had joined.", ["job"], since)
    yield from _of_workers(jobs, look.at)


def _of_workers(jobs: Sequence[JobView], now: float) -> Iterator[Metric]:
    names = ["job", "host"]
    workers = [([job.name, worker.host], worker) for job in jobs for worker in job.workers]
    missing = {(job.name, worker.host) for job in jobs for worker in waited_for(job, now)}
    waited = [(labels, float(tuple(labels) in missing)) for labels, _ in workers]
    yield _gauge("fanin_worker_waited_for", "Whether other workers wait for it.", names, waited)
    heard = [(labels, worker.heard) for labels, worker in workers if worker.heard is not None]
    yield _gauge("fanin_worker_last_report_timestamp_seconds", "When it reported last.", names, heard)
    reports = [(labels, worker.report) for labels, worker in workers if worker.report is not None]
    waits = [(labels, 0.0 if r.waiting is None else r.waiting.silent) for labels, r in reports]
    help_text = "For how long nothing new had come to it in an all-reduce."
    yield _gauge("fanin_worker_waiting_seconds", help_text, names, waits)
    rtts = [(labels, r.smoothed_rtt) for labels, r in reports if r.smoothed_rtt is not None]
    yield _gauge("fanin_worker_rtt_seconds", "Smoothed round-trip time.", names, rtts)
    for name, help_text, counted in (
        ("all_reduces", "All-reduces finished.", "all_reduces"),
        ("received_bytes", "Payload of UDP received.", "bytes_received"),
        ("sent_bytes", "Payload of UDP sent.", "bytes_sent"),
        ("retransmissions", "Packets sent again.", "retransmissions"),
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


class _Looks(Collector):
    """A look for each scrape, from a thread of the server."""

    def __init__(self, inspector: Inspector, loop: asyncio.AbstractEventLoop) -> None:
        self._inspector = inspector
        self._loop = loop

    def describe(self) -> Iterable[Metric]:
        """None, for which it would have to look."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All metrics."""
        looking = asyncio.run_coroutine_threadsafe(self._inspector.look(), self._loop)
        return metrics_of(looking.result(_SECONDS))


@contextmanager
def serving(inspector: Inspector, listener: socket.socket) -> Iterator[None]:
    """Inside, GET /metrics on `listener` is answered, and the processor time of this process is among the metrics."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Looks(inspector, asyncio.get_running_loop()))
    server = ThreadingWSGIServer(listener.getsockname(), _Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.server_name, server.server_port = listener.getsockname()[:2]
    server.setup_environ()
    server.set_app(make_wsgi_app(registry))
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class _Handler(WSGIRequestHandler):
    """Without a line on standard error for each scrape."""

    def log_message(self, *_: object) -> None:
        """Nothing."""
