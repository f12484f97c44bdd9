"""The table `arrivals` of a scenario: jobs that come and go, as a trace has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fanin.experiments.scenario.tables.table import Table
from fanin.experiments.workloads.job_trace import TracedJob, read_jobs
from fanin.experiments.workloads.trace import TraceError


class Arrivals(Table):
    """Jobs that arrive by a trace, wait for hosts and slots, all-reduce, and leave."""

    trace: Annotated[
        Path,
        Field(description="CSV file with the jobs, relative to this file; replaces size and repetitions"),
    ]

    @property
    def jobs(self) -> tuple[TracedJob, ...]:
        """Return the jobs in the order of their arrivals.

        Raises:
            TraceError: If the trace cannot be read.
        """
        return read_jobs(self.trace)

    def problems(self, workers: int, algorithms: Sequence[str]) -> Iterator[str]:
        """Yield what is wrong with the trace for this number of hosts and these algorithms."""
        try:
            jobs = self.jobs
        except TraceError as error:
            yield f"arrivals.trace: {error}"
            return
        if (most := max(job.workers for job in jobs)) > workers:
            yield f"arrivals.trace: {self.trace}: a job has {most} workers, and there are hosts for {workers}"
        for name in dict.fromkeys(job.algorithm for job in jobs if job.algorithm):
            if name not in algorithms:
                yield f"arrivals.trace: {self.trace}: {name!r} is no algorithm; there are {', '.join(algorithms)}"
