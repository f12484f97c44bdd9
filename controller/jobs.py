"""The jobs of a network once all their workers are there: in the queue, with a lease, and ended."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from controller.budget import NoRoomError
from controller.errors import ControllerError


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What the workers of a job ask for, all alike.

    hosts: by rank. name: None: the one job of these hosts that has none. slots: None: as many as suit the network.
    """

    hosts: tuple[str, ...]
    name: str | None = None
    slots: int | None = None

    def __str__(self) -> str:
        slots = "" if self.slots is None else f" with {self.slots} slots"
        return f"{', '.join(self.hosts)}{slots}"


class Candidate(Protocol):
    """What becomes of a job on the network, from its beginning to its end."""

    async def grant(self) -> None:
        """Get it a lease.

        Raises:
            NoRoomError: not before others have ended. ControllerError: never, or a switch refuses.
        """

    def assignment(self, host: str) -> Mapping[str, Any]:
        """All that the worker on `host` needs, as JSON has it."""

    async def withdraw(self) -> None:
        """Take the lease back, if it has one."""

    def close(self) -> None:
        """Nobody works at it any more."""


Open = Callable[[JobRequest], Candidate]


class Member(Protocol):
    """A worker of a job."""

    host: str
    left: asyncio.Event

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send it a message."""

    def dismiss(self, why: str) -> None:
        """It has no job."""


@dataclass(eq=False, slots=True)
class _Job:
    """look: something may have changed for it. why: it waits."""

    name: str
    request: JobRequest
    members: Sequence[Member]
    candidate: Candidate
    why: str = ""
    place: int = 0
    look: asyncio.Event = field(default_factory=asyncio.Event)

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
        self._queue: list[_Job] = []
        self._granting = asyncio.Lock()  # a job that ends makes room before the next one is granted
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)

    def begin(self, request: JobRequest, members: Sequence[Member]) -> None:
        """All `members` (by rank) have joined."""
        name = request.name or f"job-{next(self._numbers)}"
        job = _Job(name, request, members, self._open(request))
        task = asyncio.create_task(self._hold(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def look(self) -> None:
        """A member may have left."""
        for job in self._queue:
            job.look.set()

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
            except ControllerError as error:
                self._dismiss(job, str(error))
                return
            if gone := job.gone():
                self._dismiss(job, _ended_early(gone))
            else:
                for member in job.members:
                    member.tell({**job.candidate.assignment(member.host), "job": job.name})
            for member in job.members:
                await member.left.wait()
            await self._withdraw(job)
        finally:
            job.candidate.close()
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
                if self._queue[0] is job:
                    async with self._granting:
                        try:
                            return await job.candidate.grant()
                        except NoRoomError as error:
                            self._wait(job, str(error))
                else:
                    self._wait(job, f"{self._queue[0].name} waits for its lease")
                await job.look.wait()
        finally:
            self._queue.remove(job)
            self.look()

    def _wait(self, job: _Job, why: str) -> None:
        place = self._queue.index(job) + 1
        if (place, why) != (job.place, job.why):
            job.place, job.why = place, why
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
