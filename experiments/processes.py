"""Functions in processes of their own on this machine, as many at a time as there are cores and as memory holds."""

from __future__ import annotations

import gc
import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Condition
from types import TracebackType
from typing import Any, TypeVar

_T = TypeVar("_T")

MEMORY_SHARE = 0.8  # of what is free


class ProcessEndedError(RuntimeError):
    """The process of a function ended before it had a result."""


class ProcessExecutor(ThreadPoolExecutor):
    """A process for each call: it dies alone, and its memory is its own.

    jobs: calls at a time. preload: the module that processes have loaded when they begin. Calls that have not ended
    when the context is left are ended then.
    """

    def __init__(self, jobs: int, preload: str) -> None:
        super().__init__(jobs)
        self._context = fork_server(preload)
        self._memory = MEMORY_SHARE * _free_memory()
        self._running: dict[BaseProcess, float] = {}  # and the memory that each is expected to need
        self._changed = Condition()
        self._closed = False

    def submit_sized(self, memory: float, function: Callable[..., _T], *arguments: Any) -> Future[_T]:
        """Call it as soon as there is a core and memory, in bytes, for it; one alone is called whatever it needs.

        The future has ProcessEndedError if its process ends without a result.
        """
        return self.submit(self._call, memory, function, arguments)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._closed = True
            for process in self._running:
                process.kill()
            self._changed.notify_all()
        self.shutdown(cancel_futures=True)

    def _call(self, memory: float, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """In a thread that waits for the process."""
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_answer, args=(function, arguments, theirs), daemon=True)
        with ours:
            with self._changed, theirs:
                self._changed.wait_for(lambda: self._closed or self._has_room(memory))
                if self._closed:
                    raise ProcessEndedError("it was not begun any more")
                process.start()
                self._running[process] = memory
            try:
                return ours.recv()
            except EOFError:
                raise ProcessEndedError(_how(self._end(process))) from None
            finally:
                self._end(process)

    def _end(self, process: BaseProcess) -> int:
        """Wait until `process` has ended: its exit code.

        Starting a process reads the exit codes of those that have ended, too, and only one reader gets each: one
        thread at a time starts or joins.
        """
        wait([process.sentinel])
        with self._changed:
            process.join()
            if self._running.pop(process, None) is not None:
                self._changed.notify_all()
        return process.exitcode or 0

    def _has_room(self, memory: float) -> bool:
        return not self._running or memory + sum(self._running.values()) <= self._memory


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...], connection: Connection) -> None:
    """What the process does."""
    gc.freeze()  # what it has loaded stays: to look through it again and again takes a third of a short run
    connection.send(function(*arguments))


def fork_server(preload: str) -> ForkServerContext:
    """Makes processes that have loaded everything, and that ignore Ctrl-C: a terminal sends it to all of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload])
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ensure_running()
    finally:
        signal.signal(signal.SIGINT, usual)
    return context


def _how(status: int) -> str:
    if status < 0:
        return f"{signal.Signals(-status).name}, which the kernel sends when memory is short"
    return f"exit status {status}"


def _free_memory() -> int:
    """Bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) << 10
    raise OSError("/proc/meminfo does not tell MemAvailable")
