"""The job service on TCP: who has a certificate of its authority reaches it, and nobody else."""

import asyncio
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from fanin.controller.errors import ControllerError
from fanin.controller.job_service import jobs_pb2, server
from fanin.controller.job_service.server import SERVICE, serving
from fanin.controller.job_service.tls import context_of, serving_tls
from fanin.controller.jobs.membership import JobService
from tests.controller.certificates import certificates
from tests.controller.job_service import FakeGrants, Inspector

pb: Any = jobs_pb2

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


@pytest.fixture(name="certificates", scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a certificate of another authority."""
    return certificates(tmp_path_factory.mktemp("tls") / "theirs")


Check = Callable[[int, FakeGrants], Awaitable[None]]


def served(folder: Path, certificates: Path, check: Check) -> None:
    async def run() -> None:
        grants = FakeGrants()
        service = JobService(["h1", "h2", "h3"], grants.open, grants.reports.append)
        path = folder / "jobs.sock"
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        async with (
            serving(service, Inspector(), path),
            serving_tls(listener, context_of(certificates), path),
            service,
        ):
            await check(port, grants)

    asyncio.run(run())


def channel(port: int, ca: Path, own: Path | None, name: str = "client") -> grpc.aio.Channel:
    key = certificate = None
    if own is not None:
        key, certificate = (own / f"{name}.key").read_bytes(), (own / f"{name}.crt").read_bytes()
    credentials = grpc.ssl_channel_credentials((ca / "ca.crt").read_bytes(), key, certificate)
    return grpc.aio.secure_channel(f"localhost:{port}", credentials)


async def join(on: grpc.aio.Channel) -> Any:
    call = on.stream_stream(f"/{SERVICE}/Join", pb.ToService.SerializeToString, pb.FromService.FromString)()
    await call.write(pb.ToService(join=pb.JoinRequest(host="h1", process=1, count=1)))
    return call


@pytest.mark.slow
def test_a_client_with_a_certificate_is_a_member_until_it_hangs_up(
    tmp_path: Path, certificates: Path
) -> None:
    async def check(port: int, grants: FakeGrants) -> None:
        async with channel(port, certificates, certificates) as on:
            call = await join(on)
            told = await asyncio.wait_for(call.read(), 20)
            assert told.assignment.config.lease.id == 1
            look = on.unary_unary(
                f"/{SERVICE}/Look", pb.LookRequest.SerializeToString, pb.LookResponse.FromString
            )
            assert (await look(pb.LookRequest())).jobs[0].name == "train"
            assert not grants.withdrawn
            call.cancel()
        await grants.until(lambda: grants.withdrawn == [1])

    served(tmp_path, certificates, check)


@pytest.mark.parametrize("how", ["reset", "silent"])
def test_the_end_of_the_connection_is_the_end_of_the_membership(
    tmp_path: Path, certificates: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends by a reset, or the client's machine is cut off: then no FIN comes, and pings are not answered."""
    options = dict(server._OPTIONS)
    soon = {name: value // 50 for name, value in options.items() if name.endswith("_ms")}
    monkeypatch.setattr(server, "_OPTIONS", list((options | soon).items()))

    async def check(port: int, grants: FakeGrants) -> None:
        between: list[asyncio.StreamWriter] = []
        cut = False

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            between.extend((writer, far_writer))

            async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
                while data := await source.read(1 << 16):
                    if not cut:
                        target.write(data)

            await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer), return_exceptions=True)

        relays = await asyncio.start_server(relay, "127.0.0.1", 0)
        async with channel(relays.sockets[0].getsockname()[1], certificates, certificates) as on:
            call = await join(on)
            await asyncio.wait_for(call.read(), 20)
            cut = True
            if how == "silent":
                await grants.until(lambda: grants.withdrawn == [1])
            relays.close()
            for writer in between:
                writer.transport.abort()
            await grants.until(lambda: grants.withdrawn == [1])

    served(tmp_path, certificates, check)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["none", "of another authority", "a server's"])
def test_without_a_certificate_of_the_authority_nothing_is_answered(
    tmp_path: Path, certificates: Path, strange: Path, which: str
) -> None:
    own = {"none": None, "of another authority": strange, "a server's": certificates}[which]

    async def check(port: int, grants: FakeGrants) -> None:
        async with channel(port, certificates, own, "server" if which == "a server's" else "client") as on:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await (await join(on)).read()
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        assert not grants.granted

    served(tmp_path, certificates, check)


def test_what_is_no_tls_or_an_old_one_is_refused(tmp_path: Path, certificates: Path) -> None:
    def old(port: int) -> None:
        context = ssl.create_default_context(cafile=certificates / "ca.crt")
        context.load_cert_chain(certificates / "client.crt", certificates / "client.key")
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
        with socket.create_connection(("127.0.0.1", port)) as plain:
            context.wrap_socket(plain, server_hostname="localhost")

    def none(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port)) as plain:
            plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            return plain.recv(100)

    async def check(port: int, _grants: FakeGrants) -> None:
        with pytest.warns(DeprecationWarning, match="TLS"), pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(old, port)
        said = await asyncio.to_thread(none, port)
        assert not said or said[0] == 21  # an alert of TLS

    served(tmp_path, certificates, check)


@pytest.mark.parametrize("name", ["ca.crt", "server.crt", "server.key"])
def test_a_file_that_is_missing_or_something_else_is_named(
    tmp_path: Path, certificates: Path, name: str
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(certificates, folder)
    (folder / name).write_text("nonsense")
    with pytest.raises(ControllerError, match=re.escape(name)):
        context_of(folder)
    (folder / name).unlink()
    with pytest.raises(ControllerError, match=f"{re.escape(name)}: No such file"):
        context_of(folder)


def test_a_key_of_another_certificate_or_with_a_password_is_refused(
    tmp_path: Path, certificates: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(certificates, folder)
    shutil.copy(folder / "client.key", folder / "server.key")
    with pytest.raises(ControllerError, match=r"server\.key are not a certificate and its key"):
        context_of(folder)
    command = [
        "openssl",
        "rsa",
        "-aes128",
        "-passout",
        "pass:secret",
        "-in",
        "client.key",
        "-out",
        "server.key",
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    with pytest.raises(ControllerError, match="without a password"):
        context_of(folder)
