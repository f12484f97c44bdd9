"""Rates of switches that take turns: packets per second and processor time, medians over rounds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fanin.assurance.bench.switch.native import Traffic, switch_processor
from fanin.p4switch.engine.engine import Engine

_WARM_UP = 0.15  # seconds
_MAX_WINDOW = 10.0  # seconds

Received = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Rate:
    """Packets per second, and processor nanoseconds per packet (None if another process forwards)."""

    pps: float
    nanoseconds: float | None


@dataclass(frozen=True, slots=True)
class Contender:
    """A switch that runs inside a `with` block, which yields a function that reads the number of packets received."""

    running: Callable[[], AbstractContextManager[Received]]
    traffic: Traffic


def compare(contenders: Sequence[Contender], rounds: int, seconds: float) -> list[Rate]:
    """Return the median rate of each contender, over windows of this many seconds.

    Raises:
        BenchError: An aggregation made no progress.
    """
    found: list[list[Rate]] = [[] for _ in contenders]
    for _ in range(rounds):
        for contender, rates in zip(contenders, found, strict=True):
            rates.append(_rate(contender, seconds))
    return [sorted(rates, key=lambda rate: rate.pps)[rounds // 2] for rates in found]


def _rate(contender: Contender, seconds: float) -> Rate:
    with contender.running() as received, contender.traffic.running() as generator:

        def now() -> tuple[int, float, float]:
            return received(), time.perf_counter(), time.process_time() - generator.processor_seconds()

        time.sleep(_WARM_UP)
        packets, began, before = now()
        more, ended, after = packets, began, before
        # On a busy machine the switch may get no time in a short window, which is then extended.
        while more == packets and ended - began < _MAX_WINDOW:
            time.sleep(seconds)
            more, ended, after = now()
    contender.traffic.check()
    return Rate((more - packets) / (ended - began), (after - before) / max(1, more - packets) * 1e9)


@contextmanager
def started(engine: Engine, interfaces: Sequence[str], *, offload: bool) -> Iterator[Received]:
    """Run the switch on ports 1, 2, …, with its forwarding thread on the switch's processor."""
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {switch_processor()})
    try:
        engine.start(dict(enumerate(interfaces, start=1)), offload=offload)
    finally:
        os.sched_setaffinity(0, everywhere)
    try:
        yield lambda: sum(port.received for port in engine.port_statistics().values())
    finally:
        engine.stop()


@contextmanager
def delivered(interfaces: Sequence[str]) -> Iterator[Received]:
    """Count the frames that leave a switch that already runs and whose counters cannot be read."""
    counters = [Path("/sys/class/net", name, "statistics/rx_packets") for name in interfaces]
    yield lambda: sum(int(counter.read_text()) for counter in counters)
