"""The job service on TCP, with TLS and client certificates: a relay to its gRPC Unix socket."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from fanin.controller.admission import Admit, accepting
from fanin.controller.errors import ControllerError
from fanin.controller.job_service.addresses import address_of

CA, CERTIFICATE, KEY = "ca.crt", "server.crt", "server.key"  # in PEM, in one folder

HANDSHAKE_SECONDS = 10.0
_PIECE = 1 << 16  # bytes


def context_of(folder: Path) -> ssl.SSLContext:
    """Return a TLS context (at least TLS 1.2) with the certificate in `folder`, which requires clients' certificates.

    The clients' certificates must be signed by the authority in `folder`.

    Raises:
        ControllerError: If a file is missing or invalid.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    for name in (CA, CERTIFICATE, KEY):
        try:
            (folder / name).read_bytes()
        except OSError as error:
            raise ControllerError(
                f"{folder / name}: {error.strerror}; {CA}, {CERTIFICATE} and {KEY} must be there "
                "(docs/how-to/job-client.md)"
            ) from None
    try:
        context.load_verify_locations(folder / CA)
    except ssl.SSLError as error:
        raise ControllerError(f"{folder / CA} is not a certificate in PEM: {error}") from None
    try:
        # With this `password`, OpenSSL does not ask for one on the terminal.
        context.load_cert_chain(folder / CERTIFICATE, folder / KEY, password=lambda: "")
    except ssl.SSLError as error:
        raise ControllerError(
            f"{folder / CERTIFICATE} and {folder / KEY} are not a certificate and its key in PEM without a password: "
            f"{error}"
        ) from None
    return context


@asynccontextmanager
async def serving_tls(listener: socket.socket, context: ssl.SSLContext, path: Path) -> AsyncIterator[None]:
    """Relay clients that `listener` accepts to the Unix socket `path`, while inside."""

    async def serve(connection: socket.socket, admit: Admit) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=context, ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
        except OSError:  # no TLS, no certificate, or no answer in time
            return
        try:
            if admit():
                writer = asyncio.StreamWriter(transport, protocol, reader, loop)
                await _relay(reader, writer, path)
                async with asyncio.timeout(HANDSHAKE_SECONDS):  # for what has not been sent yet
                    await writer.wait_closed()
        except OSError:  # the client has disconnected
            pass
        finally:
            transport.abort()

    async with accepting(listener, serve):
        yield


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: Path) -> None:
    """Relay in both directions until either side ends."""
    writers = [writer]
    try:
        with suppress(OSError), address_of(path) as address:
            service_reader, service_writer = await asyncio.open_unix_connection(address)
            writers.append(service_writer)
            ways = {
                asyncio.create_task(_pass_on(reader, service_writer)),
                asyncio.create_task(_pass_on(service_reader, writer)),
            }
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
    finally:
        for each in writers:
            each.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass data on, no faster than it is accepted."""
    while data := await reader.read(_PIECE):
        writer.write(data)
        await writer.drain()
