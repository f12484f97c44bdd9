"""`fanin top` and `fanin why` of a network that is up, with a job that goes on, and one that stands still."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.sync.client import connect

from fanin.controller.job_service import jobs_pb2 as pb
from fanin.controller.job_service.server import SERVICE
from fanin.testbed.runs import Run
from tests.controller.certificates import certificates
from tests.fanin.network import SMALL, TIMEOUT, Up

pytestmark = pytest.mark.live

GOES_ON = """
import numpy, os, workers
os.environ["FANIN_JOB"] = "train"
with workers.join() as job:
    print(os.getpid(), flush=True)
    while True:
        job.all_reduce(numpy.ones(1000, numpy.float32))
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """In place of the usual one: it serves metrics, the dashboard, the job service on TCP, and logs."""
    folder = tmp_path_factory.mktemp("up")
    options: list[str | Path] = ["--metrics", "0", "--log", folder / "new" / "log.jsonl"]
    options += ["--dashboard-listen", "0"]
    if shutil.which("openssl"):
        options += ["--jobs-listen", "0", "--jobs-tls", certificates(folder / "certificates")]
    with Up(folder, *SMALL, *options) as network:
        yield network


def ask(up: Up, fanin: Any, *arguments: str) -> Any:
    done = fanin(*arguments, "--json", **up.environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[0])


def until(found: Any, wanted: Any) -> Any:
    end = time.monotonic() + TIMEOUT
    while not wanted(told := found()):
        assert time.monotonic() < end, told
    return told


@contextmanager
def job(up: Up) -> Iterator[list[int]]:
    """The processes of its workers."""
    running = [up.start(host, GOES_ON) for host in ("h1", "h2")]
    try:
        yield [int(process.stdout.readline()) for process in running if process.stdout]
    finally:
        for process in running:
            process.kill()
            process.communicate(timeout=TIMEOUT)


def test_top_tells_of_jobs_switches_and_links(up: Up, fanin: Any) -> None:
    def reported(look: Any) -> bool:
        return bool(look["jobs"]) and all(worker["report"] for worker in look["jobs"][0]["workers"])

    with job(up) as processes:
        look = until(lambda: ask(up, fanin, "top", "--once"), reported)
        shown = fanin("top", "--once", **up.environment).stdout
    [train] = look["jobs"]
    assert (train["name"], [worker["process"] for worker in train["workers"]]) == ("train", processes)
    assert all(worker["report"]["bytes_received"] for worker in train["workers"])
    first, last = train["slots"]
    assert look["switches"]["leaf1"]["slots"] == last + 1 - first
    assert look["switches"]["leaf1"]["received"] > 0
    ends = {(link["sender"], link["receiver"]): link for link in look["links"]}
    assert set(ends) == {("h1", "leaf1"), ("leaf1", "h1"), ("h2", "leaf1"), ("leaf1", "h2")}
    assert all(link["up"] and link["bytes"] and link["rate"] == 100_000_000 for link in ends.values())
    for text in ("train", "in network", "leaf1", r"h1 → leaf1 +[\d,.]+ +100 "):
        assert re.search(text, shown)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_the_job_service_is_reached_from_outside_with_a_certificate(up: Up) -> None:
    address = re.search(r"gRPC with TLS at 127\.0\.0\.1:(\d+)", up.said)
    assert address
    ca, key, certificate = (
        (up.folder / "certificates" / name).read_bytes() for name in ("ca.crt", "client.key", "client.crt")
    )
    credentials = grpc.ssl_channel_credentials(ca, key, certificate)
    with grpc.secure_channel(f"localhost:{address[1]}", credentials) as channel, job(up):
        answers: Any = channel.unary_unary(
            f"/{SERVICE}/Look", pb.LookRequest.SerializeToString, pb.LookResponse.FromString
        )
        look = until(lambda: answers(pb.LookRequest(), timeout=TIMEOUT), lambda look: len(look.jobs) == 1)
    assert look.jobs[0].name == "train"
    assert look.switches["leaf1"].slots == 128


def test_metrics_are_scraped_from_outside_of_the_namespaces(up: Up) -> None:
    address = re.search(r"http://127\.0\.0\.1:\d+/metrics", up.said)
    assert address

    def scrape() -> dict[tuple[str, str], float]:
        with urllib.request.urlopen(address[0], timeout=TIMEOUT) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        samples = [sample for family in families for sample in family.samples]
        return {(sample.name, ",".join(sample.labels.values())): sample.value for sample in samples}

    with job(up):
        found = until(
            scrape, lambda found: found.get(("fanin_worker_all_reduces_total", "h2,train,1"), 0) > 0
        )
    assert found["fanin_switch_up", "leaf1"] == 1
    assert found["fanin_switch_aggregation_events_total", "COMPLETED,leaf1"] > 0
    assert found["fanin_link_capacity_bytes_per_second", "leaf1,h1"] == 100e6 / 8


def test_the_dashboard_shows_a_job_and_the_load_of_its_links(up: Up) -> None:
    """From outside of the namespaces: an all-reduce after the other keeps both links busy, in both directions."""
    address = re.search(r"Dashboard: http://(127\.0\.0\.1:\d+)/dashboard/\n", up.said)
    assert address
    with job(up), connect(f"ws://{address[1]}/dashboard/live", origin=f"http://{address[1]}") as page:  # type: ignore[arg-type]
        news: dict[str, Any] = {}

        def read() -> dict[str, Any]:
            news.update(json.loads(page.recv(TIMEOUT)))
            return news

        assert read()["network"]["links"] == [["h1", "leaf1"], ["h2", "leaf1"]]
        until(read, lambda found: min((bits or 0 for bits in found.get("load", [0])), default=0) > 10_000)
        state = until(read, lambda found: found.get("state", {}).get("jobs"))["state"]
        assert [worker["host"] for worker in state["jobs"][0]["workers"]] == ["h1", "h2"]
        assert state["switches"]["leaf1"]["slots"] == 128


@pytest.mark.few(0)
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_connections_that_say_nothing_take_no_link_down(up: Up, fanin: Any) -> None:
    """More than the network's process may have files open, at both ports."""
    ports = [int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)(?:\n|/metrics|/dashboard)", up.said)]
    assert len(ports) == 3
    [folder] = up.folder.glob("fanin-run-*")
    inside = Run(folder).process(1)
    assert inside is not None
    few = 400
    resource.prlimit(inside, resource.RLIMIT_NOFILE, (few, few))
    with ExitStack() as stack:
        for port in ports * few:
            stack.enter_context(socket.create_connection(("127.0.0.1", port), TIMEOUT))
        test_metrics_are_scraped_from_outside_of_the_namespaces(up)
        test_the_job_service_is_reached_from_outside_with_a_certificate(up)
        look = ask(up, fanin, "top", "--once")
        assert all(link["up"] for link in look["links"])
        assert len(list(Path(f"/proc/{inside}/fd").iterdir())) < few
    assert "is down" not in (up.folder / "new" / "log.jsonl").read_text()


def test_what_happens_is_logged(up: Up) -> None:
    def logged() -> list[dict[str, Any]]:
        whole, _, _ = (
            (up.folder / "new" / "log.jsonl").read_text().rpartition("\n")
        )  # the last may be half written
        return [json.loads(line) for line in whole.splitlines()]

    before = len(logged())
    with job(up) as processes:
        os.kill(processes[1], signal.SIGSTOP)
        until(logged, lambda lines: any("waited_for" in line for line in lines[before:]))
    found = until(logged, lambda lines: lines[-1]["message"] == "has ended")[before:]
    [granted] = [line for line in found if line["message"].startswith("granted a lease")]
    assert (granted["level"], granted["logger"], granted["hosts"]) == (
        "info",
        "fanin.controller.controller",
        ["h1", "h2"],
    )
    [waits] = [line for line in found if line.get("waited_for")]
    assert (waits["level"], waits["job"], waits["host"]) == ("warning", "train", "h1")
    assert (waits["lease"], waits["waited_for"]) == (granted["lease"], ["h2"])
    assert waits["chunks"]


def test_why_blames_the_worker_that_is_stopped(up: Up, fanin: Any) -> None:
    with job(up) as processes:
        os.kill(processes[1], signal.SIGSTOP)
        told = until(lambda: ask(up, fanin, "why", "train"), lambda told: told["waiting"])
        shown = fanin("why", **up.environment).stdout
        os.kill(processes[1], signal.SIGCONT)
    assert {(m["hop"]["sender"], m["hop"]["receiver"], m["hop"]["what"]) for m in told["missing"]} == {
        ("h2", "leaf1", "update")
    }
    assert told["culprit"].startswith("Most likely the worker on h2")
    assert f"process {processes[1]} is stopped" in told["culprit"]
    assert "h2's update for leaf1" in shown


def test_why_blames_the_link_that_loses_all(up: Up, fanin: Any) -> None:
    with job(up):
        assert (
            fanin("link", "h2", "leaf1", "--set", "loss=100%", "--one-way", **up.environment).returncode == 0
        )
        told = until(lambda: ask(up, fanin, "why"), lambda told: len(told["waiting"]) == 2)
    assert re.match(
        r"Most likely the path from h2 to leaf1: the link h2 → leaf1 has lost \d+ packets? in",
        told["culprit"],
    )


def test_a_job_that_is_not_there_is_refused(up: Up, fanin: Any) -> None:
    refused = fanin("why", "tarin", **up.environment)
    assert (refused.returncode, refused.stderr) == (1, "fanin why: tarin: no such job; the jobs are: none\n")
