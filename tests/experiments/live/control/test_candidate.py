"""A process that may become a controller."""

import asyncio
import threading
from typing import Any

import pytest

from experiments.live.control import candidate
from experiments.live.control.candidate import Candidate
from topologies.live.preloaded import Process, start


def test_one_that_is_no_longer_wanted_before_it_has_started_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, may_go_on = threading.Event(), threading.Event()
    processes: list[Process] = []

    def slow(*argv: Any, **options: Any) -> Process:
        asked.set()
        assert may_go_on.wait(60)
        processes.append(start(*argv, **options))
        return processes[0]

    async def check() -> None:
        starting = asyncio.create_task(Candidate.start(1.0))
        await asyncio.to_thread(asked.wait)
        starting.cancel()
        await asyncio.sleep(0)
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await starting

    monkeypatch.setattr(candidate, "start", slow)
    asyncio.run(check())
    [process] = processes
    assert process.poll() is not None
    assert process.stdin is not None
    assert process.stdin.closed
    assert process.stdout is not None
    assert process.stdout.closed
