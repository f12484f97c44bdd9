"""All points of a scenario: virtual ones on all cores, as many at a time as memory holds, live ones one by one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from fanin.experiments.dask_scheduler import SchedulerError, scheduled
from fanin.experiments.live.worker_group import Observe
from fanin.experiments.processes import ProcessExecutor
from fanin.experiments.results.files import Journal
from fanin.experiments.results.measured import Row, failed_row, row
from fanin.experiments.results.provenance import provenance
from fanin.experiments.scenario.compilers import CompiledProgram
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.user_files import digests, program_of

# Of memory: what a process of an empty run needs, and what the bytes of the workers' vectors multiply by.
BASE_BYTES, VECTORS_FACTOR = 200 << 20, 2.5


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
    scheduler: str | None = None,
) -> list[Row]:
    """A row for each point, from the journal where it has one without an error.

    jobs: virtual points that run at a time, if memory holds so many; None: as many as there are cores. scheduler: the
    address of a Dask scheduler, whose workers run them instead.

    A point that fails has a row with its error, and the others go on. Live points need `sandbox.enter`. The
    switches' output goes to `logs`.

    Raises:
        CompileError, ToolError, ProgramMismatchError: there is no program to run. SchedulerError: the cluster cannot.
    """
    programs = {point.key: program_of(point) for point in points}
    files = {point.key: digests(point) for point in points}
    done = finished(journal.rows(), points)
    common = provenance()

    def take(new: Row) -> None:
        new = common | new | files[new["key"]]
        journal.append(new)
        done[new["key"]] = new
        observer.finished(new)

    rest = [point for point in points if point.key not in done]
    observer.found(len(points) - len(rest))
    if virtual := [point for point in rest if point.world == "virtual"]:
        _run_virtual(virtual, programs, take, jobs, scheduler)
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
        return failed_row(settings, _text(error))


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


# -- virtual -----------------------------------------------------------------------------------------------------


def _run_virtual(
    points: Sequence[Settings],
    programs: Mapping[str, CompiledProgram],
    take: Callable[[Row], None],
    jobs: int | None,
    scheduler: str | None,
) -> None:
    place = _processes(jobs or cores()) if scheduler is None else scheduled(scheduler, run_point)
    with place as submit:
        futures = {submit(point, programs[point.key].device_config): point for point in points}
        for future in as_completed(futures):
            point = futures[future]
            error = future.exception()
            if isinstance(error, SchedulerError):
                raise error
            take(failed_row(point, _text(error)) if error else future.result())


@contextmanager
def _processes(jobs: int) -> Iterator[Callable[[Settings, bytes], Future[Row]]]:
    with ProcessExecutor(jobs, preload="fanin.experiments.virtual.preload") as pool:
        yield lambda point, config: pool.submit_sized(memory_of(point), run_point, point, config)


def run_point(settings: Settings, device_config: bytes) -> Row:
    """A virtual point, run in this process: its row, or that of its error. device_config: what its switches run."""
    # Not above: the processes that wait for this one need not load them.
    from fanin.experiments.virtual.point import run_virtual
    from fanin.p4switch.engine.engine import Engine

    def run() -> Row:
        begun = time.perf_counter()
        measured = run_virtual(settings, Engine.load(device_config))
        return row(settings, measured, run_seconds=time.perf_counter() - begun)

    return _attempt(settings, run)


def memory_of(settings: Settings) -> float:
    """What a virtual run is expected to need, in bytes."""
    assert settings.size is not None
    workers = len(settings.members)
    gathered = settings.compression.gathered(settings.size, workers) or 0
    vectors = (settings.size * settings.repetitions + gathered) * workers
    return BASE_BYTES + VECTORS_FACTOR * vectors


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


# -- live --------------------------------------------------------------------------------------------------------


def _run_live(settings: Settings, program: CompiledProgram, logs: Path, observe: Observe) -> Row:
    from fanin.experiments.live.run import run_live

    def run() -> Row:
        begun = time.perf_counter()
        (measured,) = run_live([settings], program, logs, lambda _: observe, partial(observe, 0))
        return row(settings, measured, run_seconds=time.perf_counter() - begun)

    return _attempt(settings, run)
