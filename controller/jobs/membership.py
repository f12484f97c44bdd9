"""The rules of a network's job service: a worker joins by its host's name, and each job gets a lease of its own.

A worker says its host, its process id, and what all workers of its job ask for: its hosts (names, how many, or null for
all), its name, and how many slots. It is told who is missing; where the job stands that has to wait for others; both
whenever that changes; and in the end what the job was granted, or why not. Later on it is told who of its job has
ended.

The connection is the membership. It stays open for the worker's life; when all of a job's have ended, its lease is
withdrawn. So what the next job sends and what this one has left on the way are never taken for one another's.

What is said here is in documents (docs/how-to/jobs.md); controller/job_service has the connections.
A worker that is in no job yet may be taken into one that has lost some of its own (controller/jobs/lifecycle.py).
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

from fanin.controller.jobs.lifecycle import JobRequest, Jobs, Open
from fanin.controller.jobs.reports import Heard, state_of
from fanin.native.text import MAX_NAME, is_name, printable

_logger = logging.getLogger(__name__)

_ANSWER_SECONDS = 2.0  # for workers that wait, who look once a second at least
_MAX_ERROR = 500  # characters of what is wrong with a message
_LEAVE_SECONDS = 1.0  # that a process which has just ended may need to be gone for everybody


class RefusedError(Exception):
    """What a worker is told that cannot join."""


class NoRequestError(RefusedError):
    """It asks for nothing that could be understood."""


class NoMessageError(Exception):
    """A member has said what no member says, and is none any more."""


class Connection(Protocol):
    """To one worker."""

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send it a message, unless it has hung up; one that does not read what it is told is hung up on."""

    def dismiss(self, why: str) -> None:
        """Tell it that it has no job, and hang up."""


@dataclass(eq=False, slots=True)
class _Member:
    """A worker that is connected."""

    host: str
    process: int
    request: JobRequest
    connection: Connection
    left: asyncio.Event = field(default_factory=asyncio.Event)
    finished: Any = None
    leaving: bool = False
    meeting: bool = False
    call: tuple[int, str] = (0, "")  # in which it waited last: its number, and what all must call alike
    failure: str = ""  # of a call, after which it makes none
    at: tuple[int, float] = (0, 0.0)  # the operation that it has come to, and when it has said so
    round: int = 0  # in which it was told last to stop
    mates: "Sequence[_Member]" = ()  # all workers of its job, by rank, once they have joined
    heard: Heard = field(default_factory=Heard)

    @property
    def place(self) -> tuple[str, str | None]:
        """What it has alone: its host, in the job of this name."""
        return self.host, self.request.name

    def tell(self, message: Mapping[str, Any]) -> None:
        match message:
            case {"regroup": {"round": number}} | {"rank": _, "round": number}:
                self.round = number
        self.connection.tell(message)

    def dismiss(self, why: str) -> None:
        self.connection.dismiss(why)

    def __str__(self) -> str:
        return f"{self.host}'s worker, process {self.process},"


class JobService:
    """Brings the workers on `hosts` together; `open_job` makes a job of them. Inside, it takes workers.

    report: is told what nobody waits for.
    """

    def __init__(self, hosts: Sequence[str], open_job: Open, report: Callable[[str], None]) -> None:
        self._hosts = tuple(hosts)
        self._jobs = Jobs(open_job, report, self._waiting)
        self._members: dict[tuple[str, str | None], _Member] = {}  # by place
        self._asking: dict[_Member, asyncio.Task[None]] = {}
        self._absent: set[tuple[str, str | None]] = set()  # places whose workers will not join
        self._ended = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended = True
        for task in self._asking.values():
            task.cancel()
        await self._jobs.close()

    @property
    def jobs(self) -> Jobs:
        """Those whose workers have all joined."""
        return self._jobs

    def forming(self) -> list[Mapping[str, Any]]:
        """Those that wait for workers to join: name, hosts, workers, and the hosts on which there is none yet."""
        found: dict[JobRequest, list[_Member]] = {}
        for member in self._members.values():
            if member.mates:
                continue
            found.setdefault(member.request, []).append(member)
        return [
            {
                "name": request.name,
                "hosts": request.hosts,
                "workers": [state_of(member) for member in there],
                "missing": [host for host in request.hosts if host not in {each.host for each in there}],
            }
            for request, there in found.items()
        ]

    @contextmanager
    def without(self, host: str, job: str) -> Iterator[None]:
        """Inside, the worker on `host` will not join: a job with min_workers begins without it.

        It still waits until it has that many workers.
        """
        place = host, job
        self._absent.add(place)
        for member in self._members.values():
            if member.request.name == job and not member.mates:
                self._gather(member)
                break
        try:
            yield
        finally:
            self._absent.discard(place)

    async def attend(self, request: Any, connection: Connection, messages: AsyncIterator[Any]) -> None:
        """A membership: from the worker's request to the end of its `messages`.

        Raises:
            RefusedError: it cannot join. NoMessageError: see there.
        """
        try:
            member = self._understand(request, connection)
        except ValueError as error:
            raise NoRequestError(f"that is not a request to join: {error}") from None
        await self._admit(member)
        try:
            self._gather(member)
            async for said in messages:
                self._hear(member, said)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            why = _one_line(str(error))
            raise NoMessageError(f"that is nothing that a member says: {why}") from None
        finally:
            self._release(member)

    def _hear(self, member: _Member, said: Any) -> None:
        """From one whose job has begun.

        Raises:
            ValueError: it is nothing that a worker says.
        """
        match said:
            case {"report": report}:
                member.heard.take(report)
            case {"call": {"number": int(number), "what": str(what)}}:
                member.call = number, _one_line(what)
                self._jobs.compare(member)
            case {"failed": {"call": int(number), "what": str(what), "error": str(error)}}:
                member.failure = _one_line(f"failed in call {number}, {what}: {error}")
                self._jobs.fail(member)
            case {"waiting": int(number)}:
                if member not in self._asking:  # one that asks all the time is answered as often as others
                    self._asking[member] = task = asyncio.create_task(self._find_slow(member, number))
                    task.add_done_callback(lambda _: self._asking.pop(member))
            case {"at": int(number)}:
                member.at = number, time.monotonic()
            case {"leaving": True}:
                member.leaving = True
            case {"meeting": int(number)}:
                member.meeting = number == member.round
            case {"finished": [int(), int()] as finished, "round": int(number)}:
                if number == member.round:
                    member.finished = finished
            case {"finished": [int(), int()] as finished}:
                member.finished = finished
            case _:
                raise ValueError(_quoted(said))
        self._jobs.look()

    async def _find_slow(self, member: _Member, number: int) -> None:
        """Tells a member that waits in its so-manieth operation who has not come to it, or does not answer."""
        asked = time.monotonic()
        there = [mate for mate in member.mates if not mate.left.is_set()]
        for mate in there:
            mate.tell({"where": None})
        await asyncio.sleep(_ANSWER_SECONDS)
        slow = [
            mate for mate in there if not mate.left.is_set() and (mate.at[0] < number or mate.at[1] < asked)
        ]
        if member not in there or member in slow:  # it has gone on, or ended
            return
        workers = " and ".join(
            f"rank {there.index(mate)} (process {mate.process} on {mate.host})" for mate in slow
        )
        told = member is not next(mate for mate in there if mate not in slow)
        member.tell({"slow": {"at": number, "workers": workers, "told": told}})

    def _understand(self, request: Any, connection: Connection) -> _Member:
        match request:
            case {"host": str(host), "process": int(process), "hosts": asked}:
                pass
            case _:
                raise ValueError(f"it has host, process and hosts, not {_quoted(request)}")
        if host not in self._hosts:
            raise RefusedError(
                f"no host is called {_quoted(host).strip(chr(34))}; there are {', '.join(self._hosts)}"
            )
        hosts = self._understand_hosts(asked)
        if host not in hosts:
            raise RefusedError(
                f"the worker on {host} asks for a job of {', '.join(hosts)}, which {host} is not in"
            )
        name = request.get("job")
        if isinstance(name, str) and not is_name(name):
            raise RefusedError(
                f"job: is {_quoted(name)}; a name has at most {MAX_NAME} characters, all printable (FANIN_JOB)"
            )
        match name, request.get("slots"), request.get("ring", False):
            case None | str(), (int() | None) as slots, bool(ring) if not isinstance(slots, bool):
                least = self._understand_least(request.get("min_workers"), hosts, ring)
                return _Member(host, process, JobRequest(hosts, name, slots, ring, least), connection)
            case other:
                raise ValueError(
                    f"job is a name, and slots a number, or null; ring is true or false: not {_quoted(other)}"
                )

    def _understand_hosts(self, asked: object) -> tuple[str, ...]:
        match asked:
            case None:
                return self._hosts
            case int(count) if not isinstance(count, bool):
                if 1 <= count <= len(self._hosts):
                    return self._hosts[:count]
                raise RefusedError(f"hosts: is {count}, must be from 1 to {len(self._hosts)}")
            case list(names) if set(map(str, names)) <= set(self._hosts):
                return tuple(known for known in self._hosts if known in names)
        raise RefusedError(f"hosts: is {_quoted(asked)}; there are {', '.join(self._hosts)}")

    def _understand_least(self, asked: object, hosts: Sequence[str], ring: bool) -> int | None:
        if asked is None:
            return None
        if not isinstance(asked, int) or isinstance(asked, bool) or not 1 <= asked <= len(hosts) or not ring:
            raise RefusedError(
                f"min_workers: is {_quoted(asked)}, must be from 1 to {len(hosts)}, in a job that goes on by ring if "
                "need be"
            )
        return asked

    async def _admit(self, member: _Member) -> None:
        """Gives it its place."""
        while (present := self._members.get(member.place)) is not None:
            try:
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await present.left.wait()
            except TimeoutError:
                raise RefusedError(
                    f"{member.host} has a worker already, process {present.process}, in {_job_of(present)}: "
                    f"end that one first, or give this job a name of its own (FANIN_JOB)"
                ) from None
        asked = member.request
        for other in self._members.values():
            theirs = other.request
            if theirs.name != asked.name or (asked.name is None and not set(theirs.hosts) & set(asked.hosts)):
                continue
            if theirs.hosts != asked.hosts and asked.name is not None and other.mates:
                raise RefusedError(f"there is {_job_of(other)}: give this one another name (FANIN_JOB)")
            if theirs != asked and not other.mates:
                raise RefusedError(
                    f"{other} waits for a job of {theirs}, and the one on {member.host} asks for {asked}: all must "
                    "ask for the same"
                )
        if self._ended:
            raise RefusedError("the network has ended")
        self._members[member.place] = member
        self._absent.discard(member.place)
        _log("has joined", member)

    def _gather(self, member: _Member) -> None:
        """Forms the job if all are there, or tells those that are who is missing."""
        request = member.request
        waiting = self._waiting(request)
        missing = {host for host in request.hosts if host not in {each.host for each in waiting}}
        enough = request.min_workers is not None and len(waiting) >= request.min_workers
        if missing and not (enough and all((host, request.name) in self._absent for host in missing)):
            self._tell_who_is_missing(waiting)
            return
        for each in waiting:
            each.mates = waiting
        self._jobs.begin(replace(request, hosts=tuple(each.host for each in waiting)), waiting, request)

    def _waiting(self, request: JobRequest) -> "Sequence[_Member]":
        """Those who ask for this and are in no job yet, by rank."""
        there = (self._members.get((host, request.name)) for host in request.hosts)
        return [
            member
            for member in there
            if member is not None and not member.mates and member.request == request
        ]

    def _tell_who_is_missing(self, waiting: Sequence[_Member]) -> None:
        """To members of one job that has not formed."""
        there = {member.host for member in waiting}
        for member in waiting:
            member.tell({"waiting_for": [host for host in member.request.hosts if host not in there]})

    def _release(self, member: _Member) -> None:
        """It has ended, or the service has."""
        member.left.set()
        _log("has left", member)
        del self._members[member.place]
        if not member.mates:
            self._tell_who_is_missing(self._waiting(member.request))
            return
        rank = member.request.hosts.index(member.host)
        for other in member.mates:
            if not other.left.is_set():
                other.tell({"left": {"host": member.host, "rank": rank, "process": member.process}})
        self._jobs.look()


def _one_line(text: str) -> str:
    """Return what a worker has written as one printable line of bounded length."""
    return " ".join(printable(text).split())[:_MAX_ERROR]


def _quoted(said: object) -> str:
    """Return what a worker has sent, short enough for an error, and without anything that could act on a terminal."""
    return json.dumps(said)[:200]


def _job_of(member: _Member) -> str:
    request = member.request
    called = "" if request.name is None else f" called {request.name}"
    return f"a job of {', '.join(request.hosts)}{called}"


def _log(what: str, member: _Member) -> None:
    said = {"job": member.request.name, "host": member.host, "pid": member.process}
    _logger.info("%s %s", member, what, extra=said)
