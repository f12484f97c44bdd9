"""How a job goes on that loses its lease, or some of its workers: all who are left have the same sums.

Each says how many it has finished, and those behind are sent the result that others have; the next all-reduce, or the
one that is under way, goes by ring (workers/job/handover.py), or is done by another group (workers/job/elastic.py).
"""

from __future__ import annotations

from collections.abc import Collection

from experiments.virtual.fabric import Job
from experiments.virtual.stations import Vector
from workers.job.kept import Kept, Standing


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


def sums_of_all(job: Job, staying: Collection[int]) -> list[list[Vector]]:
    """Those of each of the ranks that stay, once they have finished the same."""
    stations = job.stations
    standing = Standing([len(one.outputs) if rank in staying else None for rank, one in enumerate(stations)])
    outputs = {rank: list(stations[rank].outputs) for rank in staying}
    for rank in standing.behind:
        outputs[rank].append(stations[standing.giver].outputs[-1].copy())
    return list(outputs.values())
