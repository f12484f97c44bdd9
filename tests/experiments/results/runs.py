"""Runs as they are measured."""

from __future__ import annotations

from typing import Any

from fanin.experiments.results.measured import Measured, Row, row
from fanin.experiments.results.summary import Run
from fanin.experiments.results.usage import LinkUse, Usage, WorkerUse
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.training.sgd import Curve
from fanin.workers.recovery import Recovery

CURVE = Curve([0.1, 0.2, 0.3], [2.3, 1.2, 0.7], [0.1, 0.6, 0.9])

RATE = 100_000_000


def run(rate: int | None = RATE, violations: int = 0, **settings: Any) -> Run:
    """A training through the switches, but for what `settings` say otherwise."""
    shape = {"spines": 0, "leaves": 1, "hosts_per_leaf": 8, "rate": rate}
    work = {} if "size" in settings else {"training": {}}
    point = Settings.model_validate(
        {"world": "live", "topology": {"leaf_spine": shape}, **work, **settings}
    ).settled
    measured = Measured(
        seconds=(0.011, 0.012, 0.015) if point.algorithm == "in-network" else (0.02, 0.02, 0.03),
        elements=19211,
        wire_bytes_per_worker=165e3,
        packets_per_worker=160.0,
        retransmissions=93 if point.links.loss else 0,
        drops={"lost": 0},
        link_events={},
        violations=violations,
        max_abs_error=1e-8,
        error_bound=2e-8,
        checked_share=1.0,
        closed_form_seconds=None,
        curve=CURVE if work else None,
        window=128,
        recovery=Recovery(min_rto=0.01),
    )
    return Run(point, measured, 0.91 if work else None)


RUN, RING, BARE = run(), run(algorithm="ring"), run(size="4 MB")

LIVE = {"world": "live"}


# What two links and two workers did in a run.
USAGE = Usage(
    (
        LinkUse(near="h1", far="leaf1", packets=10, bytes=1000, wire_bytes=1240, busy_seconds=0.5, lost=1),
        LinkUse(
            near="leaf1",
            far="h1",
            packets=9,
            bytes=900,
            wire_bytes=1116,
            busy_seconds=0.4,
            waited_seconds=7.0,
        ),
    ),
    (
        WorkerUse(rank=0, host="h1", began=(0.0, 2.0), ended=(1.0, 3.0), retransmissions=1),
        WorkerUse(rank=1, host="h2", began=(0.5, 2.0), ended=(1.5, 2.5), retransmissions=0),
    ),
)


def made(seconds: list[float], wire: float = 1e6, again: int = 0, **settings: Any) -> Row:
    """Return the row of a point with these times and four workers in a rack."""
    shape = {"spines": 0, "leaves": 1, "hosts_per_leaf": 4, "rate": "10 Gb/s"}
    said = {"topology": {"leaf_spine": shape}, "size": "4 MB", "repetitions": len(seconds)} | settings
    return row(
        Settings.model_validate(said).settled,
        Measured(
            seconds=tuple(seconds),
            elements=10**6,
            wire_bytes_per_worker=wire,
            packets_per_worker=100.0,
            retransmissions=again,
            drops={},
            link_events={},
            violations=0,
            max_abs_error=0.0,
            error_bound=1.0,
            checked_share=1.0,
            closed_form_seconds=None,
        ),
    )
