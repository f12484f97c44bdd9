"""The controller of a network that is up, in a process of its own: what becomes of that is nothing to the jobs.

When it ends it is started again, or a standby takes over, and takes the switches over as they are, with the leases that
are in force here. What was asked of it meanwhile is asked again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from fanin.controller.connection import ELECTION_ID
from fanin.controller.controller import Findings
from fanin.controller.errors import ControllerError
from fanin.controller.planner import planner_of
from fanin.controller.tree import Tree
from fanin.testbed.control.controller_subprocess import ControllerSubprocess, Setup
from fanin.testbed.control.standby_process import StandbyProcess
from fanin.testbed.patience import VARIABLE, Restarts
from fanin.topologies.errors import NetworkError
from fanin.topologies.model import Topology

# Election ids: each primary's is higher than that of all before it, so that what these have sent last is refused; a
# backup's is lower. After 500 of them all primaries have the last one, and a backup may have that of one that has gone.
_BACKUPS, _PRIMARIES = range(2, 500), range(501, ELECTION_ID + 1)


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

    standby: whether there is another one that waits for that.

    Raises:
        ControllerError: what it says. NetworkError: it ends again and again.
    """

    def __init__(self, setup: Setup, report: Callable[[str], None], *, standby: bool = False) -> None:
        self.planner = planner_of(setup.planner)
        self._setup = setup
        self._report = report
        self._in_force: list[Tree] = []
        self._usable = setup.topology
        self._process: ControllerSubprocess | None = None
        self._standby = StandbyProcess(self._as_backup, report) if standby else None
        self._numbers = itertools.count()
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
        if self._standby is not None:
            self._standby.begin()
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
                except TimeoutError:  # and would not answer the next time
                    how = await self._how_it_ended()
                    raise ControllerError(
                        f"{how}; for the next thing asked of it {self._next} ({VARIABLE} stretches time limits)"
                    ) from None
                except (OSError, asyncio.IncompleteReadError):
                    how = await self._how_it_ended()
                    self._count(how)
                    self._report(f"{how}\n{self._next}")
                else:
                    if self._standby is not None:  # which is not to be in the way of what was asked
                        self._standby.begin()
                    return answer

    @property
    def _next(self) -> str:
        if self._standby is not None and self._standby.ready:
            return "the standby takes over"
        return "it is started again"

    def _count(self, how: str) -> None:
        try:
            self._restarts.count(how)
        except NetworkError as error:
            self._given_up = str(error)
            raise

    async def _start(self, in_force: tuple[Tree, ...] | None) -> None:
        """The standby, or a new one, is the controller from now on."""
        self._process = self._standby.take() if self._standby is not None else None
        try:
            self._process = self._process or await ControllerSubprocess.start(self._setup.patience)
        except OSError as error:
            raise ControllerError(
                f"the controller cannot be started ({error.strerror}); the next thing asked of it tries again"
            ) from error
        number = next(self._numbers)
        election_id = _PRIMARIES[min(number, len(_PRIMARIES) - 1)]
        try:
            await self._ask(replace(self._setup, in_force=in_force, election_id=election_id))
        except ControllerError as error:  # with which it ends
            await self._how_it_ended()
            self._count(str(error))
            raise
        if self._standby is not None:  # which is there to be made use of
            self._process.end_if_silent()

    def _as_backup(self) -> Setup:
        number = next(self._numbers)
        return replace(self._setup, standby=True, election_id=_BACKUPS[number % len(_BACKUPS)])

    async def _ask(self, message: object) -> Any:
        assert self._process is not None
        return await self._process.ask(message)

    async def _how_it_ended(self) -> str:
        """It has, or is made to."""
        process, self._process = self._process, None
        assert process is not None
        return f"the controller {await process.how_it_ended()}"

    async def _close(self) -> None:
        for exchange in self._exchanges:  # one of which may be starting it again
            exchange.cancel()
        await asyncio.gather(*self._exchanges, return_exceptions=True)
        if self._standby is not None:
            await self._standby.close()
        if self._process is not None:
            await self._process.close()
