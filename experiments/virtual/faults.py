"""Faults of a run and the reactions to them, as in a live network (docs/how-to/faults.md, testbed/supervisor.py).

The controller detects a fault after the time that the scenario sets, if it has lasted that long. What it then does
takes no time. The same is true of the messages by which workers agree (workers/job/ring_fallback.py,
workers/job/elastic.py), including the result that is sent to workers that lag behind. Workers notice by themselves,
without a controller, when others have ended or are stopped.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from fanin.experiments.results.faults import FaultOutcome
from fanin.experiments.scenario.tables.faults import Fault
from fanin.simulator import SECOND
from fanin.simulator.fabric import Cluster
from fanin.simulator.fault_recovery import GOES_ON, JobUnderFaults
from fanin.topologies.model import Link

_DIGITS = 12  # time is counted in picoseconds
_MOMENT = 1e-9  # seconds, less than the delay of any link
_TOO_SHORT = "over before it was detected; the job continues"


@dataclass(slots=True)
class _Happening:
    """A fault and what became of it.

    Attributes:
        fault: The fault.
        what: Its description.
        found: When it was detected, in seconds; None if it has not been.
        outcome: What was done about it; empty if nothing has been.
        other_job: What the other job did about it, if anything.
        waiting: For a controller that is gone: faults that were only detected or handled once it was back.
    """

    fault: Fault
    what: str
    found: float | None = None
    outcome: str = ""
    other_job: str = ""
    waiting: list[str] = field(default_factory=list)

    @property
    def end(self) -> float:
        """Return when the fault ends in seconds; math.inf means never."""
        return math.inf if self.fault.end is None else self.fault.end


class Faults:
    """The faults of jobs on a cluster.

    Args:
        faults: The faults.
        jobs: The measured job, whose workers may fail and whose reactions come first in outcomes, and another job, if
            any.
        cluster: The cluster.
    """

    def __init__(self, faults: Sequence[Fault], jobs: Sequence[JobUnderFaults], cluster: Cluster) -> None:
        self._cluster, self._jobs, self._job = cluster, jobs, jobs[0]
        self._due: list[tuple[float, int, Callable[[float], None]]] = []  # a heap: when, in which order, what
        self._numbers = itertools.count()
        self._down: set[Link] = set()
        self._known: list[Link] = []  # links that the controller knows to be down
        self._happenings = [_Happening(fault, self._describe(fault)) for fault in faults]
        in_order = sorted(self._happenings, key=lambda one: one.fault.at)
        self._absences = [one for one in in_order if one.fault.controller]
        free: dict[Link, float] = {}  # when a link's next fault may be passed to the network
        for one in in_order:
            self._plan(one, free)

    def run(self, run: Callable[[float], bool], limit: float) -> bool:
        """Run until a time (seconds) with all faults in between, and return whether the run has ended.

        Args:
            run: Runs until a time and returns whether the run has ended.
            limit: The time.

        Raises:
            LeftError: If a worker has ended, and the job with it.
        """
        while self._due and self._due[0][0] <= limit:
            if run(self._due[0][0]):
                return True
            time, _, happens = heapq.heappop(self._due)
            happens(max(time, round(self._cluster.network.now / SECOND, _DIGITS)))
        return run(limit)

    def outcomes(self, ends: Sequence[float]) -> tuple[FaultOutcome, ...]:
        """Return the outcome of each fault, in the order of the scenario.

        Args:
            ends: The ends of all-reduces, in order.
        """
        found = []
        for one in self._happenings:
            after = [end for end in ends if end > one.fault.at]
            if one.fault.controller and one.found is not None:
                one.outcome = (
                    f"waited for it: {'; '.join(one.waiting)}" if one.waiting else "nothing waited for it"
                )
            late = "the job ended before it was detected" if after else "the job had ended before"
            if one.fault.controller and after:
                late = "the job ended before it was back"
            elif any(end > one.end for end in ends):
                late = _TOO_SHORT
            found.append(
                FaultOutcome(
                    what=one.what,
                    at=one.fault.at,
                    found=one.found,
                    outcome=(one.outcome or late) + one.other_job,
                    next_end=min(after, default=None),
                )
            )
        return tuple(found)

    def _describe(self, fault: Fault) -> str:
        if fault.link:
            return f"the link between {fault.link[0]} and {fault.link[1]} is down"
        if fault.switch:
            return f"{fault.switch} restarts"
        if fault.controller:
            return "the controller is gone"
        assert fault.worker
        return f"{self._job.name(fault.worker)} {'is stopped' if fault.duration else 'ends'}"

    # -- what happens ----------------------------------------------------------------------------------------

    def _plan(self, one: _Happening, free: dict[Link, float]) -> None:
        fault, network = one.fault, self._cluster.network
        if fault.link:
            link = self._cluster.topology.link_between(*fault.link)
            # Announce the cut ahead of time, for packets that will then wait in queues, but after an earlier cut ends.
            ahead = min(free[link] + _MOMENT, fault.at) if link in free else 0.0
            self._at(ahead, lambda _: network.cut(link.a.node, link.b.node, fault.at, one.end))
            free[link] = one.end
            self._at(fault.at, lambda _: self._down.add(link))
            self._at(one.end, lambda _: self._down.remove(link))
            self._at(self._finds(one.end, fault.delay), lambda _: self._find_up(link))
            self._at(self._finds(fault.at, fault.delay), partial(self._find_down, one, link))
        elif fault.switch:
            name = fault.switch
            self._at(fault.at, lambda _: self._cluster.empty_switch(name))
            self._at(self._finds(fault.at, fault.delay), partial(self._find_restart, one, name))
        elif fault.controller:
            self._at(one.end, partial(self._come_back, one))
        elif fault.worker and fault.end is None:
            host = fault.worker
            self._at(fault.at, lambda _: self._end_worker(host))
            self._at(fault.at + fault.delay, partial(self._find_end, one, host))
        elif fault.worker:
            network.stall(fault.worker, fault.at, one.end)
            self._at(fault.at + fault.delay, partial(self._find_stopped, one))

    def _at(self, time: float, happens: Callable[[float], None]) -> None:
        """Plan something for a time; math.inf means never."""
        if time < math.inf:
            heapq.heappush(self._due, (round(time, _DIGITS), next(self._numbers), happens))

    def _end_worker(self, host: str) -> None:
        self._job.lacks(host)
        self._cluster.vacate(host)

    # -- the controller --------------------------------------------------------------------------------------

    def _finds(self, since: float, delay: float) -> float:
        """Return when the controller detects something that began at `since`; a new one needs the full delay again."""
        for absence in self._absences:
            if absence.fault.at <= since + delay and absence.end > since:
                since = absence.end
        return since + delay

    def _next_there(self, now: float) -> float:
        """Return when the controller is running, from now on."""
        gone = [absence.end for absence in self._absences if absence.fault.at <= now < absence.end]
        return gone[0] if gone else now

    def _has_waited(self, one: _Happening, since: float, until: float) -> None:
        """Record that a fault waited for the controller, if that was gone in the meantime."""
        for absence in self._absences:
            if absence.fault.at <= until and absence.end > since:
                absence.waiting.append(one.what)

    def _come_back(self, one: _Happening, now: float) -> None:
        if not all(job.ended for job in self._jobs):
            one.found = now

    # -- what is found ---------------------------------------------------------------------------------------

    def _find_down(self, one: _Happening, link: Link, now: float) -> None:
        if link not in self._down:
            one.outcome = _TOO_SHORT
            return
        if link not in self._known:  # it may be known from an earlier fault
            self._known.append(link)
            self._reroute()
        self._find(one, now, lambda job: job.needs(link), for_good=_of_a_host(link))

    def _find(
        self, one: _Happening, now: float, ends: Callable[[JobUnderFaults], bool], *, for_good: bool
    ) -> None:
        """Record that the controller has detected a fault, and let jobs react.

        Args:
            one: The fault.
            now: The time.
            ends: Returns whether a job loses its lease.
            for_good: See JobUnderFaults.end_lease.
        """
        one.found = now
        self._has_waited(one, one.fault.at, now)
        for job in self._jobs:
            if job.ended:
                continue
            done = job.end_lease(now, self._known, for_good=for_good) if ends(job) else GOES_ON
            if job is self._job:
                one.outcome = done
            elif done != GOES_ON:
                one.other_job = f"; the other job: {done}"

    def _find_up(self, link: Link) -> None:
        if link in self._known and link not in self._down:
            self._known.remove(link)
            self._reroute()

    def _reroute(self) -> None:
        failed = [link for link in self._known if not _of_a_host(link)]
        self._cluster.reroute(self._cluster.topology.without(failed))

    def _find_restart(self, one: _Happening, switch: str, now: float) -> None:
        self._cluster.refill_switch(switch)
        self._find(one, now, lambda job: job.rests_on(switch), for_good=False)

    def _find_end(self, one: _Happening, host: str, now: float) -> None:
        if self._job.ended:
            return
        one.found, one.outcome = now, GOES_ON
        self._job.check_those_left(now)

        if self._job.needs_lease and (there := self._next_there(now)) > now:
            self._at(there, lambda later: self._has_waited(one, now, later))
            self._at(there, partial(self._go_on_without, one, host))
        else:
            self._go_on_without(one, host, now)

    def _go_on_without(self, one: _Happening, host: str, now: float) -> None:
        one.outcome = self._job.go_on_without(host, now)

    def _find_stopped(self, one: _Happening, now: float) -> None:
        if now >= one.end:
            one.outcome = _TOO_SHORT
        elif self._job.waiting:
            one.found, one.outcome = now, "the others wait for it"
        else:
            one.outcome = "nobody waited for it"


def _of_a_host(link: Link) -> bool:
    return 0 in (link.a.port, link.b.port)
