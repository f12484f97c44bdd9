"""Admission of unknown clients to a listening socket, within the file descriptors of this process."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

_logger = logging.getLogger(__name__)

MAX_PENDING = 64  # connections whose client is not authenticated yet
MAX_ADMITTED = 256
# Each kind may use 1/_SHARE of all file descriptors; an admitted connection may need three.
_SHARE = 8
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_SECONDS = 0.5  # how long to wait before accepting again when there was no file descriptor

Admit = Callable[[], bool]
Serve = Callable[[socket.socket, Admit], Coroutine[Any, Any, None]]


class _Admission:
    """The connections of one listener, by the task that serves each; pending ones in order of age."""

    def __init__(self) -> None:
        share = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE
        self._max_pending, self._max_admitted = min(MAX_PENDING, share), min(MAX_ADMITTED, share)
        self.pending: dict[asyncio.Task[None], str] = {}
        self.admitted: set[asyncio.Task[None]] = set()

    def begin(self, task: asyncio.Task[None], address: str) -> None:
        """Count a new connection, and end another one if too many are pending."""
        while len(self.pending) >= self._max_pending:
            self.end_one()
        self.pending[task] = address
        task.add_done_callback(self._end)

    def admit(self) -> bool:
        """Let the connection of the current task stay, or return False if there is no room for it."""
        task = asyncio.current_task()
        if task not in self.pending:
            return False
        if len(self.admitted) >= self._max_admitted:
            _logger.warning("refused a client: %d connections are open", len(self.admitted))
            return False
        del self.pending[task]
        self.admitted.add(task)
        return True

    def end_one(self) -> None:
        """End the oldest pending connection of the address that has the most."""
        if self.pending:
            [(busiest, _)] = Counter(self.pending.values()).most_common(1)
            oldest = next(task for task, address in self.pending.items() if address == busiest)
            del self.pending[oldest]
            oldest.cancel()

    def _end(self, task: asyncio.Task[None]) -> None:
        self.pending.pop(task, None)
        self.admitted.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.info("a connection has failed: %r", error)


def _close(connection: socket.socket, _: object) -> None:
    connection.close()


@asynccontextmanager
async def accepting(listener: socket.socket, serve: Serve) -> AsyncIterator[None]:
    """Accept connections, and serve each in a task; a connection is closed when its task ends.

    A connection is pending until `serve` calls the `admit` that it is given. When too many are pending, the oldest one
    of the address that has the most is cancelled, so that idle clients cannot keep others out.

    Args:
        listener: A listening TCP socket. It is closed at the end.
        serve: Called with each connection, which is non-blocking, and `admit`, which returns False if there is no room.
    """
    admission = _Admission()

    async def accept() -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listener)
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    admission.end_one()
                    await asyncio.sleep(_PAUSE_SECONDS)
                continue  # a client that has already disconnected is not an error
            connection.setblocking(False)
            task = asyncio.create_task(serve(connection, admission.admit))
            # The task does not close it itself: it does nothing if it is cancelled before it begins.
            task.add_done_callback(partial(_close, connection))
            admission.begin(task, address[0])

    listener.setblocking(False)
    accepts = asyncio.create_task(accept())
    try:
        yield
    finally:
        tasks = {accepts, *admission.pending, *admission.admitted}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        listener.close()
