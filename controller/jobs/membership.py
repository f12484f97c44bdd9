"""The rules of a network's job service: a worker joins with its host's name, and each job gets its own lease.

A worker sends its host, its process id, and what all workers of its job ask for: the job's hosts (names, a number, or
null for all), its name, and its number of slots. Whenever they change, it receives the list of missing workers and, if
the job has to wait, its place in the queue. In the end it receives what the job was granted, or why nothing was. Later
it learns which workers of its job have ended.

The connection is the membership. It stays open for the worker's life. When all workers of a job have ended, its lease
is withdrawn. So packets of the next job cannot be mistaken for packets of this one that are still on the way.

Messages are documents here (docs/explanation/jobs.md); controller/job_service has the connections. A worker that is in
no job yet may be taken into one that has lost some of its own (controller/jobs/lifecycle.py).
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

_ANSWER_SECONDS = 2.0  # time to answer for waiting workers, which check for messages at least once a second
_MAX_ERROR = 500  # characters of an error about a message
_LEAVE_SECONDS = 1.0  # how long the end of a process may take to be noticed
_MAX_PER_HOST = 64

# A worker's host, its job's name, and its number among the job's workers on the host.
_Place = tuple[str, str | None, int]


class RefusedError(Exception):
    """A refusal to let a worker join; the text is sent to the worker."""


class NoRequestError(RefusedError):
    """A refusal of a request to join that cannot be understood."""


class NoMessageError(Exception):
    """An invalid message of a member, after which it is no longer a member."""


class WorkerConnection(Protocol):
    """The connection to one worker."""

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send a message, unless the worker has disconnected.

        A worker that does not read its messages is disconnected.
        """

    def dismiss(self, why: str) -> None:
        """Tell the worker that it has no job, and disconnect."""


@dataclass(eq=False, slots=True)
class _Member:
    """A worker that is connected."""

    host: str
    process: int
    local: int
    request: JobRequest
    connection: WorkerConnection
    left: asyncio.Event = field(default_factory=asyncio.Event)
    finished: Any = None
    leaving: bool = False
    meeting: bool = False
    call: tuple[int, str] = (0, "")  # the call in which it last waited: number, and text that all must share
    refusal: tuple[int, str] = 0, ""  # its last refused call and the error; 0: there was none
    failure: str = ""  # the error of a failed call, after which it makes no other
    at: tuple[int, float] = (0, 0.0)  # the operation that it has come to, and when it reported that
    round: int = 0  # the last round in which it was told to stop
    mates: "Sequence[_Member]" = ()  # all workers of its job, by rank, once they have joined
    heard: Heard = field(default_factory=Heard)

    @property
    def place(self) -> "_Place":
        """Return the key that no other member can have."""
        return self.host, self.request.name, self.local

    def tell(self, message: Mapping[str, Any]) -> None:
        match message:
            case {"regroup": {"round": number}} | {"rank": _, "round": number}:
                self.round = number
        self.connection.tell(message)

    def dismiss(self, why: str) -> None:
        self.connection.dismiss(why)

    def __str__(self) -> str:
        which = f" {self.local}" if self.request.per_host > 1 else ""
        return f"{self.host}'s worker{which}, process {self.process},"


class JobService:
    """The service that brings the workers of a network together. An async context manager: inside, it accepts workers.

    Args:
        hosts: The network's hosts.
        open_job: Opens the lease of a job.
        report: Receives errors that nobody waits for.
    """

    def __init__(self, hosts: Sequence[str], open_job: Open, report: Callable[[str], None]) -> None:
        self._hosts = tuple(hosts)
        self._jobs = Jobs(open_job, report, self._waiting)
        self._members: dict[_Place, _Member] = {}
        self._asking: dict[_Member, asyncio.Task[None]] = {}
        self._absent: set[_Place] = set()  # places whose workers will not join
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
        """Return the jobs whose workers have all joined."""
        return self._jobs

    def forming(self) -> list[Mapping[str, Any]]:
        """Return the jobs that wait for workers: name, hosts, workers, and the hosts without a worker so far."""
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
                "missing": _missing(request, there),
            }
            for request, there in found.items()
        ]

    @contextmanager
    def without(self, host: str, job: str) -> Iterator[None]:
        """Let a job with min_workers begin without the worker on `host`, for the time of a `with` block.

        The job still waits until it has that many workers.
        """
        place = host, job, 0
        self._absent.add(place)
        for member in self._members.values():
            if member.request.name == job and not member.mates:
                self._gather(member)
                break
        try:
            yield
        finally:
            self._absent.discard(place)

    async def attend(self, request: Any, connection: WorkerConnection, messages: AsyncIterator[Any]) -> None:
        """Serve a membership: from the worker's request to the end of its messages.

        Args:
            request: The worker's request.
            connection: The connection to the worker.
            messages: The worker's messages.

        Raises:
            RefusedError: If the worker cannot join.
            NoMessageError: If a message is not valid.
        """
        try:
            member = self._understand(request, connection)
        except ValueError as error:
            raise NoRequestError(f"not a request to join: {error}") from None
        await self._admit(member)
        try:
            self._gather(member)
            async for said in messages:
                self._receive(member, said)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            why = _one_line(str(error))
            raise NoMessageError(f"not a message of a member: {why}") from None
        finally:
            self._release(member)

    def _receive(self, member: _Member, said: Any) -> None:
        """Process a message of a worker whose job has begun.

        Raises:
            ValueError: If the message is not valid.
        """
        match said:
            case {"report": report}:
                member.heard.take(report)
            case {"times": times}:
                member.heard.take_times(times)
                return  # they change nothing that a job waits for
            case {"call": {"number": int(number), "what": str(what)}} if 0 <= number < 1 << 63:
                member.call = number, _one_line(what)
                self._jobs.compare(member)
            case {"refused": {"call": int(number), "what": str(what), "error": str(error)}}:
                member.refusal = number, _one_line(f"refused call {number}, {what}: {error}")
                self._jobs.compare(member)
            case {"failed": {"call": int(number), "what": str(what), "error": str(error)}}:
                member.failure = _one_line(f"failed in call {number}, {what}: {error}")
                self._jobs.fail(member)
            case {"waiting": int(number)}:
                if member not in self._asking:  # a worker that asks all the time is not answered more often
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
        """Tell a member that waits in operation `number` which workers have not come to it, or do not answer."""
        asked = time.monotonic()
        there = [mate for mate in member.mates if not mate.left.is_set()]
        for mate in there:
            mate.tell({"where": None})
        await asyncio.sleep(_ANSWER_SECONDS)
        slow = [
            mate for mate in there if not mate.left.is_set() and (mate.at[0] < number or mate.at[1] < asked)
        ]
        if member not in there or member in slow:  # it has left the operation, or has ended
            return
        workers = " and ".join(
            f"rank {there.index(mate)} (process {mate.process} on {mate.host})" for mate in slow
        )
        told = member is not next(mate for mate in there if mate not in slow)
        member.tell({"slow": {"at": number, "workers": workers, "told": told}})

    def _understand(self, request: Any, connection: WorkerConnection) -> _Member:
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
        local, per_host = self._understand_local(request.get("local"), request.get("per_host"))
        match name, request.get("slots"), request.get("ring", False):
            case None | str(), (int() | None) as slots, bool(ring) if not isinstance(slots, bool):
                least = self._understand_least(request.get("min_workers"), hosts, ring)
                if least is not None and per_host > 1:
                    raise RefusedError(
                        "min_workers: a job that continues without workers has one on each host"
                    )
                share = _understood_share(request.get("slot_share"))
                asked_for = JobRequest(hosts, name, slots, ring, least, per_host, share)
                return _Member(host, process, local, asked_for, connection)
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

    def _understand_local(self, local: object, per_host: object) -> tuple[int, int]:
        local, per_host = 0 if local is None else local, 1 if per_host is None else per_host
        if not isinstance(per_host, int) or isinstance(per_host, bool) or not 1 <= per_host <= _MAX_PER_HOST:
            raise RefusedError(f"per_host: is {_quoted(per_host)}, must be from 1 to {_MAX_PER_HOST}")
        if not isinstance(local, int) or isinstance(local, bool) or not 0 <= local < per_host:
            raise RefusedError(f"local: is {_quoted(local)}, must be from 0 to {per_host - 1}, per_host - 1")
        return local, per_host

    def _understand_least(self, asked: object, hosts: Sequence[str], ring: bool) -> int | None:
        if asked is None:
            return None
        if not isinstance(asked, int) or isinstance(asked, bool) or not 1 <= asked <= len(hosts) or not ring:
            raise RefusedError(
                f"min_workers: is {_quoted(asked)}, must be from 1 to {len(hosts)}, in a job that may use the ring"
            )
        return asked

    async def _admit(self, member: _Member) -> None:
        """Give a member its place."""
        while (present := self._members.get(member.place)) is not None:
            try:
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await present.left.wait()
            except TimeoutError:
                raise RefusedError(
                    f"{member.host} has a worker already, process {present.process}, in {_job_of(present)}: "
                    f"end that one first, or give this job its own name (FANIN_JOB)"
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
        """Form the job if all its workers are there, or tell those that are which are missing."""
        request = member.request
        waiting = self._waiting(request)
        missing = _missing(request, waiting)
        enough = request.min_workers is not None and len(waiting) >= request.min_workers
        if missing and not (enough and all((host, request.name, 0) in self._absent for host in missing)):
            self._tell_who_is_missing(waiting)
            return
        for each in waiting:
            each.mates = waiting
        hosts = tuple(each.host for each in waiting if not each.local)
        self._jobs.begin(replace(request, hosts=hosts), waiting, request)

    def _waiting(self, request: JobRequest) -> "Sequence[_Member]":
        """Return the workers with this request that are in no job yet, by rank."""
        there = (
            self._members.get((host, request.name, local))
            for host in request.hosts
            for local in range(request.per_host)
        )
        return [
            member
            for member in there
            if member is not None and not member.mates and member.request == request
        ]

    def _tell_who_is_missing(self, waiting: Sequence[_Member]) -> None:
        """Tell members of a job that has not formed which hosts are missing."""
        for member in waiting:
            member.tell({"waiting_for": _missing(member.request, waiting)})

    def _release(self, member: _Member) -> None:
        """Remove a member that has ended, or whose service has."""
        member.left.set()
        _log("has left", member)
        del self._members[member.place]
        if not member.mates:
            self._tell_who_is_missing(self._waiting(member.request))
            return
        rank = member.request.hosts.index(member.host) * member.request.per_host + member.local
        for other in member.mates:
            if not other.left.is_set():
                other.tell({"left": {"host": member.host, "rank": rank, "process": member.process}})
        self._jobs.look()


def _missing(request: JobRequest, there: "Sequence[_Member]") -> list[str]:
    """Return the hosts of a request that have fewer workers than it asks for."""
    hosts = [member.host for member in there]
    return [host for host in request.hosts if hosts.count(host) < request.per_host]


def _one_line(text: str) -> str:
    """Return a worker's text as one printable line of bounded length."""
    return " ".join(printable(text).split())[:_MAX_ERROR]


def _quoted(said: object) -> str:
    """Return a worker's message, shortened for an error, and without anything that could act on a terminal."""
    return json.dumps(said)[:200]


def _job_of(member: _Member) -> str:
    request = member.request
    called = "" if request.name is None else f" called {request.name}"
    return f"a job of {', '.join(request.hosts)}{called}"


def _log(what: str, member: _Member) -> None:
    said = {"job": member.request.name, "host": member.host, "pid": member.process}
    _logger.info("%s %s", member, what, extra=said)


def _understood_share(asked: object) -> int | None:
    if asked is None or (isinstance(asked, int) and not isinstance(asked, bool) and asked > 0):
        return asked
    raise RefusedError(f"slot_share: is {_quoted(asked)}, must be a number from 1")
