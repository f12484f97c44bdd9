"""A process that may become a controller."""

import asyncio
import threading
from typing import Any

import pytest

from fanin.testbed.control import controller_subprocess as candidate
from fanin.testbed.control.controller_subprocess import ControllerSubprocess
from fanin.testbed.preloaded import Process, start


def test_one_that_is_no_longer_wanted_before_it_has_started_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, may_go_on = threading.Event(), threading.Event()
    processes: list[Process] = []

    def slow(*argv: Any, **options: Any) -> Process:
        asked.set()
        assert may_go_on.wait(60)
        processes.append(start(*argv, **options))
        return processes[0]

    async def check() -> None:
        starting = asyncio.create_task(ControllerSubprocess.start(1.0))
        await asyncio.to_thread(asked.wait)
        starting.cancel()
        await asyncio.sleep(0)
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await starting

    monkeypatch.setattr(candidate, "start", slow)
    asyncio.run(check())
    has_ended(processes)


@pytest.mark.parametrize("step", ["connect_read_pipe", "connect_write_pipe"])
def test_one_that_is_no_longer_wanted_when_its_pipes_are_being_connected_is_ended(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    processes: list[Process] = []

    def noted(*argv: Any, **options: Any) -> Process:
        processes.append(start(*argv, **options))
        return processes[0]

    async def check() -> None:
        loop = asyncio.get_running_loop()
        connect = getattr(loop, step)

        def cancelled(*arguments: Any) -> Any:
            starting.cancel()
            return connect(*arguments)

        monkeypatch.setattr(loop, step, cancelled)
        starting = asyncio.create_task(ControllerSubprocess.start(1.0))
        with pytest.raises(asyncio.CancelledError):
            await starting

    monkeypatch.setattr(candidate, "start", noted)
    asyncio.run(check())
    has_ended(processes)


def has_ended(processes: list[Process]) -> None:
    """And leaves no pipe."""
    [process] = processes
    assert process.poll() is not None
    assert process.stdin is not None
    assert process.stdin.closed
    assert process.stdout is not None
    assert process.stdout.closed
