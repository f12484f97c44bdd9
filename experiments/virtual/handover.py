"""How a job that loses its lease goes on, as workers/handover.py has it: by ring, all with the same sums.

Each worker says how many sums it has finished in the network; those behind are sent the result that others have, and the
next all-reduce goes by ring.
"""

from __future__ import annotations

from experiments.virtual.fabric import Job
from workers.kept import Kept, Standing


def kept_of(job: Job, rank: int) -> Kept:
    """What a worker of a job that can go on by ring keeps of its sums."""
    kept = job.stations[rank].kept
    assert kept is not None
    return kept


def carry_on(job: Job, standing: Standing, now: float) -> int:
    """All of its workers have stopped, and have finished the same afterwards; how many are sent a result for that."""
    outputs = [list(station.outputs) for station in job.stations]
    for rank in standing.behind:
        outputs[rank].append(kept_of(job, standing.giver).last.copy())
    job.carry_on(outputs, now)
    return len(standing.behind)
