"""A job service without a controller, and workers whose every message can be seen."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from controller.budget import NoRoomError
from controller.errors import ControllerError
from controller.jobs import JobRequest, Jobs
from controller.membership import JobService
from workers import Lease, Recovery


@dataclass(eq=False)
class FakeJob:
    """Says what it is asked; its lease is its number."""

    grants: "FakeGrants"
    request: JobRequest
    number: int = 0

    @property
    def hosts(self) -> tuple[str, ...]:
        return self.request.hosts

    async def grant(self) -> None:
        grants = self.grants
        slots = self.request.slots or 0
        if slots > grants.room:
            raise NoRoomError(f"leaf1 has {grants.room} slots free; the job needs {slots}")
        grants.granted.append(self.hosts)
        number = len(grants.granted)
        grants.changed.set()
        await grants.gate.wait()
        if grants.ended:
            raise RuntimeError("the controller has ended with signal SIGKILL")
        if grants.fails:
            raise ControllerError("leaf1 refuses")
        grants.room -= slots
        self.number = number

    def assignment(self, host: str) -> Mapping[str, Any]:
        rank = self.hosts.index(host)
        config = {
            "lease": asdict(Lease(self.number or 1, rank, len(self.hosts), window=4, first_chunk=100)),
            "local": ("127.0.0.1", 0),
            "remote": ("127.0.0.1", 0xBEE0),
            "segments": 8,
            "offload": False,
            "recovery": asdict(Recovery(give_up=5.0)),
        }
        addresses = [("127.0.0.1", 0) for _ in self.hosts]
        return {"rank": rank, "addresses": addresses, "config": config if self.number else None}

    def lease(self) -> Mapping[str, Any]:
        return {"lease": self.number or None}

    async def withdraw(self) -> None:
        if not self.number:
            return
        self.grants.room += self.request.slots or 0
        self.grants.withdrawn.append(self.number)
        self.number = 0
        self.grants.changed.set()
        if self.grants.fails:
            raise ControllerError("leaf1 does not answer")

    def close(self) -> None:
        self.grants.open_jobs.remove(self)
        self.grants.changed.set()


class FakeGrants:
    """In place of a controller. jobs: whose they are. gate: grants wait for it. fails: whether it refuses. ended: for
    good. room: slots that are free.
    """

    jobs: Jobs

    def __init__(self) -> None:
        self.granted: list[tuple[str, ...]] = []
        self.withdrawn: list[int] = []
        self.reports: list[str] = []
        self.changed = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails = False
        self.ended = False
        self.room = 1024
        self.open_jobs: list[FakeJob] = []

    def open(self, request: JobRequest) -> FakeJob:
        self.open_jobs.append(FakeJob(self, request))
        return self.open_jobs[-1]

    async def until(self, happened: Callable[[], bool]) -> None:
        while not happened():
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 20)


class Worker:
    """A connection to the service, on which what is said can be seen."""

    all: ClassVar[list["Worker"]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.all.append(self)

    @classmethod
    async def connect(
        cls, path: Path, host: str, hosts: object = None, process: int = 1, **asked: object
    ) -> "Worker":
        worker = cls(*await asyncio.open_unix_connection(path))
        worker.say(json.dumps({"host": host, "process": process, "hosts": hosts, **asked}).encode())
        return worker

    @classmethod
    async def end_all(cls) -> None:
        while cls.all:
            with suppress(ConnectionError):
                await cls.all.pop().end()

    def say(self, line: bytes) -> None:
        self._writer.write(line + b"\n")

    async def hear(self) -> Any:
        """The next message; None: it has hung up."""
        line = await asyncio.wait_for(self._reader.readline(), 20)
        return json.loads(line) if line else None

    async def rank(self) -> tuple[int, int]:
        """Lease and rank, whatever it was told before."""
        while "config" not in (message := await self.hear()):
            assert "error" not in message, message
        return message["config"]["lease"]["id"], message["rank"]

    async def error(self) -> str:
        while "error" not in (message := await self.hear()):
            pass
        assert await self.hear() is None
        return str(message["error"])

    async def end(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


Check = Callable[[Path, FakeGrants], Awaitable[None]]
With = Callable[[Check], None]


def served(path: Path) -> With:
    """Calls a coroutine function with the path of a service for h1, h2 and h3, and the grants behind it."""

    async def run(check: Check) -> None:
        grants = FakeGrants()
        service = JobService(["h1", "h2", "h3"], grants.open, grants.reports.append)
        grants.jobs = service.jobs
        async with service.serve(path):
            try:
                await check(path, grants)
            finally:
                await Worker.end_all()
        assert not path.exists()

    return lambda check: asyncio.run(run(check))
