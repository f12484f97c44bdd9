"""The main program of a controller process: it takes requests on its standard input, or is a standby."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Any, BinaryIO, Self

from finsy.proto import p4i

from fanin.controller.controller import Controller
from fanin.controller.errors import ControllerError
from fanin.controller.jobs.ledger import Ledger
from fanin.controller.planner import planner_of
from fanin.controller.schema import schema_of
from fanin.controller.standby import Standby
from fanin.controller.tree import Tree
from fanin.testbed.control.controller_subprocess import BEAT_SECONDS, Setup, packed, read
from fanin.testbed.monitoring.logs import logging_to


class _Calls:
    """The requests that `controller` can carry out."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.by_name: Mapping[str, Callable[..., Awaitable[Any]]] = {
            "grant": self._grant,
            "withdraw": self._withdraw,
            "tend": self._tend,
            "reroute": controller.reroute,
        }

    async def _grant(self, hosts: Sequence[str], udp_port: int, base: int, slots: int) -> Tree:
        return (await self._controller.grant(hosts, udp_port, base, slots)).tree

    async def _withdraw(self, lease: int) -> None:
        """Revoke a lease. Do nothing if it is not in force: an earlier controller may have done it."""
        for grant in self._controller.in_force:
            if grant.id == lease:
                await grant.withdraw()

    async def _tend(self, read_tables: bool) -> Any:
        return await self._controller.tend(read_tables=read_tables)


class _Output:
    """Writer of answers and heartbeats. A thread sends the heartbeats, since the event loop may be busy for long."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._alone = threading.Lock()
        self._ends = threading.Event()
        self._beating = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Self:
        self._beating.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._ends.set()
        self._beating.join()

    def answer(self, done: bool, what: object) -> None:
        """Send the answer to the last request."""
        self._send((done, what))

    def _beat(self) -> None:
        with suppress(BrokenPipeError):
            while not self._ends.wait(BEAT_SECONDS):
                self._send(None)

    def _send(self, message: object) -> None:
        with self._alone:
            self._file.write(packed(message))
            self._file.flush()


async def _serve(answer: Callable[[bool, object], None]) -> None:
    """Serve requests until standard input closes."""
    asked = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(asked), sys.stdin)

    sessions = None
    try:
        setup: Setup = await read(asked)
        p4info = p4i.P4Info.FromString(setup.p4info)
        if setup.standby:
            schema = schema_of(p4info, setup.device_config)
            async with Standby(setup.topology, schema, setup.patience, setup.election_id) as standby:
                answer(True, None)
                setup = await read(asked)
                sessions = await standby.take()
    except asyncio.IncompleteReadError:
        return
    controller = Controller(
        setup.topology,
        p4info,
        setup.device_config,
        Ledger(setup.ledger),
        setup.patience,
        planner_of(setup.planner),
        setup.in_force,
        setup.election_id,
        sessions,
    )
    async with AsyncExitStack() as stack:
        if setup.log is not None:
            stack.enter_context(logging_to(setup.log))
        try:
            await stack.enter_async_context(controller)
        except ControllerError as error:
            answer(False, error)
            return
        answer(True, None)
        calls = _Calls(controller)
        while True:
            try:
                name, arguments = await read(asked)
            except asyncio.IncompleteReadError:
                return
            try:
                answer(True, await calls.by_name[name](*arguments))
            except ControllerError as error:
                answer(False, error)
            except Exception as error:
                # The next controller does not repeat the request, which would fail again. It undoes what is half done.
                answer(False, ControllerError(f"the controller ends because {name} failed: {error!r}"))
                raise


def main() -> None:
    """Serve the requests of the parent process."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # so that it ends without a traceback; `fanin up` reports it
    # What a user's planner prints must not mix with the answers. The reader may be gone.
    with suppress(BrokenPipeError), os.fdopen(os.dup(1), "wb") as output:
        os.dup2(2, 1)
        with _Output(output) as told:
            asyncio.run(_serve(told.answer))


if __name__ == "__main__":
    main()
