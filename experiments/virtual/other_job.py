"""The other job of a point, on the same network."""

from __future__ import annotations

import numpy as np

from experiments.models.timers import recovery, virtual_window
from experiments.results.checking import Errors, Promise, error_bound
from experiments.scenario.settings import Settings
from experiments.scenario.tables.other_job import OtherJob
from experiments.scenario.tables.units import ELEMENT_BYTES
from experiments.virtual.fabric import Cluster
from experiments.virtual.job_spec import JobSpec


class Beside:
    """A job that has begun on `cluster`, with vectors drawn by the point's seed; made by beside()."""

    def __init__(self, settings: Settings, other: OtherJob, cluster: Cluster) -> None:
        hosts = settings.bystanders
        window = other.window or virtual_window(settings)
        bound = error_bound(other.algorithm, settings.values, window)
        ranks = range(len(settings.members), len(settings.members) + len(hosts))
        draws = [np.random.default_rng((settings.seed, rank)) for rank in ranks]
        elements = other.size // ELEMENT_BYTES
        inputs = [
            [draw.standard_normal(elements, dtype=np.float32) for draw in draws]
            for _ in range(other.repetitions)
        ]
        self._promises = [Promise.of(vectors, bound) for vectors in inputs]
        spec = JobSpec(
            hosts=hosts,
            window=window,
            values=settings.values,
            recovery=recovery(settings),
            algorithm=other.algorithm,
            congestion=settings.congestion,
            priority=other.priority,
        )
        self._cluster = cluster
        self._job = cluster.start(spec, inputs, in_place=True)

    def finish(self, limit: float) -> bool:
        """Until it has all its sums: True. False: not by `limit` (seconds)."""
        return self._cluster.run_job(self._job, limit)

    @property
    def median_seconds(self) -> float:
        """Of an all-reduce, from its last worker's call to its last worker's sum."""
        began = np.max([station.began for station in self._job.stations], axis=0)
        ended = np.max([station.ended for station in self._job.stations], axis=0)
        return float(np.median(ended - began))

    @property
    def errors(self) -> Errors:
        """Of all its sums."""
        return Errors.of_all(
            promise.hold(station.outputs[index] for station in self._job.stations)
            for index, promise in enumerate(self._promises)
        )


def beside(settings: Settings, cluster: Cluster) -> Beside | None:
    """The other job that the point has, on its network; None: it has none."""
    other = settings.other_job
    return Beside(settings, other, cluster) if other and other.repetitions else None
