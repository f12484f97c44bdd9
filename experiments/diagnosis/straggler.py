"""A worker that calls late, or computes for longer than others, for which they wait."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.diagnosis.case import Case
from fanin.experiments.diagnosis.finding import Finding


def straggler(case: Case) -> Finding:
    """By how much later the last worker called than the one in the middle did, or computed for longer."""
    return _late(case) if case.computing is None else _slow(case, case.computing)


def _slow(case: Case, computing: NDArray[np.float64]) -> Finding:
    """Of a model that is cut, whose workers begin a step together but have to do with one another all along."""
    middle, most = float(np.median(computing)), int(computing.argmax())
    host, steps = case.usage.workers[most].host, len(case.usage.workers[most].began)
    each, usual, whole = (1e6 * one / steps for one in (computing[most], middle, case.seconds))
    return Finding(
        "straggler",
        float(computing[most] - middle) / case.seconds,
        f"{host} computed for {each:,.0f} us of a step of {whole:,.0f} us, "
        f"the worker in the middle for {usual:,.0f} us",
        f"look at what slows {host} down, or give it fewer layers; the network is not what is waited for",
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
        f"the last worker called {1e6 * late.mean():,.0f} us after the one in the middle, on average, of "
        f"{1e6 * case.seconds / len(late):,.0f} us; {workers[most].host} was the last {times} of {len(late)} times",
        f"look at what {workers[most].host} computes before it calls; the network is not what is waited for",
    )
