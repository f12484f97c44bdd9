"""Many cases, each in a process with sanitizers. The first that fails is shrunk and written to a file."""

from __future__ import annotations

import fcntl
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Event, Lock

from fanin.assurance.fuzz.case import FuzzCase
from fanin.assurance.fuzz.sanitizers import sanitized_environment
from fanin.assurance.fuzz.shrink import shrink

CHUNK = 20  # maximum number of cases that one process runs
PATIENCE = 300  # seconds that a case may take, with its compilation, before it counts as hanging
SAID = 6000  # characters to keep of a process's last output


class NoSanitizersError(Exception):
    """The C compiler comes without AddressSanitizer."""


@dataclass
class Fuzzed:
    """The results so far.

    Attributes:
        cases: Number of cases.
        taken: Number of cases whose program the switch accepted.
        failed: Seed of a case that failed, and the output of its process.
        path: File of the shrunk case.
        stopped: Set when no more cases are to be run.
    """

    cases: int = 0
    taken: int = 0
    failed: tuple[int, str] | None = None
    path: Path | None = None
    stopped: Event = field(default_factory=Event)


def fuzz(
    first_seed: int,
    cases: int | None,
    seconds: float | None,
    jobs: int,
    results: Path,
    show: Callable[[Fuzzed], None],
) -> Fuzzed:
    """Run cases with consecutive seeds, until the first that fails, which is written to `results`.

    Args:
        first_seed: Seed of the first case.
        cases: Number of cases. None is unlimited.
        seconds: Time limit. None is unlimited.
        jobs: Number of processes at a time.
        results: Folder for a failing case.
        show: Called after each case.

    Raises:
        NoSanitizersError: The compiler has no sanitizers here.
    """
    done, lock = Fuzzed(), Lock()
    until = None if seconds is None else time.monotonic() + seconds
    chunk = CHUNK if cases is None else min(CHUNK, -(-cases // jobs))
    chunks = (
        iter(count(first_seed, chunk))
        if cases is None
        else iter(range(first_seed, first_seed + cases, chunk))
    )

    def run_chunks() -> None:
        while not done.stopped.is_set() and (until is None or time.monotonic() < until):
            with lock:
                first = next(chunks, None)
            if first is None:
                return
            number = chunk if cases is None else min(chunk, first_seed + cases - first)
            with _process(environment, [str(first), str(number)]) as process:
                failed = _follow(process, done, lock, until, show)
            if failed is not None:
                with lock:
                    done.failed = done.failed or failed
                done.stopped.set()

    with _cache() as cache:
        environment = _environment(cache)
        with ThreadPoolExecutor(jobs) as pool:
            try:
                for running in [pool.submit(run_chunks) for _ in range(jobs)]:
                    running.result()
            finally:
                done.stopped.set()
        if done.failed is not None:
            done.path = _write_smallest(FuzzCase.random(done.failed[0]), environment, results)
    return done


def repeat(path: Path) -> str | None:
    """Run a case from a file, and return the output of its process if it fails.

    Raises:
        CaseError: The file is not a case.
        NoSanitizersError: The compiler has no sanitizers here.
    """
    FuzzCase.read(path)
    with _cache() as cache:
        return _run_file(path, _environment(cache))


@contextmanager
def _cache() -> Iterator[Path]:
    """Make a folder for compiled programs, which is removed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as cache:
        try:
            yield Path(cache)
        finally:
            _wait_for_compilers(Path(cache))


def _wait_for_compilers(cache: Path) -> None:
    """Wait for compilers that outlive the process that started them; they hold its locks (toolchain.py)."""
    for path in cache.glob("fanin/*.lock"):
        with path.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)


def _environment(cache: Path) -> dict[str, str]:
    environment = sanitized_environment(cache)
    if environment is None:
        raise NoSanitizersError(
            "the C compiler comes without libasan and libubsan (Debian: apt-get install gcc)"
        )
    return environment


@dataclass
class _Process:
    running: subprocess.Popen[bytes]
    errors: Path

    def said(self) -> str:
        return self.errors.read_text(errors="replace")[-SAID:]


@contextmanager
def _process(environment: dict[str, str], arguments: list[str]) -> Iterator[_Process]:
    """Run a worker, which is ended with the block."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        errors = Path(folder) / "stderr"
        command = [sys.executable, "-P", "-m", "fanin.assurance.fuzz.worker", *arguments]
        with errors.open("wb") as file:
            running = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=file)
        try:
            yield _Process(running, errors)
        finally:
            running.kill()
            running.communicate()


def _follow(
    process: _Process, done: Fuzzed, lock: Lock, until: float | None, show: Callable[[Fuzzed], None]
) -> tuple[int, str] | None:
    """Read a worker's output until its end or the time limit; return the case that failed, if one has."""
    seed, rest = 0, b""
    output = process.running.stdout
    assert output is not None
    waited_until = time.monotonic() + PATIENCE
    while not done.stopped.is_set():
        if until is not None and time.monotonic() > until:
            return None
        if time.monotonic() > waited_until:
            return seed, f"the case has not finished after {PATIENCE} s"
        if not select.select([output], [], [], 0.2)[0]:
            continue
        waited_until = time.monotonic() + PATIENCE
        read = output.read1()  # type: ignore[attr-defined]
        if not read:
            status = process.running.wait()
            return (seed, process.said()) if status else None
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            if line.startswith(b"case "):
                seed = int(line.split()[1])
                continue
            with lock:
                done.cases += 1
                done.taken += line == b"taken"
                show(done)
    return None


def _run_file(path: Path, environment: dict[str, str]) -> str | None:
    with _process(environment, [str(path)]) as process:
        try:
            status = process.running.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return f"the case has not finished after {PATIENCE} s"
        return process.said() if status else None


def _write_smallest(case: FuzzCase, environment: dict[str, str], results: Path) -> Path:
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"case-{case.seed}.json"
    trial = results / f"trial-{case.seed}.json"

    def fails(smaller: FuzzCase) -> bool:
        smaller.write(trial)
        return _run_file(trial, environment) is not None

    case.write(path)
    try:
        shrink(case, fails).write(path)
    finally:
        trial.unlink(missing_ok=True)
    return path
