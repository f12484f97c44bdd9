"""A job in virtual time whose workers go on by ring, as workers/handover.py has it."""

from __future__ import annotations

from experiments.virtual.fabric import Job
from workers.kept import Kept, Standing


def kept_of(job: Job, rank: int) -> Kept:
    """What a worker keeps of its sums."""
    kept = job.stations[rank].kept
    assert kept is not None
    return kept


def hand_over(job: Job, at: float) -> None:
    """Its lease is withdrawn, all its workers hear of it `at` that time (seconds), and go on by ring."""
    job.revoke(lambda: None)
    carry_on(job, Standing([kept_of(job, rank).finished for rank in range(len(job.members))]), at)


def carry_on(job: Job, standing: Standing, at: float = 0.0) -> int:
    """All of its workers have stopped, and have finished the same afterwards; how many are sent a result for that."""
    outputs = [list(station.outputs) for station in job.stations]
    for rank in standing.behind:
        outputs[rank].append(kept_of(job, standing.giver).last.copy())
    job.carry_on(outputs, at)
    return len(standing.behind)
