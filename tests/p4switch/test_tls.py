"""The gRPC server over TLS: alone, or with certificates of its clients; wrong files are named."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc

from fanin.p4switch.p4runtime.device import Device
from fanin.p4switch.p4runtime.server import P4RuntimeService, serve
from fanin.p4switch.tls import TlsError, TlsFiles

TIMEOUT = 10

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="certificates are made by openssl: apt-get install openssl"
)


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """NAME.crt and NAME.key of two authorities, `ca` and `other`, and of a server and a client signed by `ca`."""
    folder = tmp_path_factory.mktemp("certificates")
    new = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]

    def certificate(name: str, *options: str | Path) -> None:
        files = ["-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt"]
        openssl(*new, *files, "-subj", f"/CN={name}", *options)

    signed = ["-CA", folder / "ca.crt", "-CAkey", folder / "ca.key"]
    for authority in "ca", "other":
        certificate(authority)
    certificate("server", *signed, "-addext", "subjectAltName=IP:127.0.0.1")
    certificate("client", *signed)
    return folder


@contextmanager
def served(folder: Path, client_ca: str | None) -> Iterator[str]:
    """Where a switch serves over TLS."""
    device = Device({}, None, 511)
    ca = folder / client_ca if client_ca else None
    files = TlsFiles(folder / "server.crt", folder / "server.key", ca)
    server, port = serve(P4RuntimeService(device, 1), "127.0.0.1:0", credentials=files.credentials())
    yield f"127.0.0.1:{port}"
    server.stop(grace=0).wait()
    device.stop()


def answers(channel: grpc.Channel) -> bool:
    with channel:
        try:
            p4r_grpc.P4RuntimeStub(channel).Capabilities(p4r.CapabilitiesRequest(), timeout=TIMEOUT)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            return False
        return True


def tls(folder: Path, address: str, authority: str = "ca", client: str | None = None) -> grpc.Channel:
    def read(name: str) -> bytes:
        return (folder / name).read_bytes()

    own = {"private_key": read(f"{client}.key"), "certificate_chain": read(f"{client}.crt")} if client else {}
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(read(f"{authority}.crt"), **own))


def test_clients_know_the_server(folder: Path) -> None:
    with served(folder, None) as address:
        assert answers(tls(folder, address))
        assert answers(tls(folder, address, client="client"))
        assert not answers(tls(folder, address, authority="other"))
        assert not answers(grpc.insecure_channel(address))


def test_the_server_knows_its_clients(folder: Path) -> None:
    with served(folder, "ca.crt") as address:
        assert answers(tls(folder, address, client="client"))
        assert not answers(tls(folder, address))
        assert not answers(tls(folder, address, client="other"))
        assert not answers(grpc.insecure_channel(address))


def test_one_option_of_the_command_line_for_certificates_of_both_sides(folder: Path, tmp_path: Path) -> None:
    """No certificate: refused; one of another authority: refused; the right one: served."""
    for name in ("server.crt", "server.key", "ca.crt"):
        shutil.copy(folder / name, tmp_path)
    target = ["--", "--grpc-server-addr", "127.0.0.1:0", "--grpc-mutual-tls", str(tmp_path)]
    command = [sys.executable, "-m", "fanin.p4switch", "--no-p4", *target]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as switch:
        try:
            assert switch.stdout is not None
            address = switch.stdout.readline().split()[2].removeprefix("grpc=")
            assert answers(tls(folder, address, client="client"))
            assert not answers(tls(folder, address))
            assert not answers(tls(folder, address, client="other"))
            assert not answers(grpc.insecure_channel(address))
        finally:
            switch.terminate()


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("nowhere.crt", "server.key", None), "nowhere.crt: No such file"),
        (("server.crt", "nowhere.key", None), "nowhere.key: No such file"),
        (("server.crt", "server.key", "nowhere.crt"), "nowhere.crt: No such file"),
        (("server.crt", "client.key", None), "server.crt and .*client.key are no certificate and its key"),
        (("server.key", "server.key", None), "are no certificate and its key"),
        (("server.crt", "server.key", "client.key"), "client.key has no certificate"),
    ],
)
def test_wrong_files_are_named(folder: Path, names: tuple[str, str, str | None], why: str) -> None:
    certificate, key, ca = (folder / name if name else None for name in names)
    assert certificate is not None
    assert key is not None
    with pytest.raises(TlsError, match=why):
        TlsFiles(certificate, key, ca).credentials()
