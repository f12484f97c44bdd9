"""The worker processes of one run: their start, their messages, and their end, whatever happens."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fanin.experiments.live.worker_messages import EVENT, TASK, Done, Failed, Progress, Ready, Task
from fanin.testbed.load import Processors
from fanin.testbed.patience import VARIABLE, Starting, computed_seconds
from fanin.testbed.worker_process import Start, WorkerProcess

# Seconds beyond a task's `give_up` for which all workers may be silent: a worker that gives up needs them for a step of
# its own work and for its report.
SILENCE = 25.0
# Seconds for the other workers to report what they waited for, once one has failed.
GRACE = 1.0
# Seconds between two checks for workers that delay the others.
LOOK = 1.0

# Called with the number of all-reduces that all workers have done, and the workers that delay the next one (may be "").
Observe = Callable[[int, str], None]


class RunError(RuntimeError):
    """A run that did not finish; the message explains which worker waited for what."""


class _Member:
    """One worker process and the events it has sent so far."""

    def __init__(self, task: Task, start: Start, log: Path) -> None:
        self.rank = task.rank
        self.step = 0
        self.ready = self.begun = self.prepared = False
        self.end: Done | Failed | None = None
        self.last_word = time.monotonic()
        self.computed = 0.0  # seconds of processor time, while it started
        self._task = task
        self._starting = Starting(self.last_word)
        argv = [sys.executable, "-P", "-m", "fanin.experiments.live.worker"]
        self._process = WorkerProcess(start, task.rank, argv, log)

    def begin(self) -> None:
        """Send the worker its task."""
        self.begun = True
        self.last_word = time.monotonic()
        self._process.tell(TASK.dump_json(self._task))

    @property
    def pid(self) -> int:
        """Return the id of the worker's process."""
        return self._process.pid

    def stuck(self, now: float) -> bool:
        """Return whether the worker can no longer be expected to start."""
        return self._starting.stuck(now, self.computed)

    async def listen(self, heard: Callable[[], None]) -> None:
        """Receive events until the worker ends, calling `heard` after each."""
        while line := await self._process.hear():
            self.last_word = time.monotonic()
            match EVENT.validate_json(line):
                case Ready():
                    self.ready = True
                case Progress(step):
                    self.prepared, self.step = True, step
                case Done() | Failed() as end:
                    self.end = end
            heard()
        how = await self._process.end()
        self.end = self.end or Failed(how)

    def __str__(self) -> str:
        """Describe the worker's state for the report of a failed run."""
        match self.end:
            case Done():
                return f"worker {self.rank}: finished"
            case Failed(error):
                return f"worker {self.rank}: {error}"
            case None if not self.ready:
                return f"worker {self.rank}: has not started after {self.computed:.0f} s of processor time"
            case None if not self.begun:
                return f"worker {self.rank}: has started and waits for the others to start"
            case None:
                return f"worker {self.rank}: still in all-reduce {self.step}"

    def kill(self) -> None:
        """Kill the process if it is still running."""
        self._process.kill()


async def run_worker_group(
    tasks: Sequence[Task],
    start: Start,
    observe: Observe,
    patience: float = 1.0,
    check: Callable[[], None] = lambda: None,
    processors: Processors | None = None,
    logs: Path | None = None,
) -> list[Done]:
    """Run all tasks to their end, with a process for each.

    Args:
        tasks: The tasks by rank.
        start: Starts a process on the host of a rank.
        observe: Receives the progress.
        patience: Factor for the time for which all workers may be silent.
        check: Called about once a second to check what else the run needs; its exceptions end the run.
        processors: Measures the processors from the first all-reduce that all workers have begun until the first worker
            has finished.
        logs: Folder in which each worker's output is appended to worker-<rank>.log; None: its task's folder.

    Returns:
        The result of each worker, by rank.

    Raises:
        RunError: If a worker fails, dies or falls silent. By then every worker has been ended.
    """
    group: list[_Member] = []
    try:
        for task in tasks:
            group.append(_Member(task, start, (logs or task.folder) / f"worker-{task.rank}.log"))
        silence = max(task.give_up for task in tasks) + SILENCE * patience
        await _listen(group, observe, silence, check, processors or Processors())
    finally:
        for member in group:
            member.kill()
    ends = [member.end for member in group if isinstance(member.end, Done)]
    if len(ends) < len(group):
        failed_first = sorted(group, key=lambda member: not isinstance(member.end, Failed))
        lines = [
            f"the run did not finish (set {VARIABLE} to extend time limits):",
            *(f"  {m}" for m in failed_first),
        ]
        raise RunError("\n".join(lines))
    return ends


async def _listen(
    group: Sequence[_Member],
    observe: Observe,
    silence: float,
    check: Callable[[], None],
    processors: Processors,
) -> None:
    """Wait until every worker has ended, or one has failed and the others have had time to report why they wait."""

    def heard() -> None:
        if all(member.ready and not member.begun for member in group):
            for member in group:
                member.begin()
        if not processors.begun and all(member.prepared for member in group):
            processors.begin()
        elif not processors.ended and any(isinstance(member.end, Done) for member in group):
            processors.end()
        observe(min(member.step for member in group), "")

    listening = {asyncio.create_task(member.listen(heard)) for member in group}
    failed_at: float | None = None
    try:
        while listening:
            ended, listening = await asyncio.wait(
                listening, timeout=LOOK, return_when=asyncio.FIRST_COMPLETED
            )
            for task in ended:
                task.result()
            check()
            now = time.monotonic()
            if any(isinstance(member.end, Failed) for member in group):
                failed_at = failed_at or now
                if now >= failed_at + GRACE:
                    return
            elif _hopeless(group, now, silence):
                return
            elif now >= max(member.last_word for member in group) + LOOK:
                observe(min(member.step for member in group), _awaited(group))
    finally:
        for task in listening:
            task.cancel()


def _hopeless(group: Sequence[_Member], now: float, silence: float) -> bool:
    """Return whether a worker will not start or, once all have started, whether all have been silent for too long."""
    starting = [member for member in group if not member.ready]
    if not starting:
        return now >= max(member.last_word for member in group) + silence
    computed = computed_seconds([member.pid for member in starting])
    for member, seconds in zip(starting, computed, strict=True):
        member.computed = seconds
    return any(member.stuck(now) for member in starting)


def _awaited(group: Sequence[_Member]) -> str:
    """Describe which workers delay the others."""
    if starting := [member for member in group if not member.ready]:
        return f"{_names(starting)} to start"
    last = min(member.step for member in group)
    return _names([member for member in group if member.step == last])


def _names(members: Sequence[_Member]) -> str:
    if len(members) > 4:
        return f"{len(members)} workers"
    ranks = ", ".join(str(member.rank) for member in members)
    return f"worker{'s' * (len(members) > 1)} {ranks}"
