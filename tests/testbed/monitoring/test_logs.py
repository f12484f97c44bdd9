"""Lines of JSON in a file: who joined, what was granted, who waits."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from fanin.testbed.monitoring.logs import Stalls, logging_to
from tests.controller.job_service import FakeGrants, Worker, served
from tests.testbed.monitoring.snapshots import NOW, job, waiting, worker


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_job_is_logged_from_its_first_worker_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "new" / "log.jsonl"

    async def check(path: Path, grants: FakeGrants) -> None:
        workers = [await Worker.connect(path, host, 2, job="train", process=41) for host in ("h1", "h2")]
        for each in workers:
            await each.rank()
        for each in workers:
            await each.end()
        await grants.until(lambda: not grants.open_jobs)

    with logging_to(file):
        served(tmp_path / "jobs.sock")(check)
    logged = lines(file)
    of_job = [line for line in logged if line["logger"] == "fanin.controller.jobs.lifecycle"]
    assert [(line["message"], line["job"], line["lease"]) for line in of_job] == [
        ("all workers have joined", "train", None),
        ("begins in the network", "train", 1),
        ("has ended", "train", None),
    ]
    of_h1 = [line for line in logged if line.get("host") == "h1"]
    assert [line["message"] for line in of_h1] == [
        "h1's worker, process 41, has joined",
        "h1's worker, process 41, has left",
    ]
    assert set(of_h1[0]) == {"time", "level", "logger", "message", "job", "host", "pid"}
    assert all(line["level"] == "info" and datetime.fromisoformat(line["time"]).tzinfo for line in logged)


def test_a_worker_that_waits_is_logged_once_and_when_it_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    stands = job(worker("h1", 7, waiting(8, chunks=((4, 7),))), worker("h2", 7, heard=20))
    stalls = Stalls()
    with logging_to(file):
        for found in (stands, stands, job(worker("h1", 8), worker("h2", 8))):
            stalls.look([found], NOW)
    begun, ended = lines(file)
    wanted = {
        "level": "warning",
        "job": "train",
        "lease": 7,
        "host": "h1",
        "all_reduce": 8,
        "chunks": [[4, 7]],
    }
    assert begun.items() >= (wanted | {"waited_for": ["h2"]}).items()
    assert begun["message"] == "h1 waits for 4 of 4 chunks, nothing new for 5.0 s"
    assert (ended["level"], ended["message"], ended["job"]) == ("info", "h1 no longer waits", "train")


def test_afterwards_nothing_is_written(tmp_path: Path) -> None:
    with logging_to(tmp_path / "log.jsonl"):
        pass
    logging.getLogger("fanin.controller").error("late")
    assert lines(tmp_path / "log.jsonl") == []


def test_an_exception_stays_in_one_line(tmp_path: Path) -> None:
    with logging_to(tmp_path / "log.jsonl"):
        try:
            raise ValueError("no")
        except ValueError:
            logging.getLogger("fanin.controller").exception("went wrong")
    [line] = lines(tmp_path / "log.jsonl")
    assert line["exception"].endswith("ValueError: no")


def test_nothing_reaches_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Stalls().look([job(worker("h1", 7, waiting(8)))], NOW)
    logging.getLogger("fanin.controller.jobs.lifecycle").warning("a lease was revoked")
    assert capsys.readouterr() == ("", "")
