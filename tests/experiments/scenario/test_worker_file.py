"""A worker of one's own: the same file live and in virtual time, and what is wrong with it is told with its place."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fanin.experiments.live.worker import join
from fanin.experiments.live.worker_group import RunError, run_worker_group
from fanin.experiments.live.worker_messages import InNetwork, Task, Vectors
from fanin.experiments.protocol import make_worker_of
from fanin.experiments.results.checking import compare_with_promise, oracle_of
from fanin.experiments.results.measured import Measured
from fanin.experiments.results.recording import Recording
from fanin.experiments.scenario.file import load_scenario
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.native.python_file import PythonFileError, telling
from fanin.simulator.fabric import load_switch
from fanin.workers.collective import StallError
from fanin.workers.lease import Lease
from fanin.workers.participant_udp import PluggedWorker
from fanin.workers.recovery import Pace
from tests.experiments.live.local_worker_group import LocalWorkerGroup
from tests.workers.loopback import HOST, SWITCH, WINDOW, free_address, switch

# No Worker, but something with one inside: nothing is used of it but what a Participant has.
WRAPPED = """
from fanin.workers.protocol import Worker

class Mine:
    def __init__(self, lease, recovery):
        self._worker = Worker(lease, recovery)
    @property
    def statistics(self):
        return self._worker.statistics
    @property
    def finished(self):
        return self._worker.finished
    def start(self, x, now, out=None):
        self._worker.start(x, now, out)
    def receive(self, datagrams, now):
        self._worker.receive(datagrams, now)
    def datagrams_to_send(self, now):
        return [again for batch in self._worker.datagrams_to_send(now) for again in [batch] * TIMES]
    def deadline(self):
        return self._worker.deadline()
    def finish(self):
        return self._worker.finish()

participant = Mine
"""
FAILING = """
from fanin.workers import Worker

class Mine(Worker):
    def finish(self):
        raise OSError("no more")

participant = Mine
"""
pytestmark = pytest.mark.slow

SCENARIO = """
name = "try"
size = "40 kB"
worker = "workers.py"
[topology.leaf_spine]
spines = 0
leaves = 1
hosts_per_leaf = 2
rate = "1 Gb/s"
"""


def file(folder: Path, text: str) -> Path:
    path = folder / "workers.py"  # as a package of ours is called
    path.write_text(text.lstrip())
    return path


def measured(folder: Path, text: str) -> Measured:
    file(folder, text)
    (folder / "try.toml").write_text(SCENARIO)
    (point,) = load_scenario(folder / "try.toml").points
    make_worker_of.cache_clear()
    return run_virtual(point, load_switch())


def test_in_virtual_time_it_takes_the_place_of_ours(tmp_path: Path) -> None:
    (tmp_path / "once").mkdir()
    once = measured(tmp_path / "once", WRAPPED.replace("TIMES", "1"))
    twice = measured(tmp_path, WRAPPED.replace("TIMES", "2"))
    assert once.violations == twice.violations == 0
    assert twice.packets_per_worker > 1.4 * once.packets_per_worker


def test_on_sockets_it_takes_the_place_of_ours(tmp_path: Path) -> None:
    path = file(tmp_path, WRAPPED.replace("TIMES", "2"))
    workers = [free_address(), free_address()]

    def run(rank: int) -> list[float]:
        lease = Lease(5, rank, 2, WINDOW)
        collective = InNetwork(lease, workers[rank], SWITCH, Pace(WINDOW, 8), path)
        with join(Task(rank, 2, tmp_path, collective, Vectors(1, 1), 5.0)) as end:
            assert isinstance(end.worker, PluggedWorker)
            sums = [end.all_reduce(np.full(n, rank + 1.0, np.float32)) for n in (5000, 1, 5000)]
            assert end.statistics.all_reduces == 3
            return [float(value) for one in sums for value in (one.min(), one.max())]

    with switch(workers, drop_every=9), ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, range(2))) == [[3.0] * 6] * 2


def test_on_sockets_it_gives_up_as_it_says(tmp_path: Path) -> None:
    path = file(tmp_path, WRAPPED.replace("TIMES", "1"))
    collective = InNetwork(Lease(5, 0, 2, WINDOW), free_address(), (HOST, 0xBEE4), Pace(WINDOW, 8), path)
    with (
        join(Task(0, 2, tmp_path, collective, Vectors(1, 1), 0.3)) as end,
        pytest.raises(StallError, match="rank 0 of 2"),
    ):
        end.all_reduce(np.ones(4, np.float32))


def test_what_fails_in_it_is_told_with_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(PythonFileError, match=r"workers\.py:5: OSError: no more"):
        measured(tmp_path, FAILING)
    with pytest.raises(ZeroDivisionError), telling(tmp_path / "workers.py"):
        1 / 0  # noqa: B018 - ours


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n", "workers.py: defines none of participant()"),
        ("participant = 3\n", "workers.py: participant is int, must be a function"),
        ("def participant(lease): pass\n", "workers.py:1: TypeError: participant() takes 1"),
        (
            "def participant(lease, recovery): pass\n",
            "participant() returns None, which lacks statistics, finished",
        ),
    ],
)
def test_a_file_without_a_worker_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(PythonFileError) as error:
        measured(tmp_path, text)
    assert words in str(error.value)


def test_it_is_for_in_network_points(tmp_path: Path) -> None:
    path = file(tmp_path, WRAPPED)
    (tmp_path / "try.toml").write_text(SCENARIO)
    points = load_scenario(tmp_path / "try.toml", ["algorithm=in-network,ring"]).points
    assert [point.worker for point in points] == [path, None]
    assert Settings.model_validate(points[0].model_dump(mode="json")) == points[0]


def run_processes(folder: Path, text: str) -> str:
    """Two worker processes whose recordings are in `folder` then; what they failed with."""
    path, lease = file(folder, text), Lease(5, 0, 2, WINDOW)
    workers = [free_address(), free_address()]
    collectives = [
        InNetwork(replace(lease, rank=rank), workers[rank], SWITCH, Pace(WINDOW, 8), path)
        for rank in range(2)
    ]
    tasks = [Task(rank, 2, folder, one, Vectors(3000, 2)) for rank, one in enumerate(collectives)]
    with switch(workers):
        try:
            asyncio.run(run_worker_group(tasks, LocalWorkerGroup().start, lambda *_: None, logs=folder))
        except RunError as error:  # not through switch(), which would wait for its end
            return str(error)
    return ""


def test_worker_processes_take_it_from_its_file(tmp_path: Path) -> None:
    printing = 'print("here I am")\n' + WRAPPED.replace("TIMES", "1")
    for _ in range(2):
        assert run_processes(tmp_path, printing) == ""
    assert (tmp_path / "worker-1.log").read_text() == 2 * "here I am\n"
    recordings = [Recording.open(tmp_path, rank) for rank in range(2)]
    topology = {"leaf_spine": {"spines": 0, "leaves": 1, "hosts_per_leaf": 2}}
    settings = Settings.model_validate({"topology": topology, "size": "4 MB"})
    assert compare_with_promise(recordings, oracle_of(settings, "in-network", WINDOW)).violations == 0


def test_a_worker_process_tells_file_and_line(tmp_path: Path) -> None:
    assert re.search(r"workers\.py:5: OSError: no more", run_processes(tmp_path, FAILING))
