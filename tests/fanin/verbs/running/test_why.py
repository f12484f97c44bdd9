"""The output of `fanin why` for jobs in each state, for people and as JSON."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer

from fanin.testbed import job_service_client as client
from fanin.testbed.monitoring.snapshot import FormingView, JobView, LinkView, Snapshot, SwitchView
from fanin.verbs.running import why
from fanin.workers.collective import CollectiveError
from fanin.workers.communicator import Communicator
from tests.testbed.monitoring.snapshots import NOW, job, waiting, worker
from tests.workers.live_job import communicators, network
from tests.workers.loopback import everywhere

# Of a window of 4, chunks 5 to 7 are in slots 1 to 3; so are they at all workers.
CHUNKS = ((5, 7),)
STANDS = job(worker("h1", 7, waiting(8, chunks=CHUNKS)), worker("h2", 7, heard=20))
RING = job(
    worker("h3", None),
    name="ring",
    state="using the ring",
    why="its lease was revoked",
    lease=None,
    slots=None,
)
LATE = FormingView(name="late", hosts=("h1", "h2"), workers=(worker("h1", None),), missing=("h2",))
EMPTY = {"lease": 0, "chunk": 0, "seen": 0, "done": False}


class Network:
    """In place of one that is up: h2's worker has not come."""

    run = SimpleNamespace(process_ids={})

    def processes(self) -> dict[str, list[Any]]:
        return {}


class Service:
    """In place of the network's job service."""

    def __init__(self, *jobs: JobView) -> None:
        self._jobs = jobs or (STANDS, RING)

    def cells(self, _: str) -> dict[str, Any]:
        cells: dict[int, Any] = dict.fromkeys(range(8), EMPTY)
        cells |= {2 * (chunk % 4) + 1: EMPTY | {"lease": 7, "chunk": chunk, "seen": 1} for chunk in (5, 6, 7)}
        return {"leaf1": {"cells": cells}, "spine1": {"cells": dict.fromkeys(range(8), EMPTY)}}

    def look(self) -> dict[str, Any]:
        ways = (("h1", "leaf1"), ("h2", "leaf1"), ("leaf1", "spine1"))
        known: dict[str, Any] = {
            "rate": None,
            "up": True,
            "packets": 0,
            "bytes": 0,
            "lost": 0,
            "queue_bytes": 0,
        }
        links = [LinkView(sender=a, receiver=b, **known) for each in ways for a, b in (each, each[::-1])]
        switches = {name: SwitchView(slots=4) for name in ("leaf1", "spine1")}
        look = Snapshot(at=NOW, jobs=self._jobs, forming=(LATE,), switches=switches, links=tuple(links))
        return look.model_dump(mode="json")


@pytest.fixture(autouse=True)
def up(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(**_: Any) -> Network:
        return Network()

    def without(_: float) -> None:
        """No pause."""

    monkeypatch.setattr(why, "find_network", find)
    monkeypatch.setattr(client, "JobServiceClient", lambda _: Service())
    monkeypatch.setattr(why.time, "sleep", without)


def test_all_jobs_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    why.why()
    assert capsys.readouterr().out.splitlines() == [
        "train, lease 7",
        "  h1 waits in all-reduce 8 for 3 of 3 chunks (sums), no progress for 5 s",
        "  chunks 5-7 (slots 1-3): h2's update for leaf1 is missing",
        "    had finished all-reduce 7 at its last report, 20 s ago",
        "Most likely the worker on h2, without which the others cannot continue (h2: had finished all-reduce 7 at its "
        "last report, 20 s ago).",
        "ring",
        "It is using the ring: its lease was revoked. Without a lease its workers do not report.",
        "late",
        "No worker has joined on h2; waiting for 100 s: h1 (process 101).",
    ]


def test_one_of_them_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    why.why("train", as_json=True)
    [line] = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    assert (told["job"], [worker["host"] for worker in told["waiting"]]) == ("train", ["h1"])
    [missing] = told["missing"]
    assert (missing["chunks"], missing["hop"]["sender"]) == ([[5, 7]], "h2")
    why.why("late", as_json=True)
    assert json.loads(capsys.readouterr().out)["culprit"].startswith("No worker has joined on h2")


def test_whose_call_differs_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the job service has found it out from the workers' reports."""
    hosts = ["h1", "h2", "h3"]

    def differ(comm: Communicator) -> None:
        with pytest.raises(CollectiveError):
            comm.allreduce(np.ones(2 + (comm.rank == 1), np.float32))

    with network(hosts, lambda _: []) as (_, grants, path), communicators(path, hosts) as comms:
        everywhere(comms, differ)
        [found] = grants.jobs()
    differs = JobView.model_validate({**found, "name": "train", "slots": None, "tree": ()})
    monkeypatch.setattr(client, "JobServiceClient", lambda _: Service(differs))
    process = os.getpid()
    culprit = (
        "Its workers have stopped making calls: the workers make different calls. "
        f"rank 1 (process {process} on h2): allreduce sum of 3 float32; the others: allreduce sum of 2 float32"
    )
    why.why("train")
    assert capsys.readouterr().out.splitlines() == ["train", culprit]
    why.why("train", as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told == {"job": "train", "waiting": [], "missing": [], "unknown": "", "culprit": culprit}


def test_a_job_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        why.why("tarin")
    assert capsys.readouterr().err == (
        "fanin why: tarin: no such job; did you mean 'train'? The jobs are: late, ring, train\n"
    )


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [
        (5, 5, "5 (slot 1)"),
        (4, 7, "4-7 (all its slots)"),
        (6, 8, "6-8 (slots 2-3 and 0-0)"),
    ],
)
def test_slots_go_round(first: int, last: int, text: str) -> None:
    assert why._range_text(STANDS, first, last) == text
