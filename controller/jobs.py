"""The jobs of a network once all their workers are there: in the queue, with a lease, and ended."""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from controller.budget import NoRoomError
from controller.errors import ControllerError
from controller.reports import Reporting, state_of

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What the workers of a job ask for, all alike.

    hosts: by rank. name: None: the one job of these hosts that has none. slots: None: as many as suit the network.
    ring: whether it carries on by ring between the hosts where it has no lease; if not, it waits for one.
    """

    hosts: tuple[str, ...]
    name: str | None = None
    slots: int | None = None
    ring: bool = False

    def __str__(self) -> str:
        slots = "" if self.slots is None else f" with {self.slots} slots"
        ring = ", by ring if need be" if self.ring else ""
        return f"{', '.join(self.hosts)}{slots}{ring}"


class Candidate(Protocol):
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
Open = Callable[[JobRequest], Candidate]


class Member(Reporting, Protocol):
    """A worker of a job. finished: what it says once the lease is revoked (workers/handover.py)."""

    finished: Any

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send it a message."""

    def dismiss(self, why: str) -> None:
        """It has no job."""


@dataclass(eq=False, slots=True)
class _Job:
    """look: something may have changed for it. why: it waits, or has no lease. place: in the queue; 0: not there.

    revoked: why, from then on.
    """

    name: str
    request: JobRequest
    members: Sequence[Member]
    candidate: Candidate
    state: State = "queued"
    why: str = ""
    place: int = 0
    revoked: str = ""
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
            "since": self.since,
            "ring": self.request.ring,
            **self.candidate.lease(),
        }

    def gone(self) -> Member | None:
        """A member that has left."""
        return next((member for member in self.members if member.left.is_set()), None)


class Jobs:
    """All of a network: grants them leases in the order in which they come, or has them wait.

    report: is told what nobody waits for.
    """

    def __init__(self, open_job: Open, report: Callable[[str], None]) -> None:
        self._open = open_job
        self._report = report
        self._present: list[_Job] = []
        self._queue: list[_Job] = []
        self._granting = asyncio.Lock()  # a job that ends makes room before the next one is granted
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)

    def begin(self, request: JobRequest, members: Sequence[Member]) -> None:
        """All `members` (by rank) have joined."""
        name = request.name or f"job-{next(self._numbers)}"
        job = _Job(name, request, members, self._open(request))
        self._present.append(job)
        job.log(logging.INFO, "all workers have joined")
        task = asyncio.create_task(self._hold(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def look(self) -> None:
        """A member may have left."""
        for job in self._queue:
            job.look.set()
        for job in self._present:
            self._hand_over(job)

    def documents(self) -> list[Mapping[str, Any]]:
        """What there is, in the order of their beginning."""
        return [job.document() for job in self._present]

    async def revoke(self, name: str, why: str = "its lease was revoked") -> None:
        """The job of this name has no lease any more, nor a place in the queue.

        Raises:
            ControllerError: it has none, or a switch does not answer, which loses the lease when it is back.
        """
        found = [job for job in self._present if job.name == name]
        if not found:
            there = ", ".join(job.name for job in self._present) or "none"
            raise ControllerError(f"no job is called {name}; there are: {there}")
        job = found[-1]  # one that has the name from another that is just ending
        if job.state not in ("queued", "in network"):
            raise ControllerError(f"{name} has no lease: it is {job.state} ({job.why})")
        job.revoked = why
        if job.state == "queued":
            job.look.set()
            return
        self._lose(job, job.revoked)
        job.tell({"revoked": job.why})
        async with self._granting:
            await job.candidate.withdraw()
        self.look()

    def hand_over(self, member: Member) -> None:
        """It has said what it has finished."""
        for job in self._present:
            if member in job.members:
                self._hand_over(job)

    def _hand_over(self, job: _Job) -> None:
        """Once all who are there have said what they have finished, everybody is told all of it."""
        if job.state != "by ring" or not job.revoked:
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
                    member.tell(
                        {**job.candidate.assignment(member.host), "job": job.name, "refused": job.why}
                    )
            for member in job.members:
                await member.left.wait()
            await self._withdraw(job)
        finally:
            job.candidate.close()
            self._present.remove(job)
            job.log(logging.INFO, "has ended")
            self.look()

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


def _ended_early(member: Member) -> str:
    return f"{member} ended before the job began: start all of them again"
