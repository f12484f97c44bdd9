"""The job service of a network: a worker joins by its host's name, and each job gets a lease of its own.

On a Unix socket, in lines of JSON. A worker sends one, {"host": "h1", "process": 4711, "hosts": null}: its host, its
process id, and the hosts of its job: names, how many (the first ones), or null for all. It is told who is missing,
{"waiting_for": ["h2"]}, whenever that changes, and in the end what the job was granted or {"error": "why not"}. Later
on it is told who of its job has ended, {"left": {"host": "h2", "rank": 1, "process": 4712}}.

The connection is the membership. It stays open for the worker's life; when all of a job's have ended, its lease is
withdrawn. So what the next job sends and what this one has left on the way are never taken for one another's.
"""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from controller.errors import ControllerError

_LEAVE_SECONDS = 1.0  # that a process which has just ended may need to be gone for everybody


class GrantedJob(Protocol):
    """What the service hands to the members of a job."""

    def assignment(self, host: str) -> Mapping[str, Any]:
        """All that the worker on `host` needs, as JSON has it."""

    async def withdraw(self) -> None:
        """Nobody uses it any more."""


Grant = Callable[
    [tuple[str, ...]], Awaitable[GrantedJob]
]  # of the job's hosts, by rank; ControllerError: not now


class _RefusedError(Exception):
    """What a worker is told."""


@dataclass(eq=False, slots=True)
class _Member:
    """A worker that is connected; `hosts`: its job's, by rank."""

    host: str
    process: int
    hosts: tuple[str, ...]
    writer: asyncio.StreamWriter
    left: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, message: Mapping[str, Any]) -> None:
        if not self.writer.is_closing():
            self.writer.write(json.dumps(message).encode() + b"\n")

    def __str__(self) -> str:
        return f"{self.host}'s worker, process {self.process},"


class JobService:
    """Brings the workers on `hosts` together; `grant` makes a job of them, `report` is told what nobody waits for."""

    def __init__(self, hosts: Sequence[str], grant: Grant, report: Callable[[str], None]) -> None:
        self._hosts = tuple(hosts)
        self._grant = grant
        self._report = report
        self._members: dict[str, _Member] = {}  # by host
        self._forming: dict[str, _Member] = {}  # those whose job has not been granted
        self._granting = asyncio.Lock()  # a job that ends makes room before the next one is granted
        self._jobs: set[asyncio.Task[None]] = set()
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    @asynccontextmanager
    async def serve(self, path: Path) -> AsyncIterator[None]:
        """Inside, the service is reached at `path`."""
        server = await asyncio.start_unix_server(self._serve, sock=_bind(path))
        try:
            yield
        finally:
            server.close()
            path.unlink(missing_ok=True)
            for job in self._jobs:
                job.cancel()
            for writer in self._connections:
                writer.close()
            await asyncio.gather(*self._jobs, *self._connections.values(), return_exceptions=True)

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
            member = self._understand(line, writer)
        except (ValueError, RecursionError) as error:  # too long a line, too
            raise _RefusedError(f"that is not a request to join: {error}") from None
        await self._admit(member)
        try:
            self._gather(member)
            while await reader.read(1 << 12):
                pass
        finally:
            self._release(member)

    def _understand(self, line: bytes, writer: asyncio.StreamWriter) -> _Member:
        request = json.loads(line)
        match request:
            case {"host": str(host), "process": int(process), "hosts": asked}:
                pass
            case _:
                raise ValueError(f"it has host, process and hosts, not {line[:200]!r}")
        if host not in self._hosts:
            raise _RefusedError(f"no host is called {host}; there are {', '.join(self._hosts)}")
        match asked:
            case None:
                hosts = self._hosts
            case int(count) if not isinstance(count, bool):
                if 1 <= count <= len(self._hosts):
                    hosts = self._hosts[:count]
                else:
                    raise _RefusedError(f"hosts: is {count}, must be from 1 to {len(self._hosts)}")
            case list(names) if set(map(str, names)) <= set(self._hosts):
                hosts = tuple(known for known in self._hosts if known in names)
            case _:
                raise _RefusedError(f"hosts: is {asked}; there are {', '.join(self._hosts)}")
        if host not in hosts:
            raise _RefusedError(
                f"the worker on {host} asks for a job of {', '.join(hosts)}, which {host} is not in"
            )
        return _Member(host, process, hosts, writer)

    async def _admit(self, member: _Member) -> None:
        """Gives it its host's place."""
        while (present := self._members.get(member.host)) is not None:
            try:
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await present.left.wait()
            except TimeoutError:
                raise _RefusedError(
                    f"{member.host} has a worker already, process {present.process}, in a job of "
                    f"{', '.join(present.hosts)}: end that one first"
                ) from None
        for other in self._forming.values():
            if other.hosts != member.hosts and set(other.hosts) & set(member.hosts):
                raise _RefusedError(
                    f"{other} waits for a job of {', '.join(other.hosts)}, and the one on {member.host} asks for "
                    f"{', '.join(member.hosts)}: all must ask for the same hosts"
                )
        self._members[member.host] = self._forming[member.host] = member

    def _gather(self, member: _Member) -> None:
        """Forms the job if all are there, or tells those that are who is missing."""
        waiting = [self._forming[host] for host in member.hosts if host in self._forming]
        missing = [host for host in member.hosts if host not in self._forming]
        if missing:
            for each in waiting:
                each.tell({"waiting_for": missing})
            return
        for each in waiting:
            del self._forming[each.host]
        job = asyncio.create_task(self._hold(waiting))
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    def _release(self, member: _Member) -> None:
        """It has ended, or the service has."""
        member.left.set()
        del self._members[member.host]
        if self._forming.pop(member.host, None):
            waiting = [other for other in self._forming.values() if other.hosts == member.hosts]
            for other in waiting:
                other.tell({"waiting_for": [host for host in member.hosts if host not in self._forming]})
            return
        left = {"host": member.host, "rank": member.hosts.index(member.host), "process": member.process}
        for other in self._members.values():
            # The next job of these hosts forms only when this one's members have all gone.
            if other.hosts == member.hosts and other.host not in self._forming:
                other.tell({"left": left})

    async def _hold(self, members: Sequence[_Member]) -> None:
        """One job, from its grant to its end."""
        hosts = members[0].hosts
        try:
            async with self._granting:
                job = await self._grant(hosts)
        except ControllerError as error:
            self._dismiss(members, str(error))
            return
        if gone := [member for member in members if member.left.is_set()]:
            self._dismiss(members, f"{gone[0]} ended before the job began: start all of them again")
        else:
            for member in members:
                member.tell(job.assignment(member.host))
        for member in members:
            await member.left.wait()
        try:
            async with self._granting:
                await job.withdraw()
        except ControllerError as error:
            self._report(f"the lease of {', '.join(hosts)} is not withdrawn yet: {error}")

    def _dismiss(self, members: Sequence[_Member], why: str) -> None:
        for member in members:
            member.tell({"error": why})
            member.writer.close()


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
