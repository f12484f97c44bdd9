"""The worker processes of one run: started, listened to, and ended whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from experiments.work import EVENT, TASK, Done, Failed, Progress, Task

# Seconds without a word from anybody: longer than it takes a worker to give up by itself and say why.
SILENCE = 45.0
# Seconds for the others to say what they waited for, once one has failed.
GRACE = 3.0

# One thread a worker: linear algebra on all cores in each of them would only make them wait for one another.
ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
LONGEST_EVENT = 1 << 24

# Starts a command where worker `rank` lives; the rest are options of subprocess.Popen.
Start = Callable[[int, Sequence[str], dict[str, Any]], "subprocess.Popen[bytes]"]


class RunError(RuntimeError):
    """A run that did not finish; the message says which worker waited for what."""


class _Member:
    """One worker process and what it has said so far."""

    def __init__(self, task: Task, start: Start) -> None:
        self.rank = task.rank
        self.step = 0
        self.end: Done | Failed | None = None
        self.last_word = time.monotonic()
        self._errors = task.folder / f"worker-{task.rank}.err"
        with self._errors.open("wb") as errors:
            options = {
                "stdin": subprocess.PIPE,
                "stdout": subprocess.PIPE,
                "stderr": errors,
                "env": os.environ | ENVIRONMENT,
            }
            self._process = start(task.rank, [sys.executable, "-m", "experiments.worker"], options)
        assert self._process.stdin is not None
        with (
            contextlib.suppress(BrokenPipeError),
            self._process.stdin,
        ):  # else it died at once: listen() tells
            self._process.stdin.write(TASK.dump_json(task))

    async def listen(self, heard: Callable[[], None]) -> None:
        """Take in what it says until its end, calling `heard` after each event."""
        reader = asyncio.StreamReader(LONGEST_EVENT)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._process.stdout
        )
        with contextlib.closing(transport):
            async for line in reader:
                self.last_word = time.monotonic()
                match EVENT.validate_json(line):
                    case Progress(step):
                        self.step = step
                    case Done() | Failed() as end:
                        self.end = end
                heard()
        status = await asyncio.to_thread(self._process.wait)
        if self.end is None:
            how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
            last = self._errors.read_text(errors="replace").strip().splitlines()[-1:]
            self.end = Failed(": ".join([how, *last]))

    def __str__(self) -> str:
        """How it stands, for a report of failure."""
        match self.end:
            case Done():
                return f"worker {self.rank}: finished"
            case Failed(error):
                return f"worker {self.rank}: {error}"
            case None:
                return f"worker {self.rank}: silent since all-reduce {self.step}"

    def kill(self) -> None:
        """End it, if it has not."""
        self._process.kill()
        self._process.wait()


async def run_crew(tasks: Sequence[Task], start: Start, progress: Callable[[int], None]) -> list[Done]:
    """Run all tasks to their end, one process each; `progress` is told how many all-reduces all have done.

    Raises:
        RunError: a worker failed, died or fell silent; every worker has been ended then.
    """
    crew: list[_Member] = []
    try:
        for task in tasks:
            crew.append(_Member(task, start))
        await _listen(crew, lambda: progress(min(member.step for member in crew)))
    finally:
        for member in crew:
            member.kill()
    ends = [member.end for member in crew if isinstance(member.end, Done)]
    if len(ends) < len(crew):
        raise RunError("\n".join(["the run did not finish:", *(f"  {member}" for member in crew)]))
    return ends


async def _listen(crew: Sequence[_Member], heard: Callable[[], None]) -> None:
    """Until every worker has ended, or one has failed and the others have had their time to say why."""
    listening = {asyncio.create_task(member.listen(heard)) for member in crew}
    failed_at: float | None = None
    try:
        while listening:
            if failed_at is None and any(isinstance(member.end, Failed) for member in crew):
                failed_at = time.monotonic()
            last_word = max(member.last_word for member in crew)
            deadline = last_word + SILENCE if failed_at is None else failed_at + GRACE
            if (timeout := deadline - time.monotonic()) <= 0:
                return
            ended, listening = await asyncio.wait(
                listening, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
            for task in ended:
                task.result()
    finally:
        for task in listening:
            task.cancel()
