"""All points of a scenario: virtual ones on all cores, as far as memory allows, and live ones one by one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from fanin.experiments.dask_scheduler import SchedulerError, scheduled
from fanin.experiments.estimate import packet_hops, work
from fanin.experiments.live.worker_group import Observe
from fanin.experiments.processes import ProcessExecutor, memory_for_calls
from fanin.experiments.results.files import Journal
from fanin.experiments.results.measured import Row, failed_row, row
from fanin.experiments.results.provenance import provenance
from fanin.experiments.scenario.compilers import CompiledProgram
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.user_files import digests, program_of
from fanin.topologies.units import BYTES, quantity_text

# Memory of a point: the bytes of a process without vectors, and the factor for the bytes of all workers' vectors.
BASE_BYTES, VECTORS_FACTOR = 200 << 20, 2.5
_NO_OTHER_CORES = "the other cores run other points, or there are none"  # why a point has one core


class Observer(Protocol):
    """A receiver of the sweep's progress."""

    def found(self, count: int) -> None:
        """Report how many points are already in the journal."""

    def begun(self, settings: Settings) -> Observe:
        """Report that a live point begins, and return the observer of its progress."""

    def finished(self, row: Row) -> None:
        """Report the new row of a point."""


def run_points(
    points: Sequence[Settings],
    journal: Journal,
    logs: Path,
    observer: Observer,
    jobs: int | None = None,
    scheduler: str | None = None,
    cores_each: int = 1,
) -> list[Row]:
    """Run all points and return a row for each; points with a row without an error in the journal do not run again.

    A point that fails has a row with its error, and the others continue. Live points need `sandbox.enter`.

    Args:
        points: The points.
        journal: Receives each row as soon as it is finished.
        logs: Folder for the switches' output.
        observer: Receives the progress.
        jobs: Cores for virtual points, and so the most that run at a time if they fit into memory; None: all cores.
        scheduler: Address of a Dask scheduler whose workers run the virtual points instead, on one core each.
        cores_each: How many cores may share the work of a virtual point. It gets fewer if other points need them.

    Raises:
        CompileError: If a program cannot be compiled.
        ToolError: If there is no compiler for it.
        ProgramMismatchError: If the program does not fit the point.
        SchedulerError: If the cluster cannot run the points.
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
        _run_virtual(virtual, programs, take, jobs, scheduler, cores_each)
    for point in rest:
        if point.world == "live":
            take(_run_live(point, programs[point.key], logs, observer.begun(point)))
    return [done[point.key] for point in points]


def finished(rows: Mapping[str, Row], points: Sequence[Settings]) -> dict[str, Row]:
    """Return the earlier rows that are still valid, by key: those without an error, made with the same files.

    Args:
        rows: Earlier rows by key.
        points: The points to find.

    Raises:
        CompileError: If a program to compare with cannot be compiled.
        ToolError: If there is no compiler for it.
    """
    found = {}
    for point in points:
        row = rows.get(point.key)
        if row and row["error"] is None and all(row.get(k) == digest for k, digest in digests(point).items()):
            found[point.key] = row
    return found


def _attempt(settings: Settings, run: Callable[[], Row]) -> Row:
    """Return the row of a run, or that of its error, so that no point ends the sweep."""
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
    cores_each: int,
) -> None:
    there = jobs or cores()
    costs = {point.key: _cost(point) if len(points) > 1 else 0.0 for point in points}
    needs = [(costs[point.key], memory_of(point)) for point in points]
    found = divided(there, cores_each, needs, memory_for_calls())
    shares = {point.key: share for point, share in zip(points, found, strict=True)}
    place = _processes(there, shares) if scheduler is None else scheduled(scheduler, run_point)
    with place as submit:
        # The longest first, so that no core is left with it at the end.
        order = sorted(points, key=lambda point: costs[point.key], reverse=True)
        futures = {submit(point, programs[point.key].device_config): point for point in order}
        for future in as_completed(futures):
            point = futures[future]
            error = future.exception()
            if isinstance(error, SchedulerError):
                raise error
            alone = {"one_core_because": _NO_OTHER_CORES} if shares[point.key] == 1 < cores_each else {}
            take(failed_row(point, _text(error)) if error else future.result() | alone)


def _cost(point: Settings) -> float:
    """Return the work of a point; 0 if it cannot be estimated."""
    try:
        return work(point, packet_hops(point))
    except Exception:  # when the point runs, its row has the error
        return 0.0


def divided(cores: int, most: int, needs: Sequence[tuple[float, float]], memory: float) -> Sequence[int]:
    """Divide cores among points.

    A point gets as large a part of the cores as it has of all work. It gets more if there are fewer points than cores,
    or if memory is short, so that fewer points run at a time.

    Args:
        cores: The cores.
        most: The most cores that a point can use.
        needs: The work of each point, in any unit, and its bytes of memory.
        memory: Bytes that points may use together.

    Returns:
        The cores of each point.
    """
    total = sum(cost for cost, _ in needs)
    found = []
    for cost, needed in needs:
        at_a_time = max(1, min(len(needs), cores, int(memory // needed)))
        part = max(round(cores * cost / total) if total else 1, cores // at_a_time)
        found.append(max(1, min(most, part)))
    return found


@contextmanager
def _processes(jobs: int, shares: Mapping[str, int]) -> Iterator[Callable[[Settings, bytes], Future[Row]]]:
    def submit(point: Settings, config: bytes) -> Future[Row]:
        share = shares[point.key]
        return pool.submit_sized(memory_of(point), run_point, point, config, share, cores=share)

    with ProcessExecutor(jobs, preload="fanin.experiments.virtual.preload") as pool:
        yield submit


def run_point(settings: Settings, device_config: bytes, cores_each: int = 1) -> Row:
    """Run a virtual point in this process and return its row, or that of its error.

    Args:
        settings: The point.
        device_config: The compiled program of its switches.
        cores_each: How many cores may share its work. With several, the row has a column `one_core_because`, which is
            None if they did.
    """
    # Imported here, so that processes that only wait for this one need not load them.
    from fanin.experiments.virtual.point import run_virtual
    from fanin.p4switch.engine.engine import Engine
    from fanin.simulator import VirtualNetwork

    def run() -> Row:
        begun = time.perf_counter()
        networks: list[VirtualNetwork] = []

        def make_network(*arguments: Any, **options: Any) -> VirtualNetwork:
            networks.append(VirtualNetwork(*arguments, cores=cores_each, **options))
            return networks[-1]

        switch = Engine.load(device_config)
        measured = run_virtual(settings, switch, make_network=make_network, cores=cores_each)
        rest: Row = {"run_seconds": time.perf_counter() - begun}
        if cores_each > 1:
            rest["one_core_because"] = next(filter(None, (net.one_core_because for net in networks)), None)
        return row(settings, measured, **rest)

    return _attempt(settings, run)


def memory_of(settings: Settings) -> float:
    """Return the memory that a virtual run is expected to need, in bytes."""
    settings, size = _vector(settings)
    workers = len(settings.members)
    gathered = settings.compression.gathered(size, workers) or 0
    return BASE_BYTES + VECTORS_FACTOR * (size * settings.repetitions + gathered) * workers


def too_large(settings: Settings) -> str | None:
    """Return what to change about a virtual point whose vectors alone are larger than this machine's memory."""
    if settings.arrivals or settings.serving:  # whose vectors are not there all at once
        return None
    settings, each = _vector(settings)
    workers, sums = len(settings.members), settings.repetitions
    least, there = each * sums * workers, _memory()
    if least <= there:
        return None
    size, needed, memory = (quantity_text(amount, BYTES) for amount in (each, least, round(there, -8)))
    vectors = "a vector" if sums == 1 else f"{sums:,} vectors"
    return (
        f"size: {workers:,} workers with {vectors} of {size} each need {needed} or more, and this machine has "
        f"{memory}; divide size and all times of computing by the same number, such as 1,000 "
        "(workload.scale = 0.001 for a published model), or use fewer workers or repetitions"
    )


def tight(settings: Settings) -> str | None:
    """Return a warning for a virtual point that may need more memory than this machine has, though its vectors fit."""
    needed, there = memory_of(settings), _memory()
    if needed <= there:
        return None
    size, memory = (quantity_text(round(amount, -8), BYTES) for amount in (needed, there))
    return (
        f"a point may need {size}, and this machine has {memory}: it may swap, or be ended by the kernel; divide size "
        "and all times of computing by the same number, or use fewer workers or repetitions"
    )


def _memory() -> int:
    """Return the bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _vector(settings: Settings) -> tuple[Settings, int]:
    """Return a point as one that sums vectors, and the bytes of each worker's, which is its part of a cut model."""
    settings = settings.as_vectors
    assert settings.size is not None
    return settings, settings.size // (settings.parallelism.model if settings.parallelism else 1)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


# -- live --------------------------------------------------------------------------------------------------------


def _run_live(settings: Settings, program: CompiledProgram, logs: Path, observe: Observe) -> Row:
    from fanin.experiments.live.run import run_live

    def run() -> Row:
        begun = time.perf_counter()
        (measured,) = run_live([settings], program, logs, lambda _: observe, partial(observe, 0))
        return row(settings, measured, run_seconds=time.perf_counter() - begun)

    return _attempt(settings, run)
