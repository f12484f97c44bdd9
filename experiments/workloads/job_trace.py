"""Traces of jobs that arrive, in CSV files."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from pathlib import Path

from fanin.experiments.workloads.trace import TraceError

_COLUMNS = ("arrival", "workers", "size", "rounds")
_OPTIONAL = "algorithm"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedJob:
    """A job that arrives at `arrival` (seconds) and wants `rounds` all-reduces of `size` bytes among `workers` hosts.

    Attributes:
        algorithm: Its algorithm; None takes that of the scenario.
    """

    arrival: float
    workers: int
    size: int
    rounds: int
    algorithm: str | None


def read_jobs(path: Path) -> tuple[TracedJob, ...]:
    """Return the jobs of a CSV file in the order of their arrivals.

    The file has the columns arrival, workers, size, rounds and, if it likes, algorithm.

    Raises:
        TraceError: If the file cannot be read, or a line is wrong.
    """
    try:
        return _parsed(path, path.stat().st_mtime_ns)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from None


@lru_cache(maxsize=4)
def _parsed(path: Path, _modified: int) -> tuple[TracedJob, ...]:
    with path.open(newline="") as file:
        reader = csv.reader(file, skipinitialspace=True)
        names = tuple(next(reader, ()))
        if names not in (_COLUMNS, (*_COLUMNS, _OPTIONAL)):
            header = ",".join(_COLUMNS)
            raise TraceError(f"{path}:1: must be the header {header}, or {header},{_OPTIONAL}")
        jobs = [_job(f"{path}:{reader.line_num}", words, len(names)) for words in reader if words]
    if not jobs:
        raise TraceError(f"{path}: has no jobs; write a line for each")
    return tuple(sorted(jobs, key=lambda job: job.arrival))


def _job(place: str, words: list[str], columns: int) -> TracedJob:
    if len(words) != columns:
        raise TraceError(f"{place}: has {len(words)} columns, and the header has {columns}")
    try:
        arrival, (workers, size, rounds) = float(words[0]), map(int, words[1:4])
    except ValueError:
        raise TraceError(
            f"{place}: has a word that is not a number; arrival is in seconds, size in bytes"
        ) from None
    if not (isfinite(arrival) and arrival >= 0):
        raise TraceError(f"{place}: arrival is {words[0]}, must be a time in seconds from 0 on")
    for name, value, least in (("workers", workers, 2), ("size", size, 4), ("rounds", rounds, 1)):
        if value < least:
            raise TraceError(f"{place}: {name} is {value}, must be at least {least}")
    if size % 4:
        raise TraceError(f"{place}: size is {size}, must be a multiple of 4 bytes, the size of a float32")
    algorithm = words[4] if columns > len(_COLUMNS) else ""
    return TracedJob(arrival=arrival, workers=workers, size=size, rounds=rounds, algorithm=algorithm or None)
