"""The other jobs of a point, on the same network."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from fanin.experiments.models.timers import recovery, ring_recovery, virtual_window
from fanin.experiments.results.checking import Errors, oracle_of
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.other_job import OtherJob
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.simulator.fabric import Cluster, Job
from fanin.simulator.hosts.stations import Vector
from fanin.simulator.job_spec import JobSpec


class OtherJobs:
    """Running jobs on `cluster` with vectors drawn by the point's seed; start_other_jobs() makes them."""

    def __init__(self, settings: Settings, other: OtherJob, cluster: Cluster) -> None:
        window = other.window or virtual_window(settings)
        self._settings, self._other, self._window = settings, other, window
        self._cluster = cluster
        self._hosts = [
            tuple(part.tolist()) for part in np.array_split(np.array(settings.bystanders), other.jobs)
        ]
        self.jobs = [self._start(number) for number in range(other.jobs)]

    def _start(self, number: int) -> Job:
        settings, other, protocol = self._settings, self._other, self._settings.implementation
        in_network = other.algorithm == "in-network"
        servers = settings.servers[len(settings.servers) - other.jobs :] if in_network else ()
        spec = JobSpec(
            hosts=self._hosts[number],
            window=self._window,
            window_per=settings.window_per,
            values=settings.values,
            recovery=recovery(settings),
            algorithm=other.algorithm,
            slots=settings.shared_slots if in_network else None,
            servers=servers[number : number + 1],
            ring=bool(settings.faults),
            ring_recovery=ring_recovery(settings),
            congestion_control=settings.congestion_control,
            payload=settings.payload,
            priority=other.priority,
        )
        return self._cluster.start(
            spec,
            list(self._vectors(number)),
            make_worker=protocol.make_worker,
            make_server=protocol.make_server,
            in_place=True,
        )

    def _vectors(self, number: int) -> Iterator[list[Vector]]:
        """Yield a vector of each worker of a job for each all-reduce."""
        first = len(self._settings.members) + sum(map(len, self._hosts[:number]))
        ranks = range(first, first + len(self._hosts[number]))
        draws = [np.random.default_rng((self._settings.seed, rank)) for rank in ranks]
        elements = self._other.size // ELEMENT_BYTES
        for _ in range(self._other.repetitions):
            yield [self._settings.implementation.vector(draw, elements) for draw in draws]

    def run(self, limit: float) -> bool:
        """Run until the jobs have all their sums; return False if they do not by `limit` (seconds)."""
        return all(self._cluster.run_job(job, limit) for job in self.jobs)

    @property
    def median_seconds(self) -> float:
        """Return the median time of all all-reduces, from the last worker's call to the last worker's sum."""
        times = [
            np.max([station.ended for station in job.stations], axis=0)
            - np.max([station.began for station in job.stations], axis=0)
            for job in self.jobs
        ]
        return float(np.median(times))

    @property
    def errors(self) -> Errors:
        """Return the errors of all their sums; the vectors are drawn again, since sums have replaced them."""
        return Errors.of_all(one for number, job in enumerate(self.jobs) for one in self._held(number, job))

    def _held(self, number: int, job: Job) -> Iterator[Errors]:
        """Yield the errors of each all-reduce of a job."""
        oracle_for = cache(lambda algorithm: oracle_of(self._settings, algorithm, self._window))
        for index, vectors in enumerate(self._vectors(number)):
            _, algorithm = job.done_by(index)
            oracle = oracle_for(algorithm)
            yield oracle.promise(vectors).hold(station.outputs[index] for station in job.stations)


def start_other_jobs(settings: Settings, cluster: Cluster) -> OtherJobs | None:
    """Start the other jobs of the point and return them; None if the point has none."""
    other = settings.other_job
    return OtherJobs(settings, other, cluster) if other and other.repetitions else None
