"""How a job goes on that loses its lease, or some of its workers: all who are left have the same sums.

Each says how many it has finished, and those behind are sent the result that others have; the next all-reduce, or the
one that is under way, goes by ring (workers/job/ring_fallback.py), or is done by another group
(workers/job/elastic.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fanin.controller.tree import rests_on
from fanin.simulator.fabric import Job
from fanin.simulator.hosts.stations import Vector
from fanin.topologies.model import Link
from fanin.workers.job.membership import LeftError
from fanin.workers.job.retained_results import Kept, ProgressSnapshot

GOES_ON, _BY_RING = "the job goes on", "the hosts add up by ring"


def kept_of(job: Job, rank: int) -> Kept:
    """What a worker of a job that can go on by ring keeps of its sums."""
    kept = job.stations[rank].kept
    assert kept is not None
    return kept


def carry_on(job: Job, standing: ProgressSnapshot, now: float) -> int:
    """All of its workers have stopped, and have finished the same afterwards; how many are sent a result for that."""
    outputs = [list(station.outputs) for station in job.stations]
    for rank in standing.behind:
        outputs[rank].append(kept_of(job, standing.giver).last.copy())
    job.carry_on(outputs, now)
    return len(standing.behind)


def sums_of_all(job: Job, staying: Collection[int]) -> list[list[Vector]]:
    """Those of each of the ranks that stay, once they have finished the same."""
    stations = job.stations
    standing = ProgressSnapshot(
        [len(one.outputs) if rank in staying else None for rank, one in enumerate(stations)]
    )
    outputs = {rank: list(stations[rank].outputs) for rank in staying}
    for rank in standing.behind:
        outputs[rank].append(stations[standing.giver].outputs[-1].copy())
    return list(outputs.values())


class JobUnderFaults:
    """A job in a network where something fails: what its workers do, each time in a few words.

    min_workers: it goes on as long as so many are left; None: as long as all are there.
    """

    def __init__(self, job: Job, min_workers: int | None) -> None:
        self.job = job
        self._least = min_workers
        self._dead: set[str] = set()  # hosts of workers without which it does not go on yet
        self._without: dict[str, str] = {}  # of those without which it does: what the others did

    @property
    def ended(self) -> bool:
        """Whether all of its workers have all their sums."""
        return all(station.finished for station in self.job.stations)

    @property
    def waiting(self) -> bool:
        """Whether a worker is in the middle of an all-reduce."""
        return any(len(station.began) > len(station.outputs) for station in self.job.stations)

    def name(self, host: str) -> str:
        """Of the worker there."""
        return f"rank {self.job.members.index(host)} on {host}"

    @property
    def needs_lease(self) -> bool:
        """Whether it needs another one to go on, without workers that have ended."""
        return bool(self._dead) and bool(self.job.granted)

    def lacks(self, host: str) -> None:
        """The worker there has ended."""
        self._dead.add(host)

    def needs(self, link: Link) -> bool:
        """Whether one of the job's trees has both ends of it."""
        job = self.job
        parts = ({*job.members, *(part.switch for part in tree.aggregators)} for tree in job.trees)
        return bool(job.granted) and any({link.a.node, link.b.node} <= nodes for nodes in parts)

    def rests_on(self, switch: str) -> bool:
        """Whether it cannot go on in the network where this switch has lost its registers."""
        job = self.job
        return bool(job.granted) and any(rests_on(tree.aggregators, switch) for tree in job.trees)

    def end_lease(self, now: float, down: Sequence[Link], *, for_good: bool) -> str:
        """It is withdrawn. down: links that are known to be; for_good: no other lease would be better."""
        if self._dead:
            return self._go_on(now)
        if self._least is not None and not for_good:
            self._regroup(now)
            if not any(map(self.needs, down)):
                return self._state("the job has another lease")
        job = self.job
        job.revoke(lambda: None)
        sent = carry_on(
            job, ProgressSnapshot([kept_of(job, rank).finished for rank in range(len(job.members))]), now
        )
        return f"{_BY_RING}, {sent} of them sent a sum that others had" if sent else _BY_RING

    def check_those_left(self, now: float) -> None:
        """Of a job some of whose workers have ended.

        Raises:
            LeftError: they are too few.
        """
        job = self.job
        ended = "; ".join(f"{self.name(host)} ended" for host in self._ended)
        left = len(job.members) - len(self._dead)
        if self._least is None:
            first = next(
                s for s, host in zip(job.stations, job.members, strict=True) if host not in self._dead
            )
            raise LeftError(
                f"{ended} while others wait: {first.worker.outstanding(now) or 'for nothing yet'}"
            )
        if left < self._least:
            raise LeftError(f"{ended}; {left} are left, fewer than min_workers, {self._least}")

    def go_on_without(self, host: str, now: float) -> str:
        """The worker there, with another lease if the job has one.

        Raises:
            LeftError: too few are left.
        """
        if host in self._dead and self.ended:
            return GOES_ON
        return self._without.get(host) or self._go_on(now)

    @property
    def _ended(self) -> Sequence[str]:
        return sorted(self._dead, key=self.job.members.index)

    def _go_on(self, now: float) -> str:
        self.check_those_left(now)
        dead, total = self._ended, len(self.job.members)
        self._regroup(now)
        self._dead.clear()
        went = self._state(f"{len(self.job.members)} of {total} workers go on")
        self._without |= dict.fromkeys(dead, went)
        return went

    def _regroup(self, now: float) -> None:
        job = self.job
        staying = [rank for rank, host in enumerate(job.members) if host not in self._dead]
        job.regroup(staying, sums_of_all(job, staying), now)

    def _state(self, what: str) -> str:
        return what if self.job.by_ring is None else f"{what}; {_BY_RING}"
