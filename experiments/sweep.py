"""All points of a scenario: virtual ones on all cores, as many at a time as memory holds, live ones one by one."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

from experiments.live.crew import Observe
from experiments.results.files import Journal
from experiments.results.measured import Row, failed_row, row
from experiments.results.provenance import provenance
from experiments.scenario.compilers import CompiledProgram
from experiments.scenario.own import digests, program_of
from experiments.scenario.settings import Settings

# Of memory: what a process of an empty run needs, and what the bytes of the workers' vectors multiply by.
BASE_BYTES, VECTORS_FACTOR = 200 << 20, 2.5
MEMORY_SHARE = 0.8  # of what is free


class Observer(Protocol):
    """Is told how far the points are."""

    def found(self, count: int) -> None:
        """So many are in the journal already."""

    def begun(self, settings: Settings) -> Observe:
        """A live point has begun, which tells how it goes on."""

    def finished(self, row: Row) -> None:
        """A point has a new row."""


def run_points(
    points: Sequence[Settings],
    journal: Journal,
    logs: Path,
    observer: Observer,
    jobs: int | None = None,
) -> list[Row]:
    """A row for each point, from the journal where it has one without an error.

    jobs: virtual points that run at a time, if memory holds so many; None: as many as there are cores.

    A point that fails has a row with its error, and the others go on. Live points need `sandbox.enter`. The
    switches' output goes to `logs`.

    Raises:
        CompileError, ToolError, ProgramMismatchError: there is no program to run.
    """
    programs = {point.key: program_of(point) for point in points}
    files = {point.key: digests(point) for point in points}
    done = finished(journal.rows(), points)
    common = provenance()

    def take(new: Row) -> None:
        new = new | common | files[new["key"]]
        journal.append(new)
        done[new["key"]] = new
        observer.finished(new)

    rest = [point for point in points if point.key not in done]
    observer.found(len(points) - len(rest))
    _run_virtual([point for point in rest if point.world == "virtual"], programs, take, jobs or cores())
    for point in rest:
        if point.world == "live":
            take(_run_live(point, programs[point.key], logs, observer.begun(point)))
    return [done[point.key] for point in points]


def finished(rows: Mapping[str, Row], points: Sequence[Settings]) -> dict[str, Row]:
    """Those of earlier `rows`, by key, that `points` need not give again: without an error, of the same files.

    Raises:
        CompileError, ToolError: there is no program to compare.
    """
    found = {}
    for point in points:
        row = rows.get(point.key)
        if row and row["error"] is None and all(row.get(k) == digest for k, digest in digests(point).items()):
            found[point.key] = row
    return found


def _attempt(settings: Settings, run: Callable[[], Row]) -> Row:
    """The row of a run, or of its error: no point is to end a sweep."""
    try:
        return run()
    except Exception as error:
        return failed_row(settings, f"{type(error).__name__}: {error}")


# -- virtual -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Running:
    settings: Settings
    process: BaseProcess


def _run_virtual(
    points: Sequence[Settings],
    programs: Mapping[str, CompiledProgram],
    take: Callable[[Row], None],
    jobs: int,
) -> None:
    """A process for each: it dies alone, and its memory is its own."""
    context = _fork_server()
    memory = MEMORY_SHARE * _free_memory()
    waiting, running = deque(points), dict[Connection, _Running]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                needed = memory_of(waiting[0]) + sum(memory_of(other.settings) for other in running.values())
                if running and needed > memory:
                    break
                point = waiting.popleft()
                with _uninterrupted():
                    ours, theirs = context.Pipe(duplex=False)
                    arguments = (point, programs[point.key].device_config, theirs)
                    process = context.Process(target=_virtual_process, args=arguments, daemon=True)
                    process.start()
                    theirs.close()
                    running[ours] = _Running(point, process)
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                take(_result(ready, running.pop(ready)))
    finally:
        for left in running.values():
            left.process.kill()
            left.process.join()


def _fork_server() -> ForkServerContext:
    """Makes processes that have loaded everything, and that ignore Ctrl-C: a terminal sends it to all of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["experiments.virtual.point"])
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ensure_running()
    finally:
        signal.signal(signal.SIGINT, usual)
    return context


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until this has ended: a process half started would not be known to us."""
    held_back: list[int] = []
    usual = signal.signal(signal.SIGINT, lambda number, _frame: held_back.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if held_back:
        raise KeyboardInterrupt


def _result(connection: Connection, run: _Running) -> Row:
    with connection:
        try:
            result: Row = connection.recv()
        except EOFError:
            run.process.join()
            how = f"exit status {run.process.exitcode}"
            if (status := run.process.exitcode or 0) < 0:
                how = f"{signal.Signals(-status).name}, which the kernel sends when memory is short"
            return failed_row(run.settings, f"its process ended: {how}")
    run.process.join()
    return result


def _virtual_process(settings: Settings, device_config: bytes, connection: Connection) -> None:
    # Not above: the processes that wait for this one need not load them.
    from experiments.virtual.point import run_virtual
    from p4switch.engine.engine import Engine

    def run() -> Row:
        begun = time.perf_counter()
        measured = run_virtual(settings, Engine.load(device_config))
        return row(settings, measured, run_seconds=time.perf_counter() - begun)

    connection.send(_attempt(settings, run))


def memory_of(settings: Settings) -> float:
    """What a virtual run is expected to need, in bytes."""
    assert settings.size is not None
    return BASE_BYTES + VECTORS_FACTOR * settings.size * len(settings.members) * settings.repetitions


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


def _free_memory() -> int:
    """Bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) << 10
    raise OSError("/proc/meminfo does not tell MemAvailable")


# -- live --------------------------------------------------------------------------------------------------------


def _run_live(settings: Settings, program: CompiledProgram, logs: Path, observe: Observe) -> Row:
    from experiments.live.run import run_live

    def run() -> Row:
        begun = time.perf_counter()
        (measured,) = run_live([settings], program, logs, lambda _: observe, partial(observe, 0))
        return row(settings, measured, run_seconds=time.perf_counter() - begun)

    return _attempt(settings, run)
