"""Recovery of a job that loses its lease or some of its workers: the remaining workers end with the same sums.

Each worker reports how many all-reduces it has finished. Those behind receive the result that others have. The next
all-reduce, or the one under way, uses the ring (workers/job/ring_fallback.py) or is done by a smaller group
(workers/job/elastic.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fanin.controller.tree import rests_on
from fanin.simulator.fabric import Job
from fanin.simulator.hosts.stations import Vector
from fanin.topologies.model import Link
from fanin.workers.job.membership import LeftError
from fanin.workers.job.retained_results import ProgressSnapshot, RetainedResult

GOES_ON, _BY_RING = "the job continues", "the hosts sum using the ring"


def retained_result_of(job: Job, rank: int) -> RetainedResult:
    """Return what a worker keeps of its sums, in a job that can fall back to the ring."""
    kept = job.stations[rank].kept
    assert kept is not None
    return kept


def carry_on(job: Job, progress: ProgressSnapshot, now: float) -> int:
    """Continue a stopped job using the ring, with the same number of finished all-reduces on all workers.

    Returns:
        The number of workers that were sent a result for that.
    """
    outputs = [list(station.outputs) for station in job.stations]
    for rank in progress.behind:
        outputs[rank].append(retained_result_of(job, progress.giver).last.copy())
    job.carry_on(outputs, now)
    return len(progress.behind)


def sums_of_all(job: Job, staying: Collection[int]) -> list[list[Vector]]:
    """Return the sums of each rank that stays, after all of them have finished the same all-reduces."""
    stations = job.stations
    progress = ProgressSnapshot(
        [len(one.outputs) if rank in staying else None for rank, one in enumerate(stations)]
    )
    outputs = {rank: list(stations[rank].outputs) for rank in staying}
    for rank in progress.behind:
        outputs[rank].append(stations[progress.giver].outputs[-1].copy())
    return list(outputs.values())


class JobUnderFaults:
    """A job in a network with faults. Its methods report in a few words what the workers do.

    Args:
        job: The job.
        min_workers: The job continues while this many workers remain. None requires all of them.
    """

    def __init__(self, job: Job, min_workers: int | None) -> None:
        self.job = job
        self._least = min_workers
        self._dead: set[str] = set()  # hosts of ended workers that are still in the job
        self._without: dict[str, str] = {}  # by host of a worker that was removed: what the others did

    @property
    def ended(self) -> bool:
        """Return whether all its workers have all their sums."""
        return all(station.finished for station in self.job.stations)

    @property
    def waiting(self) -> bool:
        """Return whether a worker is in the middle of an all-reduce."""
        return any(len(station.began) > len(station.outputs) for station in self.job.stations)

    def name(self, host: str) -> str:
        """Return the name of the worker on a host, for messages."""
        return f"rank {self.job.members.index(host)} on {host}"

    @property
    def needs_lease(self) -> bool:
        """Return whether the job needs another lease to continue without workers that have ended."""
        return bool(self._dead) and bool(self.job.granted)

    def lacks(self, host: str) -> None:
        """Note that the worker on a host has ended."""
        self._dead.add(host)

    def needs(self, link: Link) -> bool:
        """Return whether one of the job's trees contains both ends of a link."""
        job = self.job
        parts = ({*job.members, *(part.switch for part in tree.aggregators)} for tree in job.trees)
        return bool(job.granted) and any({link.a.node, link.b.node} <= nodes for nodes in parts)

    def rests_on(self, switch: str) -> bool:
        """Return whether the job cannot continue in the network if this switch has lost its registers."""
        job = self.job
        return bool(job.granted) and any(rests_on(tree.aggregators, switch) for tree in job.trees)

    def end_lease(self, now: float, down: Sequence[Link], *, for_good: bool) -> str:
        """Revoke the job's lease and let the workers continue.

        Args:
            now: Time in seconds.
            down: Links that are known to be down.
            for_good: Whether no other lease would be better, so that the job falls back to the ring.

        Returns:
            What the workers do now, in a few words.
        """
        if self._dead:
            return self._go_on(now)
        if self._least is not None and not for_good:
            self._regroup(now)
            if not any(map(self.needs, down)):
                return self._state("the job has another lease")
        job = self.job
        job.revoke(lambda: None)
        sent = carry_on(
            job,
            ProgressSnapshot([retained_result_of(job, rank).finished for rank in range(len(job.members))]),
            now,
        )
        return f"{_BY_RING}, {sent} of them sent a sum that others had" if sent else _BY_RING

    def check_those_left(self, now: float) -> None:
        """Check that the job can continue without the workers that have ended.

        Raises:
            LeftError: Too few workers remain.
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
        """Continue without the worker on a host, with another lease if the job has one.

        Returns:
            What the workers do now, in a few words.

        Raises:
            LeftError: Too few workers remain.
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
        went = self._state(f"{len(self.job.members)} of {total} workers continue")
        self._without |= dict.fromkeys(dead, went)
        return went

    def _regroup(self, now: float) -> None:
        job = self.job
        staying = [rank for rank, host in enumerate(job.members) if host not in self._dead]
        job.regroup(staying, sums_of_all(job, staying), now)

    def _state(self, what: str) -> str:
        return what if self.job.by_ring is None else f"{what}; {_BY_RING}"
