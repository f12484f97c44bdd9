"""Points on a Dask cluster: the same rows as here, also when a worker dies half-way; what does not fit is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from fanin.experiments import dask_scheduler
from fanin.experiments.dask_scheduler import SchedulerError
from fanin.experiments.results.files import Journal
from fanin.experiments.results.measured import Row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.sweep import run_points
from tests.experiments.points import points
from tests.experiments.watch import Watch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("distributed") is None, reason="Dask is not installed"),
]

ROOT = Path(__file__).parents[2]


@contextmanager
def dask(part: str, *arguments: str, file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Dask's, which finds the others by the file."""
    module = f"distributed.cli.dask_{part}"
    command = [sys.executable, "-m", module, "--scheduler-file", str(file), "--no-dashboard", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with (
        (file.parent / f"{part}.log").open("ab") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=environment) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


@dataclass(frozen=True)
class DaskCluster:
    address: str
    workers: Sequence[subprocess.Popen[bytes]]


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[DaskCluster]:
    """A scheduler and as many workers, on loopback."""
    file = folder / "scheduler.json"  # which all of Dask's wait for
    with ExitStack() as stack:
        stack.enter_context(dask("scheduler", "--host", "127.0.0.1", "--port", "0", file=file))
        found = [
            stack.enter_context(dask("worker", "--nthreads=1", "--no-nanny", file=file))
            for _ in range(workers)
        ]
        from distributed import Client  # half a second, which each process of pytest would need

        with Client(scheduler_file=str(file), timeout=60, set_as_default=False) as client:
            if workers:
                client.wait_for_workers(workers, timeout=60)
            address = client.scheduler.address
        yield DaskCluster(address, found)


class Killer(Watch):
    """Kills a worker when the first point has finished."""

    def __init__(self, worker: subprocess.Popen[bytes]) -> None:
        super().__init__()
        self._worker = worker

    def finished(self, row: Row) -> None:
        super().finished(row)
        self._worker.kill()
        self._worker.wait()


def run(
    folder: Path, wanted: tuple[Settings, ...], scheduler: str | None, watch: Watch | None = None
) -> list[Row]:
    return run_points(wanted, Journal(folder), folder / "logs", watch or Watch(), scheduler=scheduler)


def results(rows: Sequence[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if name != "run_seconds"} for row in rows]


@pytest.mark.few(0)
def test_rows_are_the_same_as_here_though_one_of_two_workers_is_killed_half_way(tmp_path: Path) -> None:
    wanted = points(tmp_path, "seed=1,2", "loss=0,0.05,1")
    here = run(tmp_path / "here", wanted, None)
    with cluster(tmp_path, 2) as dask_cluster:
        watch = Killer(dask_cluster.workers[0])
        there = run(tmp_path / "there", wanted, dask_cluster.address, watch)
    assert results(there) == results(here)
    assert len(watch.rows) == 6
    assert sum(row["error"] is not None for row in there) == 2  # a loss of 1, wherever


@pytest.mark.few(0)
def test_ctrl_c_keeps_what_is_finished_and_a_worker_with_another_program_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = points(tmp_path, "seed=1,2,3,4")
    with cluster(tmp_path, 1) as dask_cluster:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "results", wanted, dask_cluster.address, Watch(patience=2))
        watch = Watch()
        assert len(run(tmp_path / "results", wanted, dask_cluster.address, watch)) == 4
        assert (watch.there, len(watch.rows)) == (2, 2)

        here = dask_scheduler.provenance()
        monkeypatch.setattr(dask_scheduler, "provenance", lambda: here | {"commit": "abc"})
        with pytest.raises(SchedulerError, match=r"has another version of fanin: commit .*, not abc"):
            run(tmp_path / "other", wanted, dask_cluster.address)


def test_a_file_that_a_worker_has_not_or_has_otherwise_is_refused(tmp_path: Path) -> None:
    worker = tmp_path / "own_worker.py"
    worker.write_text("")
    (point, *_) = points(tmp_path, f'worker="{worker}"')
    own = dask_scheduler.provenance()
    with pytest.raises(SchedulerError, match="has another worker file"):
        dask_scheduler._run_here(
            _not_run,
            point,
            b"",
            own,
            {
                "worker_sha256": "0",
                "controller_sha256": None,
                "program_sha256": None,
                "protocol_sha256": None,
                "algorithm_sha256": None,
                "traffic_trace_sha256": None,
                "arrivals_trace_sha256": None,
            },
        )
    files = dask_scheduler._files(point)
    worker.unlink()
    with pytest.raises(SchedulerError, match=r"own_worker\.py: No such file"):
        dask_scheduler._run_here(_not_run, point, b"", own, files)


def _not_run(_settings: Settings, _device_config: bytes) -> Row:
    raise AssertionError("it was run")


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "127.0.0.1", "tcp://127.0.0.1", "none", ""])
def test_a_scheduler_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr(dask_scheduler, "PATIENCE", 0.2)
    with pytest.raises(SchedulerError, match=f"^no Dask scheduler answers at {address}: "):
        run(tmp_path, points(tmp_path), address)


def test_a_scheduler_without_workers_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_scheduler, "PATIENCE", 2.0)
    with (
        cluster(tmp_path, 0) as dask_cluster,
        pytest.raises(SchedulerError, match="has no workers; start one: dask worker"),
    ):
        run(tmp_path, points(tmp_path), dask_cluster.address)


def test_without_dask_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(
        SchedulerError, match=r"make setup in the clone, or .* -m pip install 'fanin\[dask\]'"
    ):
        run(tmp_path, points(tmp_path), "tcp://127.0.0.1:1")
