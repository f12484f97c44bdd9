"""The controller of a network that is up, in a process of its own: what becomes of that is nothing to the jobs.

When it ends it is started again, and takes the switches over as they are, with the leases that are in force here. What
was asked of it meanwhile is asked again. Messages are pickled, each behind its length: both ends are this program.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from controller.controller import Findings
from controller.errors import ControllerError
from controller.tree import Tree
from experiments.scenario.own import planner_of
from topologies.errors import NetworkError
from topologies.live.patience import VARIABLE, Restarts
from topologies.model import Topology

_LENGTH = struct.Struct("=I")
_ANSWER_SECONDS = 120.0  # longer than a controller waits for all that a switch may be asked for
_LEAVE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Setup:
    """What a controller needs. p4info: serialized. log: see experiments.inside.logs.

    in_force: None: the switches have no program yet.
    """

    topology: Topology
    p4info: bytes
    device_config: bytes
    ledger: Path
    patience: float
    planner: Path | None
    log: Path | None = None
    in_force: tuple[Tree, ...] | None = None


@dataclass(frozen=True, slots=True)
class Granted:
    """A lease as the switches hold it, from `ControllerProcess.grant` until `withdraw`."""

    tree: Tree
    _process: ControllerProcess = field(repr=False)

    async def withdraw(self) -> None:
        """See controller.Grant."""
        await self._process.withdraw(self.tree)


class ControllerProcess:
    """As controller.Controller, for what a network that is up needs of it. report: is told how it has ended.

    Raises:
        ControllerError: what it says. NetworkError: it ends again and again.
    """

    def __init__(self, setup: Setup, report: Callable[[str], None]) -> None:
        self.planner = planner_of(setup.planner)
        self._setup = setup
        self._report = report
        self._in_force: list[Tree] = []
        self._usable = setup.topology
        self._process: asyncio.subprocess.Process | None = None
        self._restarts = Restarts()
        self._given_up = ""  # it has ended too often: why
        self._one_at_a_time = asyncio.Lock()
        self._exchanges: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        try:
            await self._start(None)
        except (OSError, asyncio.IncompleteReadError):
            raise ControllerError(await self._how_it_ended()) from None
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self._close()

    async def grant(self, hosts: Sequence[str], udp_port: int, base: int, slots: int) -> Granted:
        """See controller.Controller."""
        # In force before anything else is asked, for which the controller may have to be started again.
        call = "grant", (tuple(hosts), udp_port, base, slots)
        tree: Tree = await self._call(*call, then=self._in_force.append)
        return Granted(tree, self)

    async def withdraw(self, tree: Tree) -> None:
        """See `Granted.withdraw`; a controller that has to be started again for it removes the lease by itself."""
        self._in_force.remove(tree)
        await self._call("withdraw", (tree.job.lease,))

    async def reroute(self, usable: Topology) -> None:
        """See controller.Controller."""
        self._usable = usable
        await self._call("reroute", (usable,))

    async def tend(self, *, read_tables: bool) -> Findings:
        """See controller.Controller."""
        findings: Findings = await self._call("tend", (read_tables,))
        return findings

    async def _call(
        self, method: str, arguments: tuple[object, ...], then: Callable[[Any], None] = lambda _: None
    ) -> Any:
        # One that is given up in the middle would leave its answer to the next; nobody asks then how it ends.
        exchange = asyncio.create_task(self._until_answered((method, arguments), then))
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._exchanges.discard)
        exchange.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(exchange)

    async def _until_answered(self, call: object, then: Callable[[Any], None]) -> Any:
        async with self._one_at_a_time:
            while True:
                if self._given_up:
                    raise NetworkError(self._given_up)
                try:
                    if self._process is None:
                        await self._start(tuple(self._in_force))
                        with suppress(
                            ControllerError
                        ):  # of a switch that is away, and is told when it is back
                            await self._ask(("reroute", (self._usable,)))
                    answer = await self._ask(call)
                    then(answer)
                    return answer
                except TimeoutError:  # and would not answer the next time
                    raise ControllerError(await self._how_it_ended()) from None
                except (OSError, asyncio.IncompleteReadError):
                    how = await self._how_it_ended()
                    self._count(how)
                    self._report(f"{how}\nit is started again")

    def _count(self, how: str) -> None:
        try:
            self._restarts.count(how)
        except NetworkError as error:
            self._given_up = str(error)
            raise

    async def _start(self, in_force: tuple[Tree, ...] | None) -> None:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "experiments.live.controlling"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "GRPC_VERBOSITY": "NONE"},  # its C core prints beside our own messages
                start_new_session=True,  # a terminal's Ctrl-C does not reach it: it is ours to end
            )
        except OSError as error:
            raise ControllerError(
                f"the controller cannot be started ({error.strerror}); the next thing asked of it tries again"
            ) from error
        try:
            await self._ask(replace(self._setup, in_force=in_force))
        except ControllerError as error:  # with which it ends
            await self._how_it_ended()
            self._count(str(error))
            raise

    async def _ask(self, message: object) -> Any:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(packed(message))
        async with asyncio.timeout(_ANSWER_SECONDS * self._setup.patience):
            await self._process.stdin.drain()
            done, answer = await read(self._process.stdout)
        if not done:
            raise answer
        return answer

    async def _how_it_ended(self) -> str:
        """It has, or is made to."""
        process, self._process = self._process, None
        assert process is not None
        with suppress(ProcessLookupError, TimeoutError):
            async with asyncio.timeout(1.0):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
            seconds = _ANSWER_SECONDS * self._setup.patience
            return (
                f"the controller has not answered for {seconds:g} s, and was ended; the next thing asked of it starts "
                f"it again ({VARIABLE} stretches time limits)"
            )
        status = process.returncode
        how = f"status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
        return f"the controller has ended with {how}"

    async def _close(self) -> None:
        for exchange in self._exchanges:  # one of which may be starting it again
            exchange.cancel()
        await asyncio.gather(*self._exchanges, return_exceptions=True)
        if self._process is None:
            return
        assert self._process.stdin is not None
        process = self._process
        self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS * self._setup.patience):
                await process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def packed(message: object) -> bytes:
    """As `read` takes it."""
    content = pickle.dumps(message)
    return _LENGTH.pack(len(content)) + content


async def read(source: asyncio.StreamReader) -> Any:
    """A message.

    Raises:
        IncompleteReadError: the other end has gone.
    """
    (length,) = _LENGTH.unpack(await source.readexactly(_LENGTH.size))
    return pickle.loads(await source.readexactly(length))
