"""The other job of a point, on the same network."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fanin.experiments.models.timers import recovery, ring_recovery, virtual_window
from fanin.experiments.results.checking import Errors, oracle_of
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.other_job import OtherJob
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.simulator.fabric import Cluster
from fanin.simulator.hosts.stations import Vector
from fanin.simulator.job_spec import JobSpec


class OtherJobRun:
    """A running job on `cluster` with vectors drawn by the point's seed; start_other_job() makes it."""

    def __init__(self, settings: Settings, other: OtherJob, cluster: Cluster) -> None:
        hosts = settings.bystanders
        window = other.window or virtual_window(settings)
        self._settings, self._other, self._window = settings, other, window
        spec = JobSpec(
            hosts=hosts,
            window=window,
            window_per=settings.window_per,
            values=settings.values,
            recovery=recovery(settings),
            algorithm=other.algorithm,
            ring=bool(settings.faults),
            ring_recovery=ring_recovery(settings),
            congestion_control=settings.congestion.control_of,
            priority=other.priority,
        )
        self._cluster = cluster
        make_worker = settings.implementation.make_worker
        self.job = cluster.start(spec, list(self._vectors()), make_worker=make_worker, in_place=True)

    def _vectors(self) -> Iterator[list[Vector]]:
        """Yield a vector of each worker for each all-reduce."""
        first = len(self._settings.members)
        ranks = range(first, first + len(self._settings.bystanders))
        draws = [np.random.default_rng((self._settings.seed, rank)) for rank in ranks]
        elements = self._other.size // ELEMENT_BYTES
        for _ in range(self._other.repetitions):
            yield [self._settings.implementation.vector(draw, elements) for draw in draws]

    def run(self, limit: float) -> bool:
        """Run until the job has all its sums; return False if it does not by `limit` (seconds)."""
        return self._cluster.run_job(self.job, limit)

    @property
    def median_seconds(self) -> float:
        """Return the median time of an all-reduce, from the last worker's call to the last worker's sum."""
        began = np.max([station.began for station in self.job.stations], axis=0)
        ended = np.max([station.ended for station in self.job.stations], axis=0)
        return float(np.median(ended - began))

    @property
    def errors(self) -> Errors:
        """Return the errors of all its sums; the vectors are drawn again, since sums have replaced them."""
        return Errors.of_all(map(self._held, range(self._other.repetitions), self._vectors()))

    def _held(self, index: int, vectors: list[Vector]) -> Errors:
        _, algorithm = self.job.done_by(index)
        settings = self._settings
        oracle = oracle_of(settings.implementation, algorithm, settings.values, self._window)
        return oracle(vectors).hold(station.outputs[index] for station in self.job.stations)


def start_other_job(settings: Settings, cluster: Cluster) -> OtherJobRun | None:
    """Start the other job of the point and return it; None if the point has none."""
    other = settings.other_job
    return OtherJobRun(settings, other, cluster) if other and other.repetitions else None
