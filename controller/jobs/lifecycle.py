"""The life of a network's jobs after all their workers have joined: in the queue, with a lease, and ended."""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from fanin.controller.errors import ControllerError
from fanin.controller.jobs.budget import NoRoomError
from fanin.controller.jobs.reports import Heard, Reporting, state_of
from fanin.native.text import MAX_NAME, printable

_logger = logging.getLogger(__name__)

_REVOKED = "its lease was revoked"
_REPORTS_SECONDS = 0.3  # time in which all waiting workers report their call (workers/job/calls.py)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """The request for a job, the same from all its workers.

    Attributes:
        hosts: The hosts, by rank.
        name: The job's name. None: the only job of these hosts without a name.
        slots: Number of slots. None: as many as suit the network.
        ring: Whether the job continues with the ring between the hosts when it has no lease. If not, it waits for one.
        min_workers: The job continues, in groups (see _Job), as long as this many workers are left. None: it needs all.
            A job with groups always uses the ring when it has no lease.
        per_host: Number of workers on each host. The first one of a host takes part in the lease; the ranks of a host
            follow each other.
        slot_share: If `slots` is None, the job gets at most 1/slot_share of the slots that are free. None: no limit.
    """

    hosts: tuple[str, ...]
    name: str | None = None
    slots: int | None = None
    ring: bool = False
    min_workers: int | None = None
    per_host: int = 1
    slot_share: int | None = None

    def __str__(self) -> str:
        slots = "" if self.slots is None else f" with {self.slots} slots"
        share = "" if self.slot_share is None else f" with at most 1/{self.slot_share} of the free slots"
        ring = ", using the ring if needed" if self.ring else ""
        least = "" if self.min_workers is None else f", at least {self.min_workers} of them"
        each = "" if self.per_host == 1 else f", {self.per_host} workers on each"
        return f"{', '.join(self.hosts)}{each}{slots}{share}{ring}{least}"


class JobLease(Protocol):
    """The lease of a job on the network, from the job's beginning to its end."""

    async def grant(self) -> None:
        """Get the job a lease.

        Raises:
            NoRoomError: If other jobs have to end first.
            ControllerError: If the job can never get one, or a switch refuses.
        """

    def assignment(self, host: str) -> Mapping[str, Any]:
        """Return everything that the worker on `host` needs, in JSON's types, including the lease if there is one."""

    def lease(self) -> Mapping[str, Any]:
        """Return what is granted, for display."""

    async def withdraw(self) -> None:
        """Take the lease back, if the job has one."""

    def close(self) -> None:
        """Free the job's place, since it has no workers left."""


State = Literal["queued", "in network", "using the ring", "revoked"]
Open = Callable[[JobRequest], JobLease]


class Member(Reporting, Protocol):
    """A worker of a job.

    Attributes:
        finished: What it reports after the lease is revoked (workers/job/ring_fallback.py), or in a round in which a
            group forms (workers/job/elastic.py).
        meeting: Whether it is in regroup(), and waits for the answer.
        mates: All workers of its job, by rank.
        leaving: Whether it will end once the others have what it has finished.
        refusal: The number of its last call that it refused before it sent anything, and the error; 0: there was none.
        failure: The error of a failed call, after which it makes no other; empty if there is none.
    """

    finished: Any
    meeting: bool
    mates: Any
    leaving: bool
    refusal: tuple[int, str]
    failure: str

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send the worker a message."""

    def dismiss(self, why: str) -> None:
        """Tell the worker that it has no job, and why."""


@dataclass(eq=False, slots=True)
class _Job:
    """A job whose workers have all joined.

    If the request has min_workers, its members form groups, one after the other. When a member ends, or the lease is
    revoked, the remaining members get the order to stop and report what they have finished. They then receive the next
    group, which has its own lease. Once all of a group are in regroup(), workers that have come in the meantime with
    the same request join it.

    Attributes:
        name: The job's name.
        request: The request, with the hosts of the last group.
        members: The members, or those of the last group, by rank.
        candidate: The job's place or lease.
        asked: The request that its first members made.
        state: What the job does.
        why: Why it waits, or has no lease.
        place: Its place in the queue; 0 if it is not there.
        revoked: Why its lease was revoked; empty if it was not.
        aborted: Why its workers make no more calls; empty while they can.
        round: How often members were asked to stop.
        since: When all workers had joined, in seconds of the Unix epoch.
        look: Set when something may have changed for the job.
    """

    name: str
    request: JobRequest
    members: Sequence[Member]
    candidate: JobLease
    asked: JobRequest
    state: State = "queued"
    why: str = ""
    place: int = 0
    revoked: str = ""
    aborted: str = ""
    round: int = 0
    since: float = field(default_factory=time.time)
    look: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, message: Mapping[str, Any]) -> None:
        for member in self.members:
            member.tell(message)

    def log(self, level: int, what: str) -> None:
        """Log an event of the job."""
        lease = self.candidate.lease()["lease"]
        _logger.log(level, "%s", what, extra={"job": self.name, "lease": lease, "hosts": self.request.hosts})

    @property
    def senders(self) -> Sequence[Member]:
        """Return the first member of each host, which takes part in the lease, by host."""
        return [member for member in self.members if not member.local]

    def document(self) -> Mapping[str, Any]:
        """Return the description of the job for clients. `since` is in seconds of the Unix epoch."""
        return {
            "name": self.name,
            "hosts": self.request.hosts,
            "per_host": self.request.per_host,
            "processes": [member.process for member in self.members],
            "workers": [state_of(member) for member in self.members],
            "state": self.state,
            "place": self.place,
            "why": self.why,
            "aborted": self.aborted,
            "since": self.since,
            "ring": self.request.ring,
            **self.candidate.lease(),
        }

    def there(self) -> Sequence[Member]:
        """Return the members that have not left."""
        return [member for member in self.members if not member.left.is_set()]

    def must_regroup(self) -> bool:
        """Return whether the group has changed, or has lost its lease."""
        if self.request.min_workers is None:
            return False
        return bool(self.revoked) or any(member.left.is_set() or member.leaving for member in self.members)

    def meets(self) -> bool:
        """Return whether all of the group are in regroup()."""
        return self.request.min_workers is not None and all(member.meeting for member in self.members)

    def callers(self, member: Member) -> dict[str, list[Member]]:
        """Return the members that wait in a call with the same number as this one's, by the call's text."""
        found: dict[str, list[Member]] = {}
        for each in self.there():
            if each.call[0] == member.call[0]:
                found.setdefault(each.call[1], []).append(each)
        return found

    def refuser(self) -> Member | None:
        """Return a member that has refused a call in which another one waits; None if there is none."""
        there = self.there()
        waiting = {each.call[0] for each in there if each.call[0]}
        return next((each for each in there if each.refusal[0] in waiting), None)

    def gone(self) -> Member | None:
        """Return a member that has left; None if all are there."""
        return next((member for member in self.members if member.left.is_set()), None)


class Jobs:
    """All jobs of a network: grants them leases in the order in which they come, or lets them wait.

    Args:
        open_job: Opens the lease of a job.
        report: Receives errors that nobody waits for.
        waiting: Returns the workers with this request that are in no job.
    """

    def __init__(
        self,
        open_job: Open,
        report: Callable[[str], None],
        waiting: Callable[[JobRequest], Sequence[Member]],
    ) -> None:
        self._open = open_job
        self._report = report
        self._waiting = waiting
        self._present: list[_Job] = []
        self._queue: list[_Job] = []
        self._granting = asyncio.Lock()  # a job that ends makes room before the next one is granted
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)

    def begin(self, request: JobRequest, members: Sequence[Member], asked: JobRequest) -> None:
        """Begin a job whose workers have all joined.

        Args:
            request: The request, with the hosts of the members.
            members: The members, by rank.
            asked: The members' own request, which may include more hosts.
        """
        name = request.name or f"job-{next(self._numbers)}"
        job = _Job(name, request, members, self._open(request), asked)
        self._present.append(job)
        job.log(logging.INFO, "all workers have joined")
        self._start(self._hold(job))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def look(self) -> None:
        """Check all jobs: a member may have left, or have sent a message."""
        for job in self._present:
            job.look.set()
            self._hand_over(job)

    def fail(self, member: Member) -> None:
        """End the calls of a member's job after one of them failed; in a job with groups only the member leaves."""
        for job in self._of(member):
            if job.request.min_workers is None:
                self._abort(job, f"{_named(job, member)} {member.failure}", [member])
            else:
                member.dismiss(member.failure)

    def compare(self, member: Member) -> None:
        """Compare a member's call with those of the others. If they differ, or one is refused, end the job's calls."""
        for job in self._of(member):
            if refuser := job.refuser():
                self._abort(job, f"{_named(job, refuser)} {refuser.refusal[1]}", [refuser])
            elif not job.aborted and len(job.callers(member)) > 1:
                self._start(self._abort_differing(job, member))

    async def _abort_differing(self, job: _Job, member: Member) -> None:
        await asyncio.sleep(_REPORTS_SECONDS)
        callers = sorted(job.callers(member).items(), key=lambda each: len(each[1]))
        if len(callers) < 2:  # the others have left
            return
        said = [f"{_and([_named(job, each) for each in members])}: {what}" for what, members in callers]
        if len(callers) == 2 and len(callers[0][1]) < len(callers[1][1]):
            said[1] = f"the others: {callers[1][0]}"
        self._abort(job, f"the workers make different calls. {'; '.join(said)}", callers[0][1])

    def _of(self, member: Member) -> list[_Job]:
        """Return the job of a member, as a list."""
        return [job for job in self._present if member in job.members]

    def _abort(self, job: _Job, why: str, causes: Sequence[Member]) -> None:
        """Tell all workers of a job that its calls have ended because of some; does nothing the second time."""
        if not job.aborted:
            job.aborted = why
            job.log(logging.WARNING, why)
            job.tell({"aborted": why, "ranks": [job.members.index(cause) for cause in causes]})

    def documents(self) -> list[Mapping[str, Any]]:
        """Return the descriptions of all jobs, in the order of their beginning."""
        return [job.document() for job in self._present]

    def times(self, name: str) -> list[list[dict[str, Any]]]:
        """Return the times of the last calls of each worker of the job called `name`, by rank.

        Raises:
            ControllerError: If there is no such job.
        """
        members = self._named(name).members
        return [[each.model_dump() for each in member.heard.times] for member in members]

    def _named(self, name: str) -> _Job:
        found = [job for job in self._present if job.name == name]
        if not found:
            there = ", ".join(job.name for job in self._present) or "none"
            raise ControllerError(f"no job is called {printable(name[:MAX_NAME])}; there are: {there}")
        return found[-1]  # an earlier one of the same name may just be ending

    async def revoke(self, name: str) -> None:
        """Take the lease, or the place in the queue, from the job of this name; it gets no other one.

        Raises:
            ControllerError: If there is no such job, it has no lease, or a switch does not answer; that switch loses
                the lease when it is back.
        """
        job = self._named(name)
        if job.state not in ("queued", "in network"):
            raise ControllerError(f"{name} has no lease: it is {job.state} ({job.why})")
        if job.state == "queued":
            job.revoked = _REVOKED
            job.look.set()
            return
        await self._take_back(job, _REVOKED, for_good=True)

    async def end_lease(self, lease: int, why: str, *, for_good: bool) -> None:
        """Stop aggregation under a lease. If its job has ended in the meantime, there is nothing to do.

        Args:
            lease: The lease's id.
            why: Why the lease ends.
            for_good: Whether another lease would not help. If false, a job with groups (see _Job) is granted another
                one.

        Raises:
            ControllerError: If a switch does not answer; it loses the lease when it is back.
        """
        for job in self._present:
            if job.state == "in network" and job.candidate.lease()["lease"] == lease:
                await self._take_back(job, why, for_good=for_good or job.request.min_workers is None)
                return

    async def _take_back(self, job: _Job, why: str, *, for_good: bool) -> None:
        job.revoked = why
        if for_good:
            self._lose(job, why)
        else:
            job.log(logging.WARNING, why)
        if job.request.min_workers is None:
            for member in job.senders:
                member.tell({"revoked": why})
        try:
            async with self._granting:
                await job.candidate.withdraw()
        finally:
            self.look()

    def _hand_over(self, job: _Job) -> None:
        """Send all senders everybody's numbers, once all that have not left have reported what they have finished."""
        if job.state != "using the ring" or not job.revoked or job.request.min_workers is not None:
            return
        senders = job.senders
        if all(member.finished is not None or member.left.is_set() for member in senders):
            for member in senders:
                member.tell({"carry_on": [None if m.left.is_set() else m.finished for m in senders]})
            job.revoked = ""  # so that it is sent only once

    def _lose(self, job: _Job, why: str) -> None:
        job.log(logging.WARNING, why)
        job.state, job.why = ("using the ring" if job.request.ring else "revoked"), why

    async def close(self) -> None:
        """End all jobs, since the network ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _hold(self, job: _Job) -> None:
        """Run one job, from its grant to its end."""
        try:
            try:
                await self._grant(job)
                job.state, job.why = "in network", ""
                job.log(logging.INFO, "begins in the network")
            except ControllerError as error:
                if not job.request.ring:
                    self._dismiss(job, str(error))
                    return
                self._lose(job, str(error))
            job.revoked = ""
            if gone := job.gone():
                self._dismiss(job, _ended_early(gone))
            else:
                for member in job.members:
                    member.tell({**self._assignment(job, member), "job": job.name})
            while job.there():
                job.look.clear()
                if job.must_regroup():
                    await self._regroup(job)
                elif job.meets():
                    await self._meet(job)
                else:
                    await job.look.wait()
            await self._withdraw(job)
        except Exception as error:  # the supervisor of the controller finds it in the log
            self._dismiss(job, str(error) or repr(error))
            job.log(logging.ERROR, f"has lost its controller: {error}")
        finally:
            job.candidate.close()
            self._present.remove(job)
            job.log(logging.INFO, "has ended")
            self.look()

    def _assignment(self, job: _Job, member: Member) -> dict[str, Any]:
        assignment = job.candidate.assignment(member.host)
        return {
            **assignment,
            "rank": assignment["rank"] * job.request.per_host + member.local,
            "config": None if member.local else assignment["config"],
            "hosts": job.request.hosts,
            "refused": job.why,
            "processes": [each.process for each in job.members if each.host == member.host],
        }

    async def _meet(self, job: _Job) -> None:
        """Handle regroup() of all members: hold a round if workers wait to join, else tell them that none does."""
        if joining := self._waiting(job.asked):
            await self._regroup(job, joining)
            return
        for member in job.members:
            member.meeting = False
        job.tell({"met": job.round})

    async def _regroup(self, job: _Job, joining: Sequence[Member] = ()) -> None:
        """Hold one round: the members stop, report what they have finished, and get a new lease.

        Joining workers come after the others, and begin with what follows regroup(). If a member ends during the round,
        another round follows.
        """
        there = job.there()
        staying = [member for member in there if not member.leaving]
        too_few = self._too_few(job, staying)
        if too_few and len(staying) == len(there):
            job.members = there
            self._dismiss(job, too_few)
            while job.there():
                await job.look.wait()
                job.look.clear()
            return
        job.round += 1
        joins = [f"process {member.process} on {member.host} has joined" for member in joining]
        why = "; ".join([*_ends(job.members), *([job.revoked] if job.revoked else []), *joins])
        for member in there:
            member.finished = None
            member.meeting = False
            member.tell({"regroup": {"round": job.round, "why": why}})
        if not await self._all_have_finished(job, there):
            return
        job.revoked = ""
        if not too_few:
            await self._grant_again(job, tuple(member.host for member in (*staying, *joining)))
            if any(member.left.is_set() for member in there):
                job.members = there
                return
        finished = [[member.host, *member.finished] for member in there]
        for member in there:
            stays = member in staying and not too_few
            member.heard = Heard()  # what it counts begins again
            group = self._assignment(job, member) if stays else {"refused": too_few or "it is leaving"}
            said = {"round": job.round, "finished": finished, "joined": bool(joining), **group}
            member.tell({"group": said})
        job.members = [] if too_few else [*staying, *joining]
        for member in joining:
            begun = there[0].finished[0] + 1  # as many as the others, with this regroup()
            said = {**self._assignment(job, member), "job": job.name}
            member.tell({**said, "round": job.round, "begun": begun})
        for member in job.members:
            member.mates = job.members

    async def _all_have_finished(self, job: _Job, there: Sequence[Member]) -> bool:
        """Wait until all have reported what they have finished; return False if one leaves or begins to leave."""
        leaving = [member.leaving for member in there]
        told: Sequence[str] = []
        while missing := [member.host for member in there if member.finished is None]:
            if told != missing:
                for member in there:
                    member.tell({"waiting_for": missing})
                told = missing
            job.look.clear()
            await job.look.wait()
            if any(member.left.is_set() for member in there) or leaving != [m.leaving for m in there]:
                return False
        return True

    async def _grant_again(self, job: _Job, hosts: tuple[str, ...]) -> None:
        """Replace the job's lease, if it has one, by one for these of its hosts."""
        await self._withdraw(job)
        job.candidate.close()
        job.request = replace(job.request, hosts=hosts)
        job.candidate = self._open(job.request)
        if job.state != "in network":
            return
        try:
            async with self._granting:
                await job.candidate.grant()
        except ControllerError as error:
            self._lose(job, str(error))
        finally:
            self.look()  # other jobs may wait for the slots that it has freed

    def _too_few(self, job: _Job, staying: Sequence[Member]) -> str:
        """Return why too few workers are left for a job to continue; empty if there are enough."""
        least = job.request.min_workers or 0
        if len(staying) >= least:
            return ""
        return f"{'; '.join(_ends(job.members))}; {len(staying)} are left, fewer than min_workers, {least}"

    async def _grant(self, job: _Job) -> None:
        """Wait for the job's turn and grant it a lease. No job overtakes another, so that large jobs are not starved.

        Raises:
            ControllerError: If it gets no lease.
        """
        self._queue.append(job)
        try:
            while True:
                job.look.clear()
                if gone := job.gone():
                    raise ControllerError(_ended_early(gone))
                if job.revoked:
                    raise ControllerError(job.revoked)
                if self._queue[0] is job:
                    async with self._granting:
                        try:
                            return await job.candidate.grant()
                        except NoRoomError as error:
                            self._wait(job, str(error))
                elif not job.request.ring or self._queue[0].why:
                    self._wait(job, f"{self._queue[0].name} waits for its lease")
                await job.look.wait()
        finally:
            self._queue.remove(job)
            job.place = 0
            self.look()

    def _wait(self, job: _Job, why: str) -> None:
        if job.request.ring:
            raise NoRoomError(why)
        place = self._queue.index(job) + 1
        if (place, why) != (job.place, job.why):
            job.place, job.why = place, why
            job.log(logging.INFO, f"number {place} in the queue for a lease: {why}")
            for rank, member in enumerate(job.members):
                member.tell({"queued": {"rank": rank, "place": place, "why": why}})

    async def _withdraw(self, job: _Job) -> None:
        try:
            async with self._granting:
                await job.candidate.withdraw()
        except ControllerError as error:
            self._report(f"the lease of {', '.join(job.request.hosts)} is not withdrawn yet: {error}")

    def _dismiss(self, job: _Job, why: str) -> None:
        for member in job.members:
            member.dismiss(why)


def _ends(members: Sequence[Member]) -> Sequence[str]:
    """Describe which workers of a group have ended, and how."""
    return [
        f"rank {rank} (process {member.process} on {member.host}) "
        f"{member.failure or ('left' if member.leaving else 'ended')}"
        for rank, member in enumerate(members)
        if member.left.is_set() or member.leaving
    ]


def _named(job: _Job, member: Member) -> str:
    return f"rank {job.members.index(member)} (process {member.process} on {member.host})"


def _and(names: Sequence[str]) -> str:
    """Join names to a list in words."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _ended_early(member: Member) -> str:
    return f"{member} ended before the job began: start all of them again"
