"""Traces of flows, in the format of HPCC's simulator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from pathlib import Path

from fanin.experiments.workloads.trace import TraceError

_COLUMNS = "source destination group port bytes start"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedFlow:
    """A flow of a trace: `size` bytes from one host to another, numbered from 0, beginning at `start` (seconds).

    Attributes:
        port: Its destination port, by which HPCC's scripts tell kinds of flows apart.
    """

    source: int
    destination: int
    port: int
    size: int
    start: float


def read_flows(path: Path) -> tuple[TracedFlow, ...]:
    """Return the flows of a file, in its order.

    The first line has their number, and each other line the columns source, destination, group, port, bytes and start,
    with spaces or commas between them. A header with these names may replace the number.

    Raises:
        TraceError: If the file cannot be read, or a line is wrong.
    """
    try:
        return _parsed(path, path.stat().st_mtime_ns)
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from None


@lru_cache(maxsize=4)
def _parsed(path: Path, _modified: int) -> tuple[TracedFlow, ...]:
    lines = [line.replace(",", " ").split() for line in path.read_text().splitlines()]
    filled = [(number, words) for number, words in enumerate(lines, start=1) if words]
    if not filled:
        raise TraceError(f"{path}: is empty; write the number of flows, and a line for each: {_COLUMNS}")
    (_, first), *rest = filled
    flows = tuple(_flow(f"{path}:{number}", words) for number, words in rest)
    if first != _COLUMNS.split():
        if len(first) != 1 or not first[0].isdecimal():
            raise TraceError(f"{path}:1: must be the number of flows, or the header {_COLUMNS}")
        if int(first[0]) != len(flows):
            raise TraceError(f"{path}:1: has {int(first[0])} flows, but the file has lines for {len(flows)}")
    return flows


def _flow(place: str, words: list[str]) -> TracedFlow:
    if len(words) != len(_COLUMNS.split()):
        raise TraceError(f"{place}: has {len(words)} columns; write {_COLUMNS}")
    *whole, last = words
    try:
        source, destination, _, port, size = map(int, whole)
        start = float(last)
    except ValueError:
        raise TraceError(f"{place}: has a word that is not a number; write {_COLUMNS}") from None
    if size < 1:
        raise TraceError(f"{place}: bytes is {size}, must be at least 1")
    if not (isfinite(start) and start >= 0):
        raise TraceError(f"{place}: start is {last}, must be a time in seconds from 0 on")
    if source == destination:
        raise TraceError(f"{place}: goes from host {source} to itself; give it another destination")
    return TracedFlow(source=source, destination=destination, port=port, size=size, start=start)
