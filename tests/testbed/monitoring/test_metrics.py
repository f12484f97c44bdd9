"""Metrics as Prometheus reads them: scraped over HTTP, and parsed by its own parser."""

from __future__ import annotations

import asyncio
import socket
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fanin.testbed.monitoring.metrics import serving
from fanin.testbed.monitoring.snapshot import FormingView, LinkView, Snapshot, SwitchView
from tests.testbed.monitoring.snapshots import NOW, job, two_on_each_host, waiting, worker

LOOK = Snapshot(
    at=NOW,
    jobs=(job(worker("h1", 7, waiting(8)), worker("h2", 7, heard=20)), job(worker("h1", None), name="new")),
    forming=(FormingView(name="late", hosts=("h1", "h2"), workers=(worker("h1", None),), missing=("h2",)),),
    switches={
        "leaf1": SwitchView(slots=8, received=40, sent=30, drops={"MISMATCH": 3}, events={"ADDED": 9}),
        "spine1": SwitchView(slots=4, error="it has gone"),
    },
    links=(
        LinkView(
            sender="h1", receiver="leaf1", rate=8000, up=True, packets=5, bytes=500, lost=1, queue_bytes=None
        ),
        LinkView(
            sender="spine1",
            receiver="leaf1",
            rate=None,
            up=None,
            packets=None,
            bytes=None,
            lost=None,
            queue_bytes=60,
        ),
    ),
)


def scraped(look: Snapshot | Exception) -> dict[str, dict[tuple[str, ...], float]]:
    """Values by metric and labels, in the order of their names."""

    class Inspector:
        async def look(self) -> Snapshot:
            if isinstance(look, Exception):
                raise look
            return look

    async def scrape() -> str:
        inspector: Any = Inspector()
        listener = socket.create_server(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"

        def get() -> str:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return str(answer.read().decode())

        async with serving(inspector, listener):
            return await asyncio.to_thread(get)

    families = text_string_to_metric_families(asyncio.run(scrape()))
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(value for _, value in sorted(sample.labels.items()))] = (
                sample.value
            )
    return found


def test_what_a_look_finds_is_scraped() -> None:
    found = scraped(LOOK)
    assert found["fanin_switch_up"] == {("leaf1",): 1, ("spine1",): 0}
    assert found["fanin_switch_received_packets_total"] == {("leaf1",): 40}
    drops = found["fanin_switch_dropped_packets_total"]
    assert (drops["MISMATCH", "leaf1"], drops["NO_ROUTE", "leaf1"]) == (3, 0)
    assert found["fanin_switch_aggregation_events_total"]["ADDED", "leaf1"] == 9
    assert found["fanin_link_capacity_bytes_per_second"] == {("leaf1", "h1"): 1000}
    assert found["fanin_link_bytes_total"] == {("leaf1", "h1"): 500}
    assert found["fanin_link_queue_bytes"] == {("leaf1", "spine1"): 60}
    assert found["fanin_job_state"] == {("train", "in network"): 1, ("new", "in network"): 1}
    assert found["fanin_worker_all_reduces_total"] == {("h1", "train", "0"): 7, ("h2", "train", "1"): 7}
    assert found["fanin_worker_waited_for"] == {
        ("h1", "train", "0"): 0,
        ("h2", "train", "1"): 1,
        ("h1", "new", "0"): 0,
    }
    assert found["fanin_worker_calls_total"]["h1", "train", "0"] == 0
    assert found["fanin_worker_waiting_seconds"]["h1", "train", "0"] == 5
    assert (found["fanin_jobs_forming"][()], found["fanin_leases"][()]) == (1, 2)
    assert found["process_cpu_seconds_total"][()] > 0


def test_every_rank_of_a_host_has_metrics() -> None:
    found = scraped(LOOK.model_copy(update={"jobs": (two_on_each_host(),)}))
    ranks = [("h1", "train", "0"), ("h1", "train", "1"), ("h2", "train", "2"), ("h2", "train", "3")]
    assert found["fanin_worker_waited_for"] == dict.fromkeys(ranks, 0) | {("h2", "train", "3"): 1}
    assert found["fanin_worker_calls_total"] == dict(zip(ranks, (9, 9, 9, 6), strict=True))
    assert list(found["fanin_worker_all_reduces_total"]) == [ranks[0], ranks[2]]


def test_of_two_jobs_with_one_name_the_newer_is_told() -> None:
    both = LOOK.model_copy(update={"jobs": (job(worker("h1", 3)), job(worker("h2", 4)))})
    assert scraped(both)["fanin_worker_all_reduces_total"] == {("h2", "train", "0"): 4}


def test_without_a_look_there_is_an_error() -> None:
    with pytest.raises(urllib.error.HTTPError, match="500") as refused:
        scraped(TimeoutError())
    refused.value.close()


@pytest.mark.slow
def test_clients_that_do_not_close_make_room_for_others() -> None:
    """They have their answer: 600 requests whose body never ends, one after the other, and then a scrape."""

    class Inspector:
        async def look(self) -> Snapshot:
            return LOOK

    async def crowd() -> int:
        inspector: Any = Inspector()
        listener = socket.create_server(("127.0.0.1", 0))
        place = listener.getsockname()
        post = b"POST /metrics HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + bytes(100)

        def ask() -> int:
            for _ in range(600):
                client = socket.create_connection(place, 20)
                clients.append(client)
                client.sendall(post)
                with suppress(ConnectionResetError):
                    client.recv(1)
            with urllib.request.urlopen(f"http://127.0.0.1:{place[1]}/metrics", timeout=20) as answer:
                return int(answer.status)

        async with serving(inspector, listener):
            return await asyncio.to_thread(ask)

    clients: list[socket.socket] = []
    try:
        assert asyncio.run(crowd()) == 200
    finally:
        for client in clients:
            client.close()
