"""An executor with a separate process for each call, limited by the cores and the memory of this machine."""

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
from typing import Any, NamedTuple, TypeVar

_T = TypeVar("_T")

_TO_ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # what a group of processes may get

MEMORY_SHARE = 0.8  # of the free memory


class ProcessEndedError(RuntimeError):
    """A process that ended before its function returned."""


class _Needs(NamedTuple):
    """Bytes of memory that a call is expected to need, and cores."""

    memory: float
    cores: int


class ProcessExecutor(ThreadPoolExecutor):
    """An executor that starts a process for each call, so that a crash or leaked memory affects no other call.

    Calls that have not ended when the context is left are killed.

    Args:
        jobs: Cores for calls, and so the most calls at a time.
        preload: The module that processes have imported when they start.
    """

    def __init__(self, jobs: int, preload: str) -> None:
        super().__init__(jobs)
        self._context = fork_server(preload)
        self._jobs, self._memory = jobs, memory_for_calls()
        self._running: dict[BaseProcess, _Needs] = {}
        self._changed = Condition()
        self._closed = False

    def submit_sized(
        self, memory: float, function: Callable[..., _T], *arguments: Any, cores: int = 1
    ) -> Future[_T]:
        """Call `function` as soon as there are cores and enough memory for it.

        A call that is alone starts whatever it needs. The future raises ProcessEndedError if the process ends
        without a result.

        Args:
            memory: Bytes that the call is expected to need.
            function: The function; it must be picklable, like its arguments and its result.
            arguments: Its arguments.
            cores: Cores that it uses.
        """
        return self.submit(self._call, _Needs(memory, cores), function, arguments)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._closed = True
            for process in self._running:
                process.kill()
            self._changed.notify_all()
        self.shutdown(cancel_futures=True)

    def _call(self, needs: _Needs, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Start the process and wait for it, in a thread of the pool."""
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_answer, args=(function, arguments, theirs), daemon=True)
        with ours:
            with self._changed, theirs:
                self._changed.wait_for(lambda: self._closed or self._has_room(needs))
                if self._closed:
                    raise ProcessEndedError("it was cancelled before it started")
                process.start()
                self._running[process] = needs
            try:
                return ours.recv()
            except EOFError:
                raise ProcessEndedError(_how(self._end(process))) from None
            finally:
                self._end(process)

    def _end(self, process: BaseProcess) -> int:
        """Wait until `process` has ended and return its exit code.

        Starting a process also reads the exit codes of those that have ended, and only one reader gets each code.
        Therefore only one thread at a time starts or joins processes.
        """
        wait([process.sentinel])
        with self._changed:
            process.join()
            if self._running.pop(process, None) is not None:
                self._changed.notify_all()
        return process.exitcode or 0

    def _has_room(self, needs: _Needs) -> bool:
        together = [needs, *self._running.values()]
        fits = sum(one.memory for one in together) <= self._memory
        return not self._running or (fits and sum(one.cores for one in together) <= self._jobs)


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...], connection: Connection) -> None:
    """Call the function in the new process and send its result."""
    gc.freeze()  # imported modules stay; without this, collecting garbage among them takes a third of a short run
    connection.send(function(*arguments))


def fork_server(preload: str) -> ForkServerContext:
    """Return a context whose processes have imported `preload`, and ignore SIGINT, SIGTERM and SIGHUP.

    A terminal, and `timeout`, send these signals to a whole group of processes. The parent ends the others.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload])
    usual = {kind: signal.signal(kind, signal.SIG_IGN) for kind in _TO_ALL}
    try:
        ensure_running()
    finally:
        for kind, handler in usual.items():
            signal.signal(kind, handler)
    return context


def _how(status: int) -> str:
    if status < 0:
        return f"{signal.Signals(-status).name}, which the kernel sends when memory is short"
    return f"exit status {status}"


def memory_for_calls() -> float:
    """Return the bytes that calls may use together."""
    return MEMORY_SHARE * _free_memory()


def _free_memory() -> int:
    """Return the free memory in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) << 10
    raise OSError("/proc/meminfo has no line MemAvailable")
