"""What fails in a run, and what is done about it: as of a live network (docs/faults.md, experiments/live/watch.py).

The controller finds things when the scenario says so. What it then does takes no time, nor does what workers tell each
other to agree (workers/job/handover.py, workers/job/elastic.py), the result that those behind are sent among it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from controller.tree import rests_on
from experiments.results.faults import FaultOutcome
from experiments.scenario.tables.faults import Fault
from experiments.virtual.fabric import Cluster
from experiments.virtual.handover import carry_on, kept_of, sums_of_all
from topologies.model import Link
from topologies.virtual import SECOND
from workers.job.kept import Standing
from workers.job.membership import LeftError

_DIGITS = 12  # time is counted in picoseconds
_MOMENT = 1e-9  # seconds: of any link a part of its delay
_GOES_ON, _BY_RING = "the job goes on", "the hosts add up by ring"
_TOO_SHORT = "over before it was found; the job goes on"


@dataclass(slots=True)
class _Happening:
    """A fault. found: when, in seconds; None: it has not been. outcome: empty: nothing has been done about it."""

    fault: Fault
    what: str
    found: float | None = None
    outcome: str = ""


class Faults:
    """Of the job of a cluster.

    min_workers: it goes on as long as so many are left; None: as long as all are there.
    """

    def __init__(self, faults: Sequence[Fault], min_workers: int | None, cluster: Cluster) -> None:
        self._cluster, self._job = cluster, cluster.job
        self._least = min_workers
        self._due: list[tuple[float, int, Callable[[float], None]]] = []  # a heap: when, in which order, what
        self._down: set[Link] = set()
        self._known: list[Link] = []  # of those that the controller has found
        self._dead: set[str] = set()  # hosts of workers whose end nobody has found yet
        self._without: dict[str, str] = {}  # of those whose end was found: what the others did
        self._job_ended = False
        self._happenings = [_Happening(fault, self._describe(fault)) for fault in faults]
        free: dict[Link, float] = {}  # from when on its next period may be told
        for one in sorted(self._happenings, key=lambda one: one.fault.at):
            self._plan(one, free)

    def run(self, run: Callable[[float], bool], limit: float) -> bool:
        """`run` until a time (seconds), with what happens meanwhile: whether it came to its end.

        Raises:
            LeftError: a worker has ended, and the job with it.
        """
        while self._due and self._due[0][0] <= limit:
            if run(self._due[0][0]):
                self._job_ended = True
                return True
            time, _, happens = heapq.heappop(self._due)
            happens(max(time, round(self._cluster.network.now / SECOND, _DIGITS)))
        return run(limit)

    def outcomes(self, ends: Sequence[float]) -> tuple[FaultOutcome, ...]:
        """Of each fault, in the order of the scenario; ends: of all-reduces, in their order."""
        found = []
        for one in self._happenings:
            after = [end for end in ends if end > one.fault.at]
            late = "the job ended before it was found" if after else "the job had ended before"
            if one.fault.end is not None and any(end > one.fault.end for end in ends):
                late = _TOO_SHORT
            found.append(
                FaultOutcome(
                    what=one.what,
                    at=one.fault.at,
                    found=one.found,
                    outcome=one.outcome or late,
                    next_end=min(after, default=None),
                )
            )
        return tuple(found)

    def _describe(self, fault: Fault) -> str:
        if fault.link:
            return f"the link between {fault.link[0]} and {fault.link[1]} is down"
        if fault.switch:
            return f"{fault.switch} restarts"
        assert fault.worker
        return f"{self._name(fault.worker)} {'is stopped' if fault.duration else 'ends'}"

    def _name(self, host: str) -> str:
        return f"rank {self._job.members.index(host)} on {host}"

    # -- what happens ----------------------------------------------------------------------------------------

    def _plan(self, one: _Happening, free: dict[Link, float]) -> None:
        fault, network = one.fault, self._cluster.network
        if fault.link:
            link = self._cluster.topology.link_between(*fault.link)
            end = math.inf if fault.end is None else fault.end
            # Ahead of its time, for what will wait in queues then; once the one before has come up.
            ahead = min(free[link] + _MOMENT, fault.at) if link in free else 0.0
            self._at(ahead, lambda _: network.cut(link.a.node, link.b.node, fault.at, end))
            free[link] = end
            self._at(fault.at, lambda _: self._down.add(link))
            if fault.end is not None:
                self._at(end, lambda _: self._down.remove(link))
                self._at(end + fault.delay, lambda _: self._find_up(link))
            self._at(fault.at + fault.delay, partial(self._find_down, one, link))
        elif fault.switch:
            name = fault.switch
            self._at(fault.at, lambda _: self._cluster.empty_switch(name))
            self._at(fault.at + fault.delay, partial(self._find_restart, one, name))
        elif fault.worker and fault.end is None:
            host = fault.worker
            self._at(fault.at, lambda _: self._end_worker(host))
            self._at(fault.at + fault.delay, partial(self._find_end, one, host))
        elif fault.worker and fault.end is not None:
            network.stall(fault.worker, fault.at, fault.end)
            self._at(fault.at + fault.delay, partial(self._find_stopped, one, fault.worker, fault.end))

    def _at(self, time: float, happens: Callable[[float], None]) -> None:
        heapq.heappush(self._due, (round(time, _DIGITS), len(self._due), happens))

    def _end_worker(self, host: str) -> None:
        self._dead.add(host)
        self._cluster.vacate(host)

    # -- what is found ---------------------------------------------------------------------------------------

    def _find_down(self, one: _Happening, link: Link, now: float) -> None:
        if link not in self._down:
            one.outcome = _TOO_SHORT
            return
        self._known.append(link)
        self._reroute()
        one.found, one.outcome = now, _GOES_ON
        if self._needs(link):
            one.outcome = self._end_lease(now, for_good=_of_a_host(link))

    def _find_up(self, link: Link) -> None:
        if link in self._known and link not in self._down:
            self._known.remove(link)
            self._reroute()

    def _reroute(self) -> None:
        failed = [link for link in self._known if not _of_a_host(link)]
        self._cluster.reroute(self._cluster.topology.without(failed))

    def _find_restart(self, one: _Happening, switch: str, now: float) -> None:
        self._cluster.refill_switch(switch)
        one.found, one.outcome = now, _GOES_ON
        job = self._job
        if job.granted and any(rests_on(tree.aggregators, switch) for tree in job.trees):
            one.outcome = self._end_lease(now, for_good=False)

    def _find_end(self, one: _Happening, host: str, now: float) -> None:
        if self._job_ended:
            return
        one.found = now
        one.outcome = self._without.get(host) or self._go_on_without(now)

    def _find_stopped(self, one: _Happening, host: str, end: float, now: float) -> None:
        if now >= end:
            one.outcome = _TOO_SHORT
            return
        stopped = self._job.stations[self._job.members.index(host)]
        if any(len(station.began) > len(stopped.outputs) for station in self._job.stations):
            one.found, one.outcome = now, "the others wait for it"
        else:
            one.outcome = "nobody waited for it"

    # -- what is done ----------------------------------------------------------------------------------------

    def _needs(self, link: Link) -> bool:
        """Whether one of the job's trees has both ends of it."""
        job = self._job
        parts = ({*job.members, *(part.switch for part in tree.aggregators)} for tree in job.trees)
        return bool(job.granted) and any({link.a.node, link.b.node} <= nodes for nodes in parts)

    def _end_lease(self, now: float, *, for_good: bool) -> str:
        """The job's; for_good: no other would be better. What it does then."""
        if self._job_ended:
            return _GOES_ON
        if self._dead:
            return self._go_on_without(now)
        if self._least is not None and not for_good:
            self._regroup(now)
            if not any(map(self._needs, self._known)):
                return self._state("the job has another lease")
        job = self._job
        job.revoke(lambda: None)
        sent = carry_on(job, Standing([kept_of(job, rank).finished for rank in range(len(job.members))]), now)
        return f"{_BY_RING}, {sent} of them sent a sum that others had" if sent else _BY_RING

    def _go_on_without(self, now: float) -> str:
        """Those who have ended."""
        job, dead = self._job, sorted(self._dead, key=self._job.members.index)
        ended = "; ".join(f"{self._name(host)} ended" for host in dead)
        total = len(job.members)
        if self._least is None:
            first = next(s for s, host in zip(job.stations, job.members, strict=True) if host not in dead)
            raise LeftError(
                f"{ended} while others wait: {first.worker.outstanding(now) or 'for nothing yet'}"
            )
        left = total - len(dead)
        if left < self._least:
            raise LeftError(f"{ended}; {left} are left, fewer than min_workers, {self._least}")
        self._regroup(now)
        self._dead.clear()
        went = self._state(f"{left} of {total} workers go on")
        self._without |= dict.fromkeys(dead, went)
        return went

    def _regroup(self, now: float) -> None:
        job = self._job
        staying = [rank for rank, host in enumerate(job.members) if host not in self._dead]
        job.regroup(staying, sums_of_all(job, staying), now)

    def _state(self, what: str) -> str:
        return what if self._job.by_ring is None else f"{what}; {_BY_RING}"


def _of_a_host(link: Link) -> bool:
    return 0 in (link.a.port, link.b.port)
