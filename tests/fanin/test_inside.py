"""`fanin top` and `fanin why` of a network that is up, with a job that goes on, and one that stands still."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.fanin.network import TIMEOUT, Up

pytestmark = pytest.mark.live

GOES_ON = """
import numpy, os, workers
os.environ["FANIN_JOB"] = "train"
with workers.join() as job:
    print(os.getpid(), flush=True)
    while True:
        job.all_reduce(numpy.ones(1000, numpy.float32))
"""


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
    for text in ("train", "in network", "leaf1", "h1 → leaf1", "100 Mb/s"):
        assert text in shown


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


def test_why_blames_the_link_that_is_down(up: Up, fanin: Any) -> None:
    with job(up):
        assert fanin("exec", "h2", "ip", "link", "set", "h2-eth0", "down", **up.environment).returncode == 0
        told = until(lambda: ask(up, fanin, "why"), lambda told: len(told["waiting"]) == 2)
    assert told["culprit"].startswith("Most likely the way from h2 to leaf1: the link h2 → leaf1 is down")


def test_a_job_that_is_not_there_is_refused(up: Up, fanin: Any) -> None:
    refused = fanin("why", "tarin", **up.environment)
    assert (refused.returncode, refused.stderr) == (1, "fanin why: no job is called tarin; there are: none\n")
