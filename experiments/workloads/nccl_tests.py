"""The output of nccl-tests: measured times of one collective, and the latency and the rate that explain them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fanin.experiments.workloads.collective_names import operation_named
from fanin.experiments.workloads.trace import TraceError
from fanin.native.text import counted
from fanin.workers.collective import Operation

_HEADER = re.compile(r"#\s+size\s+count\b")
_RANK = re.compile(r"#?\s*Rank\s+(\d+)\s")
_NAME = re.compile(r"(\w+)_perf\b")
_COUNTS = re.compile(r"nThread\s+(\d+)\s+nGpus\s+(\d+)")
_FEWEST = 3  # sizes for a calibration


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measured times of a collective, and the two numbers that explain them best.

    Attributes:
        operation: The operation.
        ranks: Number of ranks.
        sizes: Bytes of each row.
        seconds: Measured time of each row.
        latency: Seconds from one rank to the next.
        bandwidth: Bytes per second that a rank sends, and receives.
    """

    operation: Operation
    ranks: int
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    latency: float
    bandwidth: float

    def predicted(self, size: int) -> float:
        """Return the seconds of this size with this latency and this bandwidth, round a ring."""
        hops, share = _ring(self.operation, self.ranks)
        return hops * self.latency + share * size / self.bandwidth


def is_nccl_tests(text: str) -> bool:
    """Return whether the beginning of a file is that of such an output."""
    return "algbw" in text and "busbw" in text


def read_nccl_tests(lines: Iterable[str], file: str, ranks: int | None = None) -> Calibration:
    """Read an output and fit latency and rate, so that relative errors are as small as possible.

    Args:
        lines: The file.
        file: Its name, for messages.
        ranks: Number of ranks; None: as the file states it.

    Raises:
        TraceError: If the file has no rows, or does not tell what was measured.
    """
    columns: list[str] = []
    name, listed, started = None, set[int](), None
    rows: list[tuple[int, float]] = []
    factors: list[float] = []
    redop = None
    for number, line in enumerate(lines, start=1):
        if _HEADER.search(line):
            columns = line.replace("#wrong", "wrong").replace("#", " ").split()
        elif match := _RANK.match(line):
            listed.add(int(match[1]))
        elif match := _COUNTS.search(line):
            started = int(match[1]) * int(match[2])
        if found := _NAME.search(line):
            name = found[1]
        cells = line.split()
        if not cells or not cells[0].isdigit():
            continue
        if not columns:
            raise TraceError(
                f"{file}:{number}: has a row before the line of column names; give the whole output"
            )
        row = dict(reversed([*zip(columns, cells, strict=False)]))  # of two columns the first: out-of-place
        size, time = (_number(row.get(key), key, file, number) for key in ("size", "time"))
        if size <= 0:
            continue
        if time <= 0:
            raise TraceError(f"{file}:{number}: field 'time': is {time:g}, must be more than 0 us")
        rows.append((int(size), time / 1e6))
        redop = row.get("redop", redop)
        algbw, busbw = (_number(row.get(key), key, file, number) for key in ("algbw", "busbw"))
        if algbw >= 1:  # smaller ones have too few digits
            factors.append(busbw / algbw)
    ranks = ranks or (1 + max(listed) if listed else started)
    if ranks is None or ranks < 2:
        raise TraceError(f"{file}: does not state the number of ranks; give it with --ranks")
    if len({size for size, _ in rows}) < _FEWEST:
        raise TraceError(
            f"{file}: has {counted(len(rows), 'row')}; a calibration needs {_FEWEST} sizes, such as -b 8 -e 128M -f 2"
        )
    operation = _operation(name, redop, factors, ranks, file)
    hops, share = _ring(operation, ranks)
    sizes, seconds = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    terms = np.stack([np.full_like(sizes, hops), share * sizes], axis=1) / seconds[:, None]
    latency, per_byte = np.linalg.lstsq(terms, np.ones(len(rows)), rcond=None)[0]
    if latency < 0:  # the rate alone explains more than all of the time
        latency, per_byte = 0.0, float((terms[:, 1] @ np.ones(len(rows))) / (terms[:, 1] @ terms[:, 1]))
    if per_byte <= 0:
        raise TraceError(f"{file}: times do not grow with sizes, so there is no rate; measure larger sizes")
    return Calibration(
        operation,
        ranks,
        tuple(size for size, _ in rows),
        tuple(time for _, time in rows),
        float(latency),
        1 / float(per_byte),
    )


def _number(text: str | None, key: str, file: str, line: int) -> float:
    if text is None:
        raise TraceError(f"{file}:{line}: field {key!r}: missing")
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value < float("inf"):
        raise TraceError(f"{file}:{line}: field {key!r}: is {text!r}, must be a number of 0 or more")
    return value


def _operation(name: str | None, redop: str | None, factors: list[float], ranks: int, file: str) -> Operation:
    """Return the operation: by the name of the program, else by the ratio of busbw to algbw."""
    if name is not None:
        try:
            return operation_named(name)
        except ValueError as error:
            raise TraceError(f"{file}: {error}") from None
    factor = float(np.median(factors)) if factors else 0.0
    if redop not in (None, "none") and abs(factor - 2 * (ranks - 1) / ranks) < 0.05:
        return "all-reduce"
    raise TraceError(
        f"{file}: does not name the collective; add a line such as '# all_gather_perf' at its top"
    )


def _ring(operation: Operation, ranks: int) -> tuple[int, float]:
    """Return how many hops follow each other round a ring, and how often the bytes of an array cross each link."""
    others = (ranks - 1) / ranks
    match operation:
        case "all-reduce":
            return 2 * (ranks - 1), 2 * others
        case "broadcast":
            return ranks - 1, 1.0
        case "all-to-all":
            return 1, others
        case "reduce-scatter" | "all-gather":
            return ranks - 1, others
