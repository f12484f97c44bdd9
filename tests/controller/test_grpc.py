"""The job service over gRPC: what anybody may send it, members that do not read or vanish, and who only asks."""

import asyncio
import gc
import math
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc.aio import _server

from fanin.controller.job_service import jobs_pb2, server
from fanin.controller.job_service.messages import document_of, fill
from fanin.controller.job_service.server import SERVICE, serving
from fanin.controller.jobs.membership import JobService
from fanin.testbed import job_service_client as client
from fanin.testbed.job_service_client import JobServiceClient
from fanin.testbed.monitoring.snapshot import Cells, Snapshot
from fanin.testbed.running import JOB_SERVICE_GRPC
from fanin.testbed.runs import Run
from fanin.topologies.errors import NetworkError
from tests.controller.job_service import CELLS, GRPC, LOOK, FakeGrants, Grpc, Inspector, Worker, served

ROOT = Path(__file__).parents[2]

pb: Any = jobs_pb2

JOIN = pb.ToService(join=pb.JoinRequest(host="h1", process=1, count=1))


def within(path: Path, check: Callable[[Path, FakeGrants], Awaitable[None]]) -> None:
    served(path / GRPC)(check)


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ([pb.ToService()], "the first message of a stream must be join"),
        ([pb.ToService(at=3)], "the first message of a stream must be join"),
        ([JOIN, pb.ToService()], "it has none of the messages"),
        ([JOIN, JOIN], "not a message of a member"),
        ([JOIN, pb.ToService(leaving=False)], "not a message of a member"),
        ([JOIN, pb.ToService(report=pb.Report(rto=math.nan))], "not a message of a member"),
    ],
)
def test_messages_of_the_wrong_kind_or_order_end_the_stream(
    tmp_path: Path, said: list[Any], complaint: str
) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        wire = Grpc(path)
        worker = Worker(wire)
        for message in said:
            wire.send(message)
        assert complaint in await worker.error()
        assert wire.code == grpc.StatusCode.INVALID_ARGUMENT
        await until_none_is_there(grants)

    within(tmp_path, check)


async def until_none_is_there(grants: FakeGrants) -> None:
    await grants.until(lambda: not grants.open_jobs)


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"host": "h9"}, "no host is called h9; there are h1, h2, h3"),
        ({"count": 4}, "hosts: is 4, must be from 1 to 3"),
        ({"names": {"names": ["h7"]}}, "there are h1, h2, h3"),
        ({"names": {"names": ["h2"]}}, "a job of h2, which h1 is not in"),
        ({"names": {}}, "which h1 is not in"),
        ({"ring": True, "min_workers": 4}, "must be from 1 to 3"),
    ],
)
def test_a_request_that_cannot_be_granted_is_refused(
    tmp_path: Path, asked: dict[str, Any], complaint: str
) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        wire = Grpc(path)
        wire.send(pb.ToService(join=pb.JoinRequest(**{"host": "h1", "process": 1, **asked})))
        assert complaint in await Worker(wire).error()
        assert wire.code == grpc.StatusCode.FAILED_PRECONDITION
        assert not grants.granted

    within(tmp_path, check)


def test_a_message_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        wire = Grpc(path)
        wire.send(pb.ToService(join=pb.JoinRequest(host="h" * 100_000)))
        await Worker(wire).error()
        assert wire.code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert not grants.granted

    within(tmp_path, check)


def test_bytes_that_are_no_message_end_the_stream_alone(tmp_path: Path) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        other = await Worker.connect(path, "h2", ["h2"])
        await other.rank()
        async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
            call = channel.stream_stream(f"/{SERVICE}/Join")(iter([b"\xff\xff"]))
            with pytest.raises(grpc.aio.AioRpcError):
                await call.read()
        await other.end()
        await until_none_is_there(grants)

    within(tmp_path, check)


def test_a_member_that_does_not_read_is_hung_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MAX_UNREAD", 3)

    async def check(path: Path, grants: FakeGrants) -> None:
        deaf, other = [await Worker.connect(path, host, 2, job="a") for host in ("h1", "h2")]
        assert [await worker.rank() for worker in (deaf, other)] == [(1, 0), (1, 1)]
        [job] = grants.jobs._present
        text = "w" * (1 << 20)
        while not job.members[0].left.is_set():
            job.members[0].tell({"revoked": text})
            await asyncio.sleep(0)
        assert await other.hear() == {"left": {"host": "h1", "rank": 0, "process": 1}}

    within(tmp_path, check)


def test_a_worker_s_line_that_is_not_read_is_hung_up_on(tmp_path: Path) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        deaf, other = [await Worker.connect(path, host, 2, job="a") for host in ("h1", "h2")]
        assert [await worker.rank() for worker in (deaf, other)] == [(1, 0), (1, 1)]
        [job] = grants.jobs._present
        while not job.members[0].left.is_set():
            job.members[0].tell({"revoked": "w" * 100_000})
            await asyncio.sleep(0)
        assert await other.hear() == {"left": {"host": "h1", "rank": 0, "process": 1}}

    served(tmp_path / "workers.sock")(check)


def test_who_asks_all_the_time_does_not_flood_the_others(tmp_path: Path) -> None:
    async def check(path: Path, _grants: FakeGrants) -> None:
        pair = [await Worker.connect(path, host, 2, job="a") for host in ("h1", "h2")]
        for worker in pair:
            await worker.rank()
        for _ in range(1000):
            pair[0].say(b'{"waiting": 1}')
        assert await pair[1].hear() == {"where": None}
        await pair[0].end()
        assert await pair[1].hear() == {"left": {"host": "h1", "rank": 0, "process": 1}}

    within(tmp_path, check)


def test_documents_and_messages_are_the_same() -> None:
    response = pb.LookResponse()
    fill(response, LOOK.model_dump(mode="json"))
    assert (
        Snapshot.model_validate(document_of(pb.LookResponse.FromString(response.SerializeToString()))) == LOOK
    )
    with pytest.raises(KeyError):
        fill(response, {"weather": "fine"})


# The client, against a service in a thread.


@contextmanager
def network(folder: Path, start: str = "1") -> Iterator[tuple[Run, FakeGrants]]:
    folder = folder / f"fanin-run-1-4711-{start}"
    folder.mkdir()
    loop, grants, ending, ready = asyncio.new_event_loop(), FakeGrants(), asyncio.Event(), threading.Event()

    async def serve() -> None:
        service = JobService(["h1", "h2", "h3"], grants.open, grants.reports.append)
        grants.jobs, grants.absent = service.jobs, service._absent
        async with serving(service, Inspector(), folder / JOB_SERVICE_GRPC), service:
            ready.set()
            await ending.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    try:
        assert ready.wait(20)
        yield Run(folder), grants
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join()
        loop.close()


def test_a_client_lists_revokes_and_looks(tmp_path: Path) -> None:
    with network(tmp_path, "1" * 80) as (run, _):  # too long for an address
        service = JobServiceClient(run)
        assert service.list() == []
        assert Snapshot.model_validate(service.look()) == LOOK
        assert {name: Cells.model_validate(each) for name, each in service.cells("train").items()} == CELLS
        with pytest.raises(NetworkError, match=r"^no job is called tarin$"):
            service.cells("tarin")
        for ask in (service.revoke, service.times):
            with pytest.raises(NetworkError, match=r"^no job is called a; there are: none$"):
                ask("a")


def test_a_worker_is_absent_as_long_as_the_clients_call_lasts(tmp_path: Path) -> None:
    with network(tmp_path) as (run, grants):
        service = JobServiceClient(run)
        with service.absent("a", "h2"), service.absent("a", "h3"):
            assert grants.absent == {("h2", "a", 0), ("h3", "a", 0)}
        while grants.absent:
            service.list()


def test_a_client_that_is_killed_leaves_no_worker_absent(tmp_path: Path) -> None:
    text = """
import pathlib, sys, time
from fanin.testbed.job_service_client import JobServiceClient
from fanin.testbed.runs import Run
with JobServiceClient(Run(pathlib.Path(sys.argv[1]))).absent("a", "h2"):
    print("held", flush=True)
    time.sleep(1000)
"""
    with network(tmp_path) as (run, grants):
        command = [sys.executable, "-c", text, str(run.folder)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as caller:
            assert caller.stdout
            assert caller.stdout.readline() == "held\n"
            held = set(grants.absent)
            caller.kill()
        assert held == {("h2", "a", 0)}
        while grants.absent:
            JobServiceClient(run).list()


def test_a_service_that_does_not_answer_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_ANSWER_SECONDS", 0.1)
    folder = tmp_path / "fanin-run-1-4711-1"
    folder.mkdir()
    service = JobServiceClient(Run(folder))
    with pytest.raises(
        NetworkError, match="the network of process 4711 has no job service; only networks of"
    ):
        service.list()

    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(folder / JOB_SERVICE_GRPC))
        silent.listen()
        with pytest.raises(NetworkError, match=r"of process 4711 has not answered for 0\.1 s"):
            service.list()
    monkeypatch.undo()
    with pytest.raises(NetworkError, match="the network of process 4711 has just ended"):
        service.list()


def test_the_example_of_a_client_joins(tmp_path: Path) -> None:
    """As docs/how-to/job-client.md has it, with grpc and the .proto alone."""
    pytest.importorskip("grpc_tools")
    text = (
        (ROOT / "docs" / "how-to" / "job-client.md")
        .read_text()
        .partition("```python\n")[2]
        .partition("```")[0]
    )
    with network(tmp_path) as (run, grants):
        told = {"FANIN_HOST": "h1", "FANIN_JOB_SERVICE": str(run.folder / "workers.sock")}
        done = subprocess.run(
            [sys.executable, "-c", text],
            env=os.environ | told,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == "rank 0, lease 1\n", done.stderr
        assert grants.granted == [("h1",)]


@pytest.mark.slow
def test_a_server_that_is_interrupted_while_it_starts_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise gRPC complains when it forgets the server, after the event loop has been closed."""
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    starts = _server.Server.start

    async def start(its: _server.Server) -> None:
        await starts(its)
        raise asyncio.CancelledError

    monkeypatch.setattr(_server.Server, "start", start)

    async def serve() -> None:
        service = JobService(["h1"], FakeGrants().open, lambda _: None)
        async with serving(service, Inspector(), tmp_path / GRPC):
            raise AssertionError("it serves")

    with pytest.raises(asyncio.CancelledError) as interrupted:  # it keeps the server until after the loop
        asyncio.run(serve())
    del interrupted
    gc.collect()
    assert complaints == []
