"""Utilization of processors and links during all-reduces."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fanin.controller.connection import Count
from fanin.controller.telemetry import SwitchCounts
from fanin.testbed.process_stats import PROCESSES, process_stats
from fanin.topologies.model import Topology

_TICKS = os.sysconf("SC_CLK_TCK")  # clock ticks per second, the kernel's unit
_SHORTEST = 0.1  # seconds: ten ticks; over less time the counts are too coarse
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class _Reading:
    """Readings in seconds: the clock, busy time of all cores that we may use, and of each of our threads."""

    now: float
    busy: float
    threads: Mapping[int, float]


class Processors:
    """Utilization of the processors between `begin` and `end`, by this process and all that it has started."""

    def __init__(self) -> None:
        self._cores = os.sched_getaffinity(0)
        self._begin: _Reading | None = None
        self._end: _Reading | None = None

    @property
    def begun(self) -> bool:
        """Return whether `begin` was called."""
        return self._begin is not None

    @property
    def ended(self) -> bool:
        """Return whether `end` was called."""
        return self._end is not None

    def begin(self) -> None:
        """Begin the measurement."""
        self._begin = self._read()

    def end(self) -> None:
        """End the measurement."""
        self._end = self._read()

    @property
    def utilization(self) -> float | None:
        """Return the largest of three utilizations, 0 to 1; None if the time was too short.

        - of the cores that we may use: the share of time in which they were busy with anything
        - of the cores that a quota leaves us: the share that our processes used
        - of one core: the share that our busiest thread used
        """
        if self._begin is None or self._end is None:
            return None
        seconds = self._end.now - self._begin.now
        if seconds < _SHORTEST:
            return None
        before, after = self._begin.threads, self._end.threads
        ours = [used - before.get(thread, 0.0) for thread, used in after.items()]
        allowed = min(float(len(self._cores)), quota())
        shares = (
            (self._end.busy - self._begin.busy) / len(self._cores),
            sum(ours) / allowed,
            max(ours, default=0.0),
        )
        return min(1.0, max(shares) / seconds)

    def _read(self) -> _Reading:
        return _Reading(time.monotonic(), _busy(self._cores), dict(_threads(os.getpid())))


def _busy(cores: set[int]) -> float:
    """Return the seconds for which `cores` were busy: /proc/stat (proc_stat(5)), including steal by other guests."""
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
            ticks += user + nice + system + irq + softirq + steal
    return ticks / _TICKS


def _threads(root: int) -> Iterator[tuple[int, float]]:
    """Yield the id and the processor seconds of each thread of process `root` and of all that it has started."""
    children: dict[int, list[int]] = {}
    for process, fields in process_stats():
        children.setdefault(int(fields[1]), []).append(process)
    family = [root]
    for pid in family:
        family += children.get(pid, ())
        for thread, fields in process_stats(PROCESSES / str(pid) / "task"):
            yield thread, sum(map(int, fields[11:13])) / _TICKS


def quota() -> float:
    """Return how many cores' time the control groups allow this process (cpu.max of version 2); inf if unlimited."""
    found = float("inf")
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::/"):
                group = _CGROUPS / line[4:]
                for folder in (group, *group.parents):
                    found = min(found, _quota_of(folder))
    return found


def _quota_of(folder: Path) -> float:
    with contextlib.suppress(OSError, ValueError):
        most, period = (folder / "cpu.max").read_text().split()
        return int(most) / int(period)  # "max" is not a number
    return float("inf")


def link_utilization(topology: Topology, counts: Mapping[str, SwitchCounts], seconds: float) -> float | None:
    """Return the utilization of the busiest link in its busier direction, over `seconds`, from the switches' counts.

    None if no link has a rate.
    """
    shares = []
    for link in topology.links:
        rate, overhead = link.rate_bits_per_second, link.properties.overhead or 0
        for end in (link.a, link.b):
            if rate is not None and end.node in counts:
                port = counts[end.node].ports[end.port]
                shares += [_bits(way, overhead) / rate / seconds for way in (port.received, port.sent)]
    return min(1.0, max(shares)) if shares else None


def _bits(count: Count, overhead: int) -> int:
    return 8 * (count.bytes + overhead * count.packets)
