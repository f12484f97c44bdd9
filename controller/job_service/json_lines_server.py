"""The socket of the network's own workers: a Unix socket, lines of JSON (docs/explanation/jobs.md).

A worker needs no more than this. gRPC in the worker would have three disadvantages:

- Its threads do not survive a fork.
- The last message before the worker is killed may be lost.
- The kernel could not report the end of the worker's process, which it does for a Unix socket.
"""

import asyncio
import errno
import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from fanin.controller.job_service.addresses import address_of
from fanin.controller.jobs.membership import JobService, NoMessageError, NoRequestError, RefusedError

_UCRED = struct.Struct("iII")  # a process, its user and its group: struct ucred, see unix(7)
_MAX_UNREAD = 1 << 20  # bytes


class _Line:
    """A connection to a worker."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def tell(self, message: Mapping[str, Any]) -> None:
        if self._writer.is_closing():
            return
        self._writer.write(json.dumps(message).encode() + b"\n")
        if self._writer.transport.get_write_buffer_size() > _MAX_UNREAD:
            self._writer.transport.abort()

    def dismiss(self, why: str) -> None:
        self.tell({"error": why})
        self._writer.close()


@asynccontextmanager
async def serving_workers(service: JobService, path: Path) -> AsyncIterator[None]:
    """Serve the network's workers at `path` while inside."""
    connections: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections[writer] = asyncio.current_task()
        line = _Line(writer)
        try:
            with _hanging_up_at_the_end_of_its_process(writer):
                await _attend(service, reader, line)
        except RefusedError as error:
            line.dismiss(str(error))
        except (NoMessageError, ConnectionError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            del connections[writer]

    server = await asyncio.start_unix_server(serve, sock=_bind(path))
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)
        for writer in connections:
            writer.close()
        await asyncio.gather(*filter(None, connections.values()), return_exceptions=True)


async def _attend(service: JobService, reader: asyncio.StreamReader, line: _Line) -> None:
    async def messages() -> AsyncIterator[Any]:
        while said := await reader.readline():
            yield json.loads(said)

    try:
        request = json.loads(await reader.readline())
    except (ValueError, RecursionError) as error:  # also for a line that is too long
        raise NoRequestError(f"not a request to join: {error}") from None
    await service.attend(request, line, messages())


@contextmanager
def _hanging_up_at_the_end_of_its_process(writer: asyncio.StreamWriter) -> Iterator[None]:
    """Close the connection when the worker's process ends.

    Its forked children have the connection, too, and may outlive it.
    """
    credentials = writer.get_extra_info("socket").getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size
    )
    try:
        process = os.pidfd_open(_UCRED.unpack(credentials)[0])
    except ProcessLookupError:  # it has ended already
        writer.close()
        yield
        return
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise RefusedError(f"the job service cannot accept more workers: {error.strerror}") from None
        yield  # a kernel older than 5.3, or a process in a namespace that is not visible from here
        return
    loop = asyncio.get_running_loop()
    loop.add_reader(process, writer.close)
    try:
        yield
    finally:
        loop.remove_reader(process)
        os.close(process)


def _bind(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        with address_of(path) as address:
            server.bind(address)
    except OSError:
        server.close()
        raise
    return server
