"""The jobs of a network once all their workers are there: in the queue, with a lease, and ended."""

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
_REPORTS_SECONDS = 0.3  # in which all workers that wait report in which call they are (workers/job/calls.py)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What the workers of a job ask for, all alike.

    hosts: by rank. name: None: the one job of these hosts that has none. slots: None: as many as suit the network.
    ring: whether it carries on by ring between the hosts where it has no lease; if not, it waits for one. min_workers:
    so many go on without the others, in groups (see _Job); None: all or none. A job of groups carries on by ring.
    """

    hosts: tuple[str, ...]
    name: str | None = None
    slots: int | None = None
    ring: bool = False
    min_workers: int | None = None

    def __str__(self) -> str:
        slots = "" if self.slots is None else f" with {self.slots} slots"
        ring = ", by ring if need be" if self.ring else ""
        least = "" if self.min_workers is None else f", at least {self.min_workers} of them"
        return f"{', '.join(self.hosts)}{slots}{ring}{least}"


class JobLease(Protocol):
    """What becomes of a job on the network, from its beginning to its end."""

    async def grant(self) -> None:
        """Get it a lease.

        Raises:
            NoRoomError: not before others have ended. ControllerError: never, or a switch refuses.
        """

    def assignment(self, host: str) -> Mapping[str, Any]:
        """All that the worker on `host` needs, as JSON has it; of a lease, if there is one."""

    def lease(self) -> Mapping[str, Any]:
        """What is granted, for people to read."""

    async def withdraw(self) -> None:
        """Take the lease back, if it has one."""

    def close(self) -> None:
        """Nobody works at it any more."""


State = Literal["queued", "in network", "by ring", "revoked"]
Open = Callable[[JobRequest], JobLease]


class Member(Reporting, Protocol):
    """A worker of a job.

    finished: what it says once the lease is revoked (workers/job/ring_fallback.py), or in a round in which a group
    forms (workers/job/elastic.py). leaving: it ends once the others have what it has finished. meeting: it is in
    regroup(), and waits to be told whether somebody has joined. mates: all workers of its job, by rank. call: in which
    it waited last, by number and in words. failure: of a call, after which it makes none.
    """

    finished: Any
    meeting: bool
    mates: Any
    leaving: bool
    call: tuple[int, str]
    failure: str

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send it a message."""

    def dismiss(self, why: str) -> None:
        """It has no job."""


@dataclass(eq=False, slots=True)
class _Job:
    """look: something may have changed for it. why: it waits, or has no lease. place: in the queue; 0: not there.

    revoked: why, from then on. aborted: why its workers make no more calls; empty: they do.

    Where the request has min_workers, its members form groups, one after the other: `members` is the last one, by rank.
    Whenever one ends, or the lease is revoked, those who are left are told to stop (`round` counts how often that was
    so), say what they have finished, and are told the next group, which has a lease of its own. Once all of a group
    are in regroup(), workers that have come meanwhile, and ask for what its first ones have `asked` for, join it.
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
        """What becomes of it."""
        lease = self.candidate.lease()["lease"]
        _logger.log(level, "%s", what, extra={"job": self.name, "lease": lease, "hosts": self.request.hosts})

    def document(self) -> Mapping[str, Any]:
        """What is told of it to those who ask. since: in seconds of the Unix epoch."""
        return {
            "name": self.name,
            "hosts": self.request.hosts,
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
        """The members that have not left."""
        return [member for member in self.members if not member.left.is_set()]

    def must_regroup(self) -> bool:
        """Whether the group is another one than before, or has lost its lease."""
        if self.request.min_workers is None:
            return False
        return bool(self.revoked) or any(member.left.is_set() or member.leaving for member in self.members)

    def meets(self) -> bool:
        """Whether all of the group are in regroup()."""
        return self.request.min_workers is not None and all(member.meeting for member in self.members)

    def callers(self, member: Member) -> dict[str, list[Member]]:
        """Return the members that wait in the same call as this one, by what they call."""
        found: dict[str, list[Member]] = {}
        for each in self.there():
            if each.call[0] == member.call[0]:
                found.setdefault(each.call[1], []).append(each)
        return found

    def gone(self) -> Member | None:
        """A member that has left."""
        return next((member for member in self.members if member.left.is_set()), None)


class Jobs:
    """All of a network: grants them leases in the order in which they come, or has them wait.

    report: is told what nobody waits for. waiting: those who ask for such a job, and are in none.
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
        """All `members` (by rank) have joined. asked: what they ask for, which may be more hosts than will be there."""
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
        """A member may have left, or have said something."""
        for job in self._present:
            job.look.set()
            self._hand_over(job)

    def fail(self, member: Member) -> None:
        """A call has failed at a member: nobody of its job makes another one; in a job of groups it has to leave."""
        for job in self._of(member):
            if job.request.min_workers is None:
                self._abort(job, f"{_named(job, member)} {member.failure}")
            else:
                member.dismiss(member.failure)

    def compare(self, member: Member) -> None:
        """A member has reported the call that it waits in: if others wait in another one, nobody can go on."""
        for job in self._of(member):
            if not job.aborted and len(job.callers(member)) > 1:
                self._start(self._abort_differing(job, member))

    async def _abort_differing(self, job: _Job, member: Member) -> None:
        await asyncio.sleep(_REPORTS_SECONDS)
        callers = sorted(job.callers(member).items(), key=lambda each: len(each[1]))
        if len(callers) < 2:  # the others have left
            return
        said = [f"{_and([_named(job, each) for each in members])}: {what}" for what, members in callers]
        if len(callers) == 2 and len(callers[0][1]) < len(callers[1][1]):
            said[1] = f"the others: {callers[1][0]}"
        self._abort(job, f"the workers make different calls. {'; '.join(said)}")

    def _of(self, member: Member) -> list[_Job]:
        """The job that it is in."""
        return [job for job in self._present if member in job.members]

    def _abort(self, job: _Job, why: str) -> None:
        """Tell all of its workers, the first time."""
        if not job.aborted:
            job.aborted = why
            job.log(logging.WARNING, why)
            job.tell({"aborted": why})

    def documents(self) -> list[Mapping[str, Any]]:
        """What there is, in the order of their beginning."""
        return [job.document() for job in self._present]

    async def revoke(self, name: str) -> None:
        """The job of this name has no lease any more, nor a place in the queue, and gets no other one.

        Raises:
            ControllerError: it has none, or a switch does not answer, which loses the lease when it is back.
        """
        found = [job for job in self._present if job.name == name]
        if not found:
            there = ", ".join(job.name for job in self._present) or "none"
            raise ControllerError(f"no job is called {printable(name[:MAX_NAME])}; there are: {there}")
        job = found[-1]  # one that has the name from another that is just ending
        if job.state not in ("queued", "in network"):
            raise ControllerError(f"{name} has no lease: it is {job.state} ({job.why})")
        if job.state == "queued":
            job.revoked = _REVOKED
            job.look.set()
            return
        await self._take_back(job, _REVOKED, for_good=True)

    async def end_lease(self, lease: int, why: str, *, for_good: bool) -> None:
        """Nothing is added up under this lease any more; of a job that has ended meanwhile, there is nothing to do.

        for_good: no other lease would be better. If not, a job of groups (see _Job) is granted another one.

        Raises:
            ControllerError: a switch does not answer, which loses the lease when it is back.
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
            job.tell({"revoked": why})
        try:
            async with self._granting:
                await job.candidate.withdraw()
        finally:
            self.look()

    def _hand_over(self, job: _Job) -> None:
        """Once all who are there have said what they have finished, everybody is told all of it."""
        if job.state != "by ring" or not job.revoked or job.request.min_workers is not None:
            return
        if all(member.finished is not None or member.left.is_set() for member in job.members):
            job.tell({"carry_on": [None if m.left.is_set() else m.finished for m in job.members]})
            job.revoked = ""  # once

    def _lose(self, job: _Job, why: str) -> None:
        job.log(logging.WARNING, why)
        job.state, job.why = ("by ring" if job.request.ring else "revoked"), why

    async def close(self) -> None:
        """The network ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _hold(self, job: _Job) -> None:
        """One job, from its grant to its end."""
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
        except Exception as error:  # whoever looks after the controller learns of it there
            self._dismiss(job, str(error) or repr(error))
            job.log(logging.ERROR, f"has no controller any more: {error}")
        finally:
            job.candidate.close()
            self._present.remove(job)
            job.log(logging.INFO, "has ended")
            self.look()

    def _assignment(self, job: _Job, member: Member) -> dict[str, Any]:
        return {
            **job.candidate.assignment(member.host),
            "hosts": job.request.hosts,
            "refused": job.why,
        }

    async def _meet(self, job: _Job) -> None:
        """All are in regroup(): a round if somebody waits to join, or they are told that nobody does."""
        if joining := self._waiting(job.asked):
            await self._regroup(job, joining)
            return
        for member in job.members:
            member.meeting = False
        job.tell({"met": job.round})

    async def _regroup(self, job: _Job, joining: Sequence[Member] = ()) -> None:
        """One round: those who are there stop, say what they have finished, and get a lease of their own.

        With those who are `joining`: they come behind the others, and begin with what follows regroup().

        If one of them ends in the middle of it there is to be another round.
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
        """Whether all have said what; False as soon as one of them has left, or another one is leaving."""
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
        """In place of the lease that the job has, if it has one: to these of its hosts."""
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
            self.look()  # for what it has left, others may wait

    def _too_few(self, job: _Job, staying: Sequence[Member]) -> str:
        """Why a job cannot go on; empty: it can."""
        least = job.request.min_workers or 0
        if len(staying) >= least:
            return ""
        return f"{'; '.join(_ends(job.members))}; {len(staying)} are left, fewer than min_workers, {least}"

    async def _grant(self, job: _Job) -> None:
        """In its turn: nobody overtakes, so that a job which needs much is not passed by for ever.

        Raises:
            ControllerError: it gets none.
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
            job.log(logging.INFO, f"number {place} of the jobs that wait for a lease: {why}")
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
    """Who of a group has ended, and how."""
    return [
        f"rank {rank} (process {member.process} on {member.host}) "
        f"{member.failure or ('left' if member.leaving else 'ended')}"
        for rank, member in enumerate(members)
        if member.left.is_set() or member.leaving
    ]


def _named(job: _Job, member: Member) -> str:
    return f"rank {job.members.index(member)} (process {member.process} on {member.host})"


def _and(names: Sequence[str]) -> str:
    """A list, in words."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _ended_early(member: Member) -> str:
    return f"{member} ended before the job began: start all of them again"
