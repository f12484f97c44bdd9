"""A job service without a controller, and workers whose every message can be seen."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import grpc
import grpc.aio

from fanin.controller.errors import ControllerError
from fanin.controller.job_service import jobs_pb2 as pb
from fanin.controller.job_service.json_lines_server import serving_workers
from fanin.controller.job_service.messages import document_of, fill
from fanin.controller.job_service.server import SERVICE, serving
from fanin.controller.jobs.budget import NoRoomError
from fanin.controller.jobs.lifecycle import JobRequest, Jobs
from fanin.controller.jobs.membership import JobService
from fanin.testbed.monitoring.snapshot import Cell, Cells, LinkView, Snapshot, SwitchView
from fanin.workers import Lease, Recovery
from tests.testbed.monitoring.snapshots import NOW, job, waiting, worker

GRPC = "grpc.sock"  # the name of a socket where gRPC is spoken

_UNKNOWN = dict.fromkeys(("rate", "up", "packets", "bytes", "lost", "queue_bytes"))
LOOK = Snapshot(
    at=NOW,
    jobs=(job(worker("h1", 7, waiting(8, chunks=((5, 7),))), worker("h2", None)),),
    forming=(),
    switches={"leaf1": SwitchView(slots=4, drops={"queue": 3}), "leaf2": SwitchView(slots=0, error="gone")},
    links=(
        LinkView(sender="h1", receiver="leaf1", **_UNKNOWN),
        LinkView(
            sender="leaf1",
            receiver="h1",
            rate=10**12,
            up=False,
            packets=0,
            bytes=1 << 40,
            lost=0,
            queue_bytes=0,
        ),
    ),
)
CELLS = {"leaf1": Cells(cells={0: Cell(lease=7, chunk=5, seen=1, done=True)}), "leaf2": Cells(error="gone")}


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
    without: Callable[[str, str], AbstractContextManager[None]]
    absent: set[tuple[str, str | None]]

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
        self.jobs = Jobs(
            self.open, self.reports.append, lambda _: ()
        )  # those of the service, once there is one

    def open(self, request: JobRequest) -> FakeJob:
        self.open_jobs.append(FakeJob(self, request))
        return self.open_jobs[-1]

    async def until(self, happened: Callable[[], bool]) -> None:
        while not happened():
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 20)


class Wire(Protocol):
    """A connection to the service, by lines or by gRPC; what is said is shown as lines have it."""

    def write(self, line: bytes) -> None: ...
    async def read(self) -> Any: ...
    async def close(self) -> None: ...


class Lines:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def write(self, line: bytes) -> None:
        self._writer.write(line + b"\n")

    async def read(self) -> Any:
        line = await self._reader.readline()
        return json.loads(line) if line else None

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


class Grpc:
    def __init__(self, path: Path) -> None:
        self._channel = grpc.aio.insecure_channel(f"unix:{path}")
        join = self._channel.stream_stream(
            f"/{SERVICE}/Join",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=pb.FromService.FromString,
        )
        self._said: asyncio.Queue[pb.ToService | None] = asyncio.Queue()
        self._call = join(self._requests())
        self.code = grpc.StatusCode.OK

    async def _requests(self) -> AsyncIterator[pb.ToService]:
        while (message := await self._said.get()) is not None:
            yield message

    def write(self, line: bytes) -> None:
        self.send(_to_service(json.loads(line)))

    def send(self, message: pb.ToService) -> None:
        self._said.put_nowait(message)

    async def read(self) -> Any:
        try:
            told = await self._call.read()
        except grpc.aio.AioRpcError as error:
            told, self.code = grpc.aio.EOF, error.code()
            self._call = _Ended()
            return {"error": error.details()}
        return None if told is grpc.aio.EOF else _line_of(told)

    async def close(self) -> None:
        """As who is killed, or loses its network."""
        self._call.cancel()
        await self._channel.close()


class _Ended:
    async def read(self) -> Any:
        return grpc.aio.EOF

    def cancel(self) -> None:
        pass


def _to_service(line: Any) -> pb.ToService:
    match line:
        case {"host": _, "hosts": hosts, **rest}:
            request = pb.JoinRequest(**{k: v for k, v in rest.items() if v is not None}, host=line["host"])
            if isinstance(hosts, int):
                request.count = hosts
            elif hosts is not None:
                request.names.names.extend(hosts)
            return pb.ToService(join=request)
        case {"finished": [count, port], **rest}:
            return pb.ToService(finished=pb.Finished(count=count, port=port, **rest))
    said = pb.ToService()
    fill(said, line)
    return said


def _line_of(told: pb.FromService) -> Any:
    what = told.WhichOneof("message")
    assert what is not None
    match what, getattr(told, what):
        case "waiting_for", names:
            return {what: list(names.names)}
        case "assignment", assignment:
            return document_of(assignment)
        case "carry_on", counts:
            return {what: [None if each.ended else [each.count, each.port] for each in counts.finished]}
        case "group", group:
            said = document_of(group)
            return {what: (said.pop("assignment") or {}) | said}
        case "where", _:
            return {what: None}
        case _, str(text):
            return {what: text}
        case _, message:
            return {what: document_of(message)}


class Worker:
    """A connection to the service, on which what is said can be seen."""

    all: ClassVar[list["Worker"]] = []

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.all.append(self)

    @classmethod
    async def open(cls, path: Path) -> "Worker":
        if path.name == GRPC:
            return cls(Grpc(path))
        return cls(Lines(*await asyncio.open_unix_connection(path)))

    @classmethod
    async def connect(
        cls, path: Path, host: str, hosts: object = None, process: int = 1, **asked: object
    ) -> "Worker":
        worker = await cls.open(path)
        worker.say(json.dumps({"host": host, "process": process, "hosts": hosts, **asked}).encode())
        return worker

    @classmethod
    async def end_all(cls) -> None:
        while cls.all:
            with suppress(ConnectionError):
                await cls.all.pop().end()

    def say(self, line: bytes) -> None:
        self.wire.write(line)

    async def hear(self) -> Any:
        """The next message; None: it has hung up."""
        return await asyncio.wait_for(self.wire.read(), 20)

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
        await self.wire.close()


class Inspector:
    """In place of who looks into a network."""

    async def look(self) -> Snapshot:
        return LOOK

    async def cells(self, name: str) -> Mapping[str, Cells]:
        if name != "train":
            raise ControllerError(f"no job is called {name}")
        return CELLS


Check = Callable[[Path, FakeGrants], Awaitable[None]]
With = Callable[[Check], None]


def served(path: Path) -> With:
    """Calls a coroutine function with the path of a service for h1, h2 and h3, and the grants behind it."""

    async def run(check: Check) -> None:
        grants = FakeGrants()
        service = JobService(["h1", "h2", "h3"], grants.open, grants.reports.append)
        grants.jobs = service.jobs
        grants.without, grants.absent = service.without, service._absent
        serve = serving(service, Inspector(), path) if path.name == GRPC else serving_workers(service, path)
        async with serve, service:
            try:
                await check(path, grants)
            finally:
                await Worker.end_all()
        assert not path.exists()

    return lambda check: asyncio.run(run(check))
