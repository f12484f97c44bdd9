"""The job service of a network: a worker joins by its host's name, and each job gets a lease of its own.

On a Unix socket, in lines of JSON (docs/jobs.md). A worker sends one, {"host": "h1", "process": 4711, "hosts": null,
"job": null, "slots": null}: its host, its process id, and what all workers of its job ask for: its hosts (names, how
many, or null for all), its name, and how many slots. It is told who is missing, {"waiting_for": ["h2"]}; where the job
stands that has to wait for others, {"queued": {"rank": 0, "place": 1, "why": "…"}}; both whenever that changes; and in
the end what the job was granted or {"error": "why not"}. Later on it is told who of its job has ended, {"left":
{"host": "h2", "rank": 1, "process": 4712}}.

The connection is the membership. It stays open for the worker's life; when all of a job's have ended, its lease is
withdrawn. So what the next job sends and what this one has left on the way are never taken for one another's.
A worker that is in no job yet may be taken into one that has lost some of its own (controller/jobs.py).
"""

import asyncio
import json
import logging
import os
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.errors import ControllerError
from controller.jobs import JobRequest, Jobs, Open
from controller.reports import Heard, state_of

_logger = logging.getLogger(__name__)

_UCRED = struct.Struct("iII")  # a process, its user and its group, as in socket(7)
_ANSWER_SECONDS = 2.0  # for workers that wait, who look once a second at least
_LEAVE_SECONDS = 1.0  # that a process which has just ended may need to be gone for everybody


class _RefusedError(Exception):
    """What a worker is told."""


@dataclass(eq=False, slots=True)
class _Member:
    """A worker that is connected."""

    host: str
    process: int
    request: JobRequest
    writer: asyncio.StreamWriter
    left: asyncio.Event = field(default_factory=asyncio.Event)
    finished: Any = None
    leaving: bool = False
    meeting: bool = False
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
        if not self.writer.is_closing():
            self.writer.write(json.dumps(message).encode() + b"\n")

    def dismiss(self, why: str) -> None:
        self.tell({"error": why})
        self.writer.close()

    def __str__(self) -> str:
        return f"{self.host}'s worker, process {self.process},"


class JobService:
    """Brings the workers on `hosts` together; `open_job` makes a job of them.

    report: is told what nobody waits for. questions: what else is answered in one line, {NAME: …}, and by whom.
    """

    def __init__(self, hosts: Sequence[str], open_job: Open, report: Callable[[str], None]) -> None:
        self._hosts = tuple(hosts)
        self._jobs = Jobs(open_job, report, self._waiting)
        self.questions: dict[str, Callable[[Any], Awaitable[Mapping[str, Any]]]] = {}
        self._members: dict[tuple[str, str | None], _Member] = {}  # by place
        self._asking: set[asyncio.Task[None]] = set()
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    @property
    def jobs(self) -> Jobs:
        """Those whose workers have all joined."""
        return self._jobs

    @asynccontextmanager
    async def serve(self, path: Path) -> AsyncIterator[None]:
        """Inside, the service is reached at `path`."""
        server = await asyncio.start_unix_server(self._serve, sock=_bind(path))
        try:
            yield
        finally:
            server.close()
            path.unlink(missing_ok=True)
            for task in self._asking:
                task.cancel()
            await self._jobs.close()
            for writer in self._connections:
                writer.close()
            await asyncio.gather(*self._connections.values(), return_exceptions=True)

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

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[writer] = task
        try:
            await self._attend(reader, writer)
        except _RefusedError as error:
            writer.write(json.dumps({"error": str(error)}).encode() + b"\n")
        except ConnectionError:
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            del self._connections[writer]

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """From a worker's first word to its end."""
        try:
            line = await reader.readline()
            asked = json.loads(line)
            if await self._answer(asked, writer):
                return
            member = self._understand(asked, writer)
        except (ValueError, RecursionError) as error:  # too long a line, too
            raise _RefusedError(f"that is not a request to join: {error}") from None
        await self._admit(member)
        try:
            self._gather(member)
            with (
                _hanging_up_at_the_end_of_its_process(writer),
                suppress(
                    ValueError, KeyError, TypeError, RecursionError
                ),  # which ends a membership as hanging up does
            ):
                while line := await reader.readline():
                    self._hear(member, json.loads(line))
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
            case {"waiting": int(number)}:
                task = asyncio.create_task(self._find_slow(member, number))
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)
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
                raise ValueError
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

    async def _answer(self, asked: object, writer: asyncio.StreamWriter) -> bool:
        """Whether that is not a request to join but one of those that are answered in one line."""
        answer: Mapping[str, Any]
        match asked:
            case {"list": _}:
                answer = {"jobs": self._jobs.documents()}
            case dict() if len(asked) == 1 and (question := next(iter(asked))) in self.questions:
                answer = await self.questions[question](asked[question])
            case {"revoke": str(name)}:
                try:
                    await self._jobs.revoke(name)
                except ControllerError as error:
                    raise _RefusedError(str(error)) from None
                answer = {"revoked": name}
            case _:
                return False
        writer.write(json.dumps(answer).encode() + b"\n")
        return True

    def _understand(self, request: Any, writer: asyncio.StreamWriter) -> _Member:
        match request:
            case {"host": str(host), "process": int(process), "hosts": asked}:
                pass
            case _:
                raise ValueError(f"it has host, process and hosts, not {json.dumps(request)[:200]}")
        if host not in self._hosts:
            raise _RefusedError(f"no host is called {host}; there are {', '.join(self._hosts)}")
        hosts = self._understand_hosts(asked)
        if host not in hosts:
            raise _RefusedError(
                f"the worker on {host} asks for a job of {', '.join(hosts)}, which {host} is not in"
            )
        match request.get("job"), request.get("slots"), request.get("ring", False):
            case (str() | None) as name, (int() | None) as slots, bool(ring) if not isinstance(slots, bool):
                least = self._understand_least(request.get("min_workers"), hosts, ring)
                return _Member(host, process, JobRequest(hosts, name, slots, ring, least), writer)
            case other:
                raise ValueError(
                    f"job is a name, and slots a number, or null; ring is true or false: not {json.dumps(other)}"
                )

    def _understand_hosts(self, asked: object) -> tuple[str, ...]:
        match asked:
            case None:
                return self._hosts
            case int(count) if not isinstance(count, bool):
                if 1 <= count <= len(self._hosts):
                    return self._hosts[:count]
                raise _RefusedError(f"hosts: is {count}, must be from 1 to {len(self._hosts)}")
            case list(names) if set(map(str, names)) <= set(self._hosts):
                return tuple(known for known in self._hosts if known in names)
        raise _RefusedError(f"hosts: is {asked}; there are {', '.join(self._hosts)}")

    def _understand_least(self, asked: object, hosts: Sequence[str], ring: bool) -> int | None:
        if asked is None:
            return None
        if not isinstance(asked, int) or isinstance(asked, bool) or not 1 <= asked <= len(hosts) or not ring:
            raise _RefusedError(
                f"min_workers: is {asked}, must be from 1 to {len(hosts)}, in a job that goes on by ring if need be"
            )
        return asked

    async def _admit(self, member: _Member) -> None:
        """Gives it its place."""
        while (present := self._members.get(member.place)) is not None:
            try:
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await present.left.wait()
            except TimeoutError:
                raise _RefusedError(
                    f"{member.host} has a worker already, process {present.process}, in {_job_of(present)}: "
                    f"end that one first, or give this job a name of its own (FANIN_JOB)"
                ) from None
        asked = member.request
        for other in self._members.values():
            theirs = other.request
            if theirs.name != asked.name or (asked.name is None and not set(theirs.hosts) & set(asked.hosts)):
                continue
            if theirs.hosts != asked.hosts and asked.name is not None and other.mates:
                raise _RefusedError(f"there is {_job_of(other)}: give this one another name (FANIN_JOB)")
            if theirs != asked and not other.mates:
                raise _RefusedError(
                    f"{other} waits for a job of {theirs}, and the one on {member.host} asks for {asked}: all must "
                    "ask for the same"
                )
        self._members[member.place] = member
        _log("has joined", member)

    def _gather(self, member: _Member) -> None:
        """Forms the job if all are there, or tells those that are who is missing."""
        request = member.request
        waiting = self._waiting(request)
        if len(waiting) < len(request.hosts):
            self._tell_who_is_missing(waiting)
            return
        for each in waiting:
            each.mates = waiting
        self._jobs.begin(request, waiting)

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


@contextmanager
def _hanging_up_at_the_end_of_its_process(writer: asyncio.StreamWriter) -> Iterator[None]:
    """Children that it has forked have the connection, too, and may outlive it."""
    credentials = writer.get_extra_info("socket").getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size
    )
    try:
        process = os.pidfd_open(_UCRED.unpack(credentials)[0])
    except ProcessLookupError:  # it has ended already
        writer.close()
        yield
        return
    except OSError:  # of a kernel older than 5.3, or of a process that is not seen from here
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_reader(process, writer.close)
    try:
        yield
    finally:
        loop.remove_reader(process)
        os.close(process)


def _job_of(member: _Member) -> str:
    request = member.request
    called = "" if request.name is None else f" called {request.name}"
    return f"a job of {', '.join(request.hosts)}{called}"


def _log(what: str, member: _Member) -> None:
    said = {"job": member.request.name, "host": member.host, "pid": member.process}
    _logger.info("%s %s", member, what, extra=said)


def _bind(path: Path) -> socket.socket:
    """A socket at a path of any length: an address holds 107 bytes, and this one is short."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        server.bind(f"/proc/self/fd/{folder}/{path.name}")
    except OSError:
        server.close()
        raise
    finally:
        os.close(folder)
    return server
