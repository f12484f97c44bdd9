"""Calls in processes of their own: as many as there are jobs and memory for, each dies alone, none is left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from fanin.experiments import processes
from fanin.experiments.processes import ProcessEndedError, ProcessExecutor
from tests.experiments.calls import Gate, die, leave, pass_through

pytestmark = pytest.mark.slow


def executor(jobs: int = 2) -> ProcessExecutor:
    return ProcessExecutor(jobs, preload="os")


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with closing(Gate(tmp_path)) as found:
        yield found


def test_each_call_has_a_process_of_its_own() -> None:
    with executor() as pool:
        ids = [pool.submit_sized(0, os.getpid).result() for _ in range(3)]
    assert len({os.getpid(), *ids}) == 4


def test_a_process_that_ends_without_a_result_says_how_and_the_others_go_on() -> None:
    with executor() as pool:
        killed, left = pool.submit_sized(0, die), pool.submit_sized(0, leave, 3)
        good = pool.submit_sized(0, max, 1, 2)
        with pytest.raises(ProcessEndedError, match="SIGKILL, which the kernel sends when memory is short"):
            killed.result()
        with pytest.raises(ProcessEndedError, match="exit status 3"):
            left.result()
        assert good.result() == 2


def test_each_of_many_that_end_while_others_start_says_its_own_exit_status() -> None:
    with executor(4) as pool:
        calls = [pool.submit_sized(0, leave, 3) for _ in range(60)]
        ends = {str(call.exception()) for call in calls}
    assert ends == {"exit status 3"}


@pytest.mark.parametrize(
    ("jobs", "memory", "cores", "together"),
    [
        (1, 0, 1, 1),
        (3, 0, 1, 3),
        (3, 60, 1, 1),
        (3, 50, 1, 2),
        (3, 200, 1, 1),
        (3, 0, 2, 1),
        (4, 0, 2, 2),
        (3, 0, 5, 1),
    ],
)
def test_as_many_run_at_a_time_as_cores_and_memory_hold(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, jobs: int, memory: int, cores: int, together: int
) -> None:
    monkeypatch.setattr(processes, "_free_memory", lambda: 100 / processes.MEMORY_SHARE)
    with executor(jobs) as pool:
        calls = [pool.submit_sized(memory, pass_through, gate.folder, cores=cores) for _ in range(4)]
        begun = {gate.hear() for _ in range(together)}
        gate.let_through(len(calls))
        begun |= {gate.hear() for _ in range(2 * len(calls) - together)}
        assert {call.result() for call in calls} == begun
    assert gate.most == together


def test_what_has_not_ended_when_an_exception_leaves_is_ended(gate: Gate) -> None:
    with suppress(KeyboardInterrupt), executor(2) as pool:
        calls = [pool.submit_sized(0, pass_through, gate.folder) for _ in range(4)]
        running = {gate.hear(), gate.hear()}
        raise KeyboardInterrupt
    assert all(call.done() for call in calls)
    for process in running:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
