"""Rates of switches that take turns: packets a second and processor time, medians over rounds."""

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
    """Packets a second, and the processor time of each in nanoseconds (None: it is another process's)."""

    pps: float
    nanoseconds: float | None


@dataclass(frozen=True, slots=True)
class Contender:
    """A switch that runs for the time of a `with` block, which is told how to read the packets it has received."""

    running: Callable[[], AbstractContextManager[Received]]
    traffic: Traffic


def compare(contenders: Sequence[Contender], rounds: int, seconds: float) -> list[Rate]:
    """The median rate of each, from windows of so many seconds.

    Raises:
        BenchError: an aggregation stood still.
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
        # A busy machine may give the switch no time in a short window: such a one goes on.
        while more == packets and ended - began < _MAX_WINDOW:
            time.sleep(seconds)
            more, ended, after = now()
    contender.traffic.check()
    return Rate((more - packets) / (ended - began), (after - before) / max(1, more - packets) * 1e9)


@contextmanager
def started(engine: Engine, interfaces: Sequence[str], *, offload: bool) -> Iterator[Received]:
    """The switch on ports 1, 2, …, its forwarding thread on the switch's processor."""
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
    """A switch that runs already and whose counters are out of reach: frames that have come out at the other ends."""
    counters = [Path("/sys/class/net", name, "statistics/rx_packets") for name in interfaces]
    yield lambda: sum(int(counter.read_text()) for counter in counters)
