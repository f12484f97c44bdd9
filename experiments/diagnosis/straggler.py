"""A worker for which the others wait because it calls late or computes longer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.diagnosis.case import Case
from fanin.experiments.diagnosis.finding import Finding


def straggler(case: Case) -> Finding:
    """Measure how much later than the median worker the last one called, or how much longer it computed."""
    return _late(case) if case.computing is None else _slow(case, case.computing)


def _slow(case: Case, computing: NDArray[np.float64]) -> Finding:
    """Find the slowest worker of training steps, which all begin together."""
    middle, most = float(np.median(computing)), int(computing.argmax())
    host, steps = case.usage.workers[most].host, len(case.usage.workers[most].began)
    each, usual, whole = (1e6 * one / steps for one in (computing[most], middle, case.seconds))
    return Finding(
        "straggler",
        float(computing[most] - middle) / case.seconds,
        f"{host} computed for {each:,.0f} us of a step of {whole:,.0f} us, "
        f"the median worker for {usual:,.0f} us",
        f"find out what slows {host} down, or give it less work (a smaller batch, fewer layers); "
        "workers do not wait for the network",
    )


def _late(case: Case) -> Finding:
    workers = case.usage.workers
    began = np.array([worker.began for worker in workers])
    late = began.max(axis=0) - np.median(began, axis=0)
    last = began.argmax(axis=0)
    most = int(np.bincount(last, weights=late).argmax())
    times = int(np.count_nonzero(last == most))
    return Finding(
        "straggler",
        float(late.sum() / case.seconds),
        f"the last worker called {1e6 * late.mean():,.0f} us after the median one, on average, of "
        f"{1e6 * case.seconds / len(late):,.0f} us; {workers[most].host} was the last {times} of {len(late)} times",
        f"find out what {workers[most].host} computes before it calls; workers do not wait for the network",
    )
