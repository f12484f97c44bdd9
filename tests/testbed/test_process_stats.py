"""The processes and threads of the machine, some of which end while they are looked at."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fanin.testbed.load import Processors
from fanin.testbed.patience import computed_seconds
from fanin.testbed.process_stats import process_stats


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Return a process that ends as soon as its files are asked for: the kernel then answers ESRCH."""
    child = subprocess.Popen(["sleep", "1000"])
    real = {name: getattr(Path, name) for name in ("stat", "read_text")}

    def gone(name: str) -> Any:
        def answer(path: Path, *args: Any, **kwargs: Any) -> Any:
            if str(child.pid) in path.parts and path.name == "stat":
                raise ProcessLookupError(3, "No such process", str(path))
            return real[name](path, *args, **kwargs)

        return answer

    for name in real:
        monkeypatch.setattr(Path, name, gone(name))
    yield child.pid
    child.kill()
    child.wait()


def test_our_process_and_its_parent_are_among_them() -> None:
    assert dict(process_stats())[os.getpid()][1] == str(os.getppid())


def test_our_threads() -> None:
    assert os.getpid() in dict(process_stats(Path("/proc/self/task")))


def test_a_process_that_ends_meanwhile_is_left_out(ending: int) -> None:
    assert ending not in dict(process_stats())


def test_the_threads_of_a_process_that_has_ended() -> None:
    assert list(process_stats(Path("/proc/4194305/task"))) == []  # above the largest number of a process


def test_a_process_that_ends_meanwhile_ends_no_wait_and_no_measurement(ending: int) -> None:
    assert computed_seconds([ending]) == [0.0]
    Processors().begin()
