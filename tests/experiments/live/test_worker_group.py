"""Worker processes of a run, here on loopback: they finish together, or the report says who waited for what."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fanin.experiments.live.worker import join
from fanin.experiments.live.worker_group import LOOK, RunError, run_worker_group
from fanin.experiments.live.worker_messages import (
    DIGITS_FILE,
    HostBased,
    InNetwork,
    Task,
    Vectors,
)
from fanin.experiments.results.checking import compare_with_promise, float32_sum_bound, sums_within
from fanin.experiments.results.recording import Recording
from fanin.experiments.training.digits import load_digits
from fanin.experiments.training.sgd import TrainingConfig
from fanin.testbed.preloaded import Process
from fanin.topologies.errors import NetworkError
from fanin.workers import InNetworkAllReduce, Lease, Recovery
from fanin.workers.collective import HostBasedAlgorithm, Transport
from fanin.workers.recovery import Pace
from tests.experiments.live.local_worker_group import LocalWorkerGroup
from tests.free_ports import free_port

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
WORKERS = 3
SMALL = Vectors(elements=5000, repetitions=4)


@pytest.fixture
def ring() -> HostBased:
    """Addresses whose ports are free."""
    return HostBased("ring", tuple(("127.0.0.1", free_port()) for _ in range(WORKERS)))


def test_all_workers_sum_what_all_put_in(tmp_path: Path, ring: HostBased) -> None:
    steps: list[int] = []
    tasks = [Task(rank, WORKERS, tmp_path, ring, SMALL) for rank in range(WORKERS)]
    ends = asyncio.run(run_worker_group(tasks, LocalWorkerGroup().start, lambda step, _: steps.append(step)))
    assert len(ends) == WORKERS
    assert steps == sorted(steps)
    assert steps[-1] == SMALL.repetitions
    recordings = [Recording.open(tmp_path, rank) for rank in range(WORKERS)]
    assert recordings[0].inputs.shape == (SMALL.repetitions, SMALL.elements)
    assert compare_with_promise(recordings, sums_within(float32_sum_bound)).violations == 0


@pytest.mark.parametrize(
    ("algorithm", "transport"),
    [
        ("double-binary-tree", "tcp"),
        ("halving-doubling", "selective-repeat"),
        ("parameter-server", "go-back-n"),
    ],
)
def test_host_based_algorithms_sum_over_each_transport(
    tmp_path: Path, algorithm: HostBasedAlgorithm, transport: Transport
) -> None:
    # Over UDP each rank takes ports for its peers from its own on; each has an address of its own on the loopback.
    hosts = [f"127.0.1.{rank + 1}" for rank in range(WORKERS)]
    addresses = tuple((host, free_port(host, socket.SOCK_DGRAM, WORKERS)) for host in hosts)
    between = HostBased(algorithm, addresses, transport, pace=Pace(window=64, segments=16))
    tasks = [Task(rank, WORKERS, tmp_path, between, SMALL) for rank in range(WORKERS)]
    asyncio.run(run_worker_group(tasks, LocalWorkerGroup().start, lambda *_: None))
    recordings = [Recording.open(tmp_path, rank) for rank in range(WORKERS)]
    assert compare_with_promise(recordings, sums_within(float32_sum_bound)).violations == 0


def test_training_brings_its_curve_home(tmp_path: Path, ring: HostBased) -> None:
    config = TrainingConfig(epochs=1, hidden=8)
    load_digits().save(tmp_path / DIGITS_FILE)
    tasks = [Task(rank, WORKERS, tmp_path, ring, config) for rank in range(WORKERS)]
    ends = asyncio.run(run_worker_group(tasks, LocalWorkerGroup().start, lambda *_: None))
    curve = ends[0].curve
    assert curve is not None
    assert len(curve.loss) == len(curve.accuracy) == len(curve.seconds) == config.steps(1438)


def test_a_silent_switch_is_reported_by_each_worker_with_what_it_waits_for(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        for port in range(0xBEE0, 0xBEF0):
            try:
                deaf.bind(("127.0.0.1", port))
            except OSError:
                continue
            break
        leases = [Lease(7, rank, 2, window=4, last_chunk=99) for rank in range(2)]
        ends, pace = (("127.0.0.1", 0), deaf.getsockname()), Pace(window=4, segments=4)
        tasks = [
            Task(lease.rank, 2, tmp_path, InNetwork(lease, *ends, pace), SMALL, give_up=0.3)
            for lease in leases
        ]
        group = LocalWorkerGroup()
        with pytest.raises(RunError) as caught:
            asyncio.run(run_worker_group(tasks, group.start, lambda *_: None))
    message = str(caught.value)
    for rank in range(2):
        assert f"worker {rank}: StallError: rank {rank} of 2, lease 7, all-reduce 1" in message
    assert "awaiting exponents of chunks 0" in message
    assert all(process.poll() is not None for process in group.processes)


def test_a_worker_joins_with_what_its_task_says(tmp_path: Path) -> None:
    pace = Pace(window=4, segments=3, offload=False, initial_rto=0.5, min_rto=0.1, granularity=1e-5)
    lease = Lease(7, 1, 3, 4, first_slot=2, values=64, first_chunk=1000, last_chunk=2000)
    network = InNetwork(lease, ("127.0.0.1", 0), ("127.0.0.1", 0xBEE0), pace)
    collective = join(Task(1, 3, tmp_path, network, SMALL, give_up=4.0))
    collective.close()
    assert isinstance(collective, InNetworkAllReduce)
    config = collective.config
    assert config.lease == lease
    assert config.recovery == Recovery(initial_rto=0.5, min_rto=0.1, give_up=4.0, granularity=1e-5)
    assert (config.segments, config.offload) == (3, False)


def test_a_worker_that_is_killed_is_named_and_no_other_is_left(tmp_path: Path, ring: HostBased) -> None:
    group = LocalWorkerGroup()

    def kill_one(step: int, _awaited: str) -> None:
        if step == 2:
            group.processes[1].kill()

    endless = Vectors(elements=10, repetitions=100_000)
    tasks = [Task(rank, WORKERS, tmp_path, ring, endless) for rank in range(WORKERS)]
    with pytest.raises(RunError, match="worker 1: killed by SIGKILL"):
        asyncio.run(run_worker_group(tasks, group.start, kill_one))
    assert all(process.poll() is not None for process in group.processes)


def test_what_else_a_run_needs_is_looked_at_while_all_goes_well(tmp_path: Path, ring: HostBased) -> None:
    group = LocalWorkerGroup()
    steps: list[int] = []

    def check() -> None:
        if steps and steps[-1] > 1:
            raise NetworkError("spine1 has ended with signal SIGKILL")

    endless = Vectors(elements=10, repetitions=100_000)
    tasks = [Task(rank, WORKERS, tmp_path, ring, endless) for rank in range(WORKERS)]
    with pytest.raises(NetworkError, match="spine1 has ended"):
        asyncio.run(run_worker_group(tasks, group.start, lambda step, _: steps.append(step), check=check))
    assert all(process.poll() is not None for process in group.processes)


def test_modules_in_the_current_folder_are_none_of_ours(tmp_path: Path, ring: HostBased) -> None:
    here = tmp_path / "here"
    for name in ("workers.py", "experiments/__init__.py", "numpy.py"):
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("raise SystemExit('not this one')")

    class Here(LocalWorkerGroup):
        def start(self, _rank: int, argv: Sequence[str], options: dict[str, Any]) -> Process:
            environment = options["env"] | {"PYTHONPATH": str(ROOT)}
            self.processes.append(subprocess.Popen(argv, **options | {"cwd": here, "env": environment}))
            return self.processes[-1]

    tasks = [Task(rank, WORKERS, tmp_path, ring, SMALL) for rank in range(WORKERS)]
    assert len(asyncio.run(run_worker_group(tasks, Here().start, lambda *_: None))) == WORKERS


def test_what_a_worker_prints_goes_to_its_log() -> None:
    script = "from fanin.experiments.live.output import write_line as w; w(b'{}'); print('debug', flush=True); w(b'[]')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, cwd=ROOT)
    assert (done.stdout, done.stderr) == (b"{}\n[]\n", b"debug\n")


def test_who_takes_long_to_start_is_shown_and_costs_the_others_no_patience(
    tmp_path: Path, ring: HostBased
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    class Late(LocalWorkerGroup):
        def start(self, rank: int, argv: Sequence[str], options: dict[str, Any]) -> Process:
            late = ["sh", "-c", f'read go < "{gate}"; exec "$@"', "sh", *argv]
            return super().start(rank, late if rank == 1 else argv, options)

    shown: list[str] = []

    def observe(_step: int, awaited: str) -> None:
        if awaited == "worker 1 to start" and awaited not in shown:
            gate.write_text("go\n")
        shown.append(awaited)

    # By then the others have waited for longer than they do for packets.
    tasks = [Task(rank, WORKERS, tmp_path, ring, SMALL, give_up=LOOK / 2) for rank in range(WORKERS)]
    assert len(asyncio.run(run_worker_group(tasks, Late().start, observe))) == WORKERS
    assert "worker 1 to start" in shown


def test_a_worker_that_does_not_start_is_named(
    tmp_path: Path, ring: HostBased, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FANIN_PATIENCE", "0.1")

    class Stuck(LocalWorkerGroup):
        def start(self, rank: int, argv: Sequence[str], options: dict[str, Any]) -> Process:
            return super().start(rank, ["sleep", "1000"] if rank == 1 else argv, options)

    group = Stuck()
    tasks = [Task(rank, WORKERS, tmp_path, ring, SMALL) for rank in range(WORKERS)]
    with pytest.raises(RunError, match="worker 1: has not started after 0 s of processor time"):
        asyncio.run(run_worker_group(tasks, group.start, lambda *_: None))
    assert all(process.poll() is not None for process in group.processes)


def test_a_task_that_cannot_be_done_says_why(tmp_path: Path) -> None:
    # TEST-NET-3 (RFC 5737): not ours to bind.
    unreachable = HostBased("ring", (("203.0.113.1", 1), ("127.0.0.1", 1)))
    with pytest.raises(RunError, match="worker 0: OSError"):
        asyncio.run(
            run_worker_group(
                [Task(0, 2, tmp_path, unreachable, SMALL)], LocalWorkerGroup().start, lambda *_: None
            )
        )


def test_interrupting_the_run_ends_every_worker(tmp_path: Path, ring: HostBased) -> None:
    group = LocalWorkerGroup()

    async def interrupted() -> None:
        tasks = [
            Task(rank, WORKERS, tmp_path, ring, Vectors(elements=10, repetitions=100_000))
            for rank in range(WORKERS)
        ]
        begun = asyncio.Event()
        run = asyncio.create_task(run_worker_group(tasks, group.start, lambda *_: begun.set()))
        await begun.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(interrupted())
    assert len(group.processes) == WORKERS
    assert all(process.poll() is not None for process in group.processes)
