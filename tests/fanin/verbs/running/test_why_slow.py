"""`fanin why --slow` of jobs on a network that is up: which rank, or which link, makes them slow."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fanin.network import TIMEOUT, Up

pytestmark = pytest.mark.live

TRAIN = """
import sys, time, numpy as np, fanin
comm = fanin.init()
x = np.ones(int(sys.argv[1]), np.float32)
while True:
    time.sleep(0.02 + (float(sys.argv[2]) if comm.rank == 2 else 0))
    comm.allreduce(x)
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with Up(
        tmp_path_factory.mktemp("up"),
        *("--workers", "4", "--leaves", "2", "--spines", "1", "--rate", "100Mb/s"),
    ) as network:
        yield network


@contextmanager
def job(up: Up, tmp_path: Path, elements: int, late: float) -> Iterator[None]:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    launched = up.fanin("launch", "--job", "train", script, str(elements), str(late))
    try:
        yield
    finally:
        launched.terminate()
        launched.communicate(timeout=TIMEOUT)


def slowness(up: Up, fanin: Any) -> Any:
    """Return its output once the job has made enough calls."""
    end = time.monotonic() + TIMEOUT
    told = {"job": None, "unknown": "not asked"}
    while told.get("unknown"):
        assert time.monotonic() < end, told
        done = fanin("why", "train", "--slow", "--json", **up.environment)
        if done.returncode == 0:  # otherwise the job has not begun
            told = json.loads(done.stdout)
    return told


@pytest.mark.few(0)
def test_a_link_that_was_cut_to_a_fifth_is_full(up: Up, fanin: Any, tmp_path: Path) -> None:
    def rates() -> dict[tuple[str, str], Any]:
        look = json.loads(fanin("top", "--once", "--json", **up.environment).stdout)
        return {(link["sender"], link["receiver"]): link for link in look["links"]}

    assert fanin("link", "h3", "leaf2", "--set", "rate=20Mb/s", **up.environment).returncode == 0
    try:
        found = rates()
        with job(up, tmp_path, 100_000, 0.0):
            told = slowness(up, fanin)
    finally:
        fanin("link", "h3", "leaf2", "--clear", "--set", "rate=100Mb/s", **up.environment)
    ends = ("h3", "leaf2")
    assert [found[way]["rate"] for way in (ends, ends[::-1])] == [20_000_000] * 2
    assert found[ends]["built_rate"] == 100_000_000
    assert found["h4", "leaf2"]["rate"] == 100_000_000
    cause = told["causes"][0]
    assert cause["cause"] == "slow link", told
    assert set(cause["evidence"].split()) >= set(ends)
    assert "built with 100 Mb/s" in cause["evidence"]
    fullest = max(told["links"], key=lambda link: link["moving"])
    assert set(fullest["name"].split(" → ")) == set(ends)
    assert [link["rate"] for link in rates().values()] == [100_000_000] * len(found)


def test_a_rank_that_sleeps_in_each_step_comes_last(up: Up, fanin: Any, tmp_path: Path) -> None:
    with job(up, tmp_path, 10_000, 0.4):
        told = slowness(up, fanin)
        shown = fanin("why", "--slow", **up.environment).stdout
    cause = told["causes"][0]
    assert cause["cause"] == "straggler", told
    assert cause["evidence"].startswith("rank 2 (process ")
    assert max(told["ranks"], key=lambda rank: rank["late_seconds"])["host"] == "h3"
    assert told["ranks"][2]["computing"] > 0.5 > told["ranks"][0]["computing"]
    assert "allreduce sum of 10,000 float32" in shown
    assert "1. straggler, about" in shown


def test_a_diagnosis_of_a_job_that_runs_has_the_cause_the_calls_and_what_it_cannot_see(
    up: Up, fanin: Any, tmp_path: Path
) -> None:
    with job(up, tmp_path, 10_000, 0.4):
        slowness(up, fanin)  # until it has made enough calls
        shown = fanin("diagnose", "train", "--live", **up.environment).stdout
        missing = fanin("diagnose", "trein", "--live", **up.environment)
    assert "1. straggler, about" in shown
    assert "its process used no processor for" in shown
    assert re.search(r"^allreduce sum of 10,000 float32 +[0-9]+ +[0-9]+% ", shown, re.MULTILINE)
    assert "Cannot tell live: collision, pause storm" in shown
    assert "trein: no such job; did you mean 'train'?" in missing.stderr
