"""What fails in a run, and what is done about it: as of a live network (docs/how-to/faults.md, testbed/supervisor.py).

The controller finds things when the scenario says so, once it has been there for so long. What it then does takes no
time, nor does what workers tell each other to agree (workers/job/ring_fallback.py, workers/job/elastic.py), the result
that those behind are sent among it. Who has ended, or is stopped, workers learn from each other, without a controller.
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
_MOMENT = 1e-9  # seconds: of any link a part of its delay
_TOO_SHORT = "over before it was found; the job goes on"


@dataclass(slots=True)
class _Happening:
    """A fault. found: when, in seconds; None: it has not been. outcome: empty: nothing has been done about it.

    beside: what the other job does, if it does something.

    waiting: of a controller that is gone, what was found, or something was done about, once it was back.
    """

    fault: Fault
    what: str
    found: float | None = None
    outcome: str = ""
    beside: str = ""
    waiting: list[str] = field(default_factory=list)

    @property
    def end(self) -> float:
        """In seconds, math.inf: never."""
        return math.inf if self.fault.end is None else self.fault.end


class Faults:
    """Of `jobs` on `cluster`: the one whose workers may fail, and of which outcomes tell first, and another one."""

    def __init__(self, faults: Sequence[Fault], jobs: Sequence[JobUnderFaults], cluster: Cluster) -> None:
        self._cluster, self._jobs, self._job = cluster, jobs, jobs[0]
        self._due: list[tuple[float, int, Callable[[float], None]]] = []  # a heap: when, in which order, what
        self._numbers = itertools.count()
        self._down: set[Link] = set()
        self._known: list[Link] = []  # of those that the controller has found
        self._happenings = [_Happening(fault, self._describe(fault)) for fault in faults]
        in_order = sorted(self._happenings, key=lambda one: one.fault.at)
        self._absences = [one for one in in_order if one.fault.controller]
        free: dict[Link, float] = {}  # from when on its next period may be told
        for one in in_order:
            self._plan(one, free)

    def run(self, run: Callable[[float], bool], limit: float) -> bool:
        """`run` until a time (seconds), with what happens meanwhile: whether it came to its end.

        Raises:
            LeftError: a worker has ended, and the job with it.
        """
        while self._due and self._due[0][0] <= limit:
            if run(self._due[0][0]):
                return True
            time, _, happens = heapq.heappop(self._due)
            happens(max(time, round(self._cluster.network.now / SECOND, _DIGITS)))
        return run(limit)

    def outcomes(self, ends: Sequence[float]) -> tuple[FaultOutcome, ...]:
        """Of each fault, in the order of the scenario; ends: of all-reduces, in their order."""
        found = []
        for one in self._happenings:
            after = [end for end in ends if end > one.fault.at]
            if one.fault.controller and one.found is not None:
                one.outcome = (
                    f"waited for it: {'; '.join(one.waiting)}" if one.waiting else "nothing waited for it"
                )
            late = "the job ended before it was found" if after else "the job had ended before"
            if one.fault.controller and after:
                late = "the job ended before it was back"
            elif any(end > one.end for end in ends):
                late = _TOO_SHORT
            found.append(
                FaultOutcome(
                    what=one.what,
                    at=one.fault.at,
                    found=one.found,
                    outcome=(one.outcome or late) + one.beside,
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
            # Ahead of its time, for what will wait in queues then; once the one before has come up.
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
        """math.inf: never."""
        if time < math.inf:
            heapq.heappush(self._due, (round(time, _DIGITS), next(self._numbers), happens))

    def _end_worker(self, host: str) -> None:
        self._job.lacks(host)
        self._cluster.vacate(host)

    # -- the controller --------------------------------------------------------------------------------------

    def _finds(self, since: float, delay: float) -> float:
        """When the controller finds what is so since then: a new one has to look for as long as any other."""
        for absence in self._absences:
            if absence.fault.at <= since + delay and absence.end > since:
                since = absence.end
        return since + delay

    def _next_there(self, now: float) -> float:
        """When the controller is, from now on."""
        gone = [absence.end for absence in self._absences if absence.fault.at <= now < absence.end]
        return gone[0] if gone else now

    def _has_waited(self, one: _Happening, since: float, until: float) -> None:
        """For the controller, should that have been gone meanwhile."""
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
        if link not in self._known:  # since it was down before
            self._known.append(link)
            self._reroute()
        self._find(one, now, lambda job: job.needs(link), for_good=_of_a_host(link))

    def _find(
        self, one: _Happening, now: float, ends: Callable[[JobUnderFaults], bool], *, for_good: bool
    ) -> None:
        """ends: whether a job's lease does. for_good: see JobUnderFaults.end_lease."""
        one.found = now
        self._has_waited(one, one.fault.at, now)
        for job in self._jobs:
            if job.ended:
                continue
            done = job.end_lease(now, self._known, for_good=for_good) if ends(job) else GOES_ON
            if job is self._job:
                one.outcome = done
            elif done != GOES_ON:
                one.beside = f"; the other job: {done}"

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
