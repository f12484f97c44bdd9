"""The controller of a running network, in a separate process, so that its end does not affect the jobs.

When it ends, it is started again, or a standby takes over. The new one takes over the switches as they are, with the
leases in force, which are recorded here. Requests that were not answered are repeated.
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

# Election ids: each primary's is higher than all before it, so that switches refuse late messages of earlier ones.
# Backups have lower ids. After 500, all primaries share the last id, and a backup may get one that was used before.
_BACKUPS, _PRIMARIES = range(2, 500), range(501, ELECTION_ID + 1)


@dataclass(frozen=True, slots=True)
class Granted:
    """A lease as the switches hold it, from `ControllerProcess.grant` until `withdraw`."""

    tree: Tree
    _process: ControllerProcess = field(repr=False)

    async def withdraw(self) -> None:
        """Revoke the lease; see controller.Grant."""
        await self._process.withdraw(self.tree)


class ControllerProcess:
    """The part of controller.Controller that a running network needs, carried out in another process.

    Args:
        setup: Configuration of the controller.
        report: Called with a message when the controller has ended.
        standby: Whether a second controller waits to take over.

    Raises:
        ControllerError: The controller reports an error.
        NetworkError: The controller ends repeatedly.
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
        self._given_up = ""  # why it is not started again: it has ended too often
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
        """Grant a lease; see controller.Controller."""
        # The lease is recorded before the next request, for which the controller may have to be started again.
        call = "grant", (tuple(hosts), udp_port, base, slots)
        tree: Tree = await self._call(*call, then=self._in_force.append)
        return Granted(tree, self)

    async def withdraw(self, tree: Tree) -> None:
        """Revoke a lease. A controller that has to be started again for it removes the lease by itself."""
        self._in_force.remove(tree)
        await self._call("withdraw", (tree.job.lease,))

    async def reroute(self, usable: Topology) -> None:
        """Use another topology from now on; see controller.Controller."""
        self._usable = usable
        await self._call("reroute", (usable,))

    async def tend(self, *, read_tables: bool) -> Findings:
        """Check the switches and repair what they have lost; see controller.Controller."""
        findings: Findings = await self._call("tend", (read_tables,))
        return findings

    async def _call(
        self, method: str, arguments: tuple[object, ...], then: Callable[[Any], None] = lambda _: None
    ) -> Any:
        # Shielded: otherwise the answer to a cancelled request would be taken for that to the next one.
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
                        ):  # from a switch that is away; it is programmed when it is back
                            await self._ask(("reroute", (self._usable,)))
                    answer = await self._ask(call)
                    then(answer)
                except TimeoutError:  # it would not answer the next time either
                    how = await self._how_it_ended()
                    raise ControllerError(
                        f"{how}; on the next request {self._next} ({VARIABLE} stretches time limits)"
                    ) from None
                except (OSError, asyncio.IncompleteReadError):
                    how = await self._how_it_ended()
                    self._count(how)
                    self._report(f"{how}\n{self._next}")
                else:
                    if self._standby is not None:  # started last, so that it does not delay the request
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
        """Make the standby, or a new process, the controller."""
        self._process = self._standby.take() if self._standby is not None else None
        try:
            self._process = self._process or await ControllerSubprocess.start(self._setup.patience)
        except OSError as error:
            raise ControllerError(
                f"the controller cannot be started ({error.strerror}); the next request tries again"
            ) from error
        number = next(self._numbers)
        election_id = _PRIMARIES[min(number, len(_PRIMARIES) - 1)]
        try:
            await self._ask(replace(self._setup, in_force=in_force, election_id=election_id))
        except ControllerError as error:  # the process ends with it
            await self._how_it_ended()
            self._count(str(error))
            raise
        if self._standby is not None:  # it can take over from a silent one
            self._process.end_if_silent()

    def _as_backup(self) -> Setup:
        number = next(self._numbers)
        return replace(self._setup, standby=True, election_id=_BACKUPS[number % len(_BACKUPS)])

    async def _ask(self, message: object) -> Any:
        assert self._process is not None
        return await self._process.ask(message)

    async def _how_it_ended(self) -> str:
        """Return how the controller has ended, and end it if it has not."""
        process, self._process = self._process, None
        assert process is not None
        return f"the controller {await process.how_it_ended()}"

    async def _close(self) -> None:
        for exchange in self._exchanges:  # one of them may be starting it again
            exchange.cancel()
        await asyncio.gather(*self._exchanges, return_exceptions=True)
        if self._standby is not None:
            await self._standby.close()
        if self._process is not None:
            await self._process.close()
