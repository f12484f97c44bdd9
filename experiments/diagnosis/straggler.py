"""A worker that calls late, for which all others wait."""

from __future__ import annotations

import numpy as np

from experiments.diagnosis.case import Case
from experiments.diagnosis.finding import Finding


def straggler(case: Case) -> Finding | None:
    """By how much later the last worker called than the one in the middle did."""
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
