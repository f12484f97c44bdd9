"""A second controller, in a separate process: a backup at all switches for when the first one ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from fanin.controller.errors import ControllerError
from fanin.testbed.control.controller_subprocess import ControllerSubprocess, Setup
from fanin.testbed.patience import Restarts
from fanin.topologies.errors import NetworkError


class StandbyProcess:
    """A standby that is replaced when it ends.

    Args:
        setup: Returns the setup with which each one is started.
        report: Called with a message when one is ready, when it has ended, and when no more are started.
    """

    def __init__(self, setup: Callable[[], Setup], report: Callable[[str], None]) -> None:
        self._setup = setup
        self._report = report
        self._restarts = Restarts()
        self._keeper: asyncio.Task[None] | None = None
        self._waiting: ControllerSubprocess | None = None
        self._taken: ControllerSubprocess | None = None

    def begin(self) -> None:
        """Keep a standby from now on, until it is taken."""
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep())

    @property
    def ready(self) -> bool:
        """Return whether a standby waits."""
        return self._waiting is not None

    def take(self) -> ControllerSubprocess | None:
        """Hand over the standby that waits; return None if there is none, or it is still starting."""
        if self._waiting is None:
            return None
        self._taken, self._waiting = self._waiting, None
        if self._keeper is not None:
            self._keeper.cancel()
            self._keeper = None
        return self._taken

    async def close(self) -> None:
        """End the standby."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait([keeper])

    async def _keep(self) -> None:
        """Run one standby after another."""
        while True:
            how = await self._one()
            try:
                self._restarts.count(how)
            except NetworkError as error:
                self._report(f"{error}\nthere is no standby from now on")
                return
            self._report(f"{how}\nanother one is started")

    async def _one(self) -> str:
        """Run one standby until it ends, and return how it ended."""
        setup = self._setup()
        try:
            candidate = await ControllerSubprocess.start(setup.patience)
        except OSError as error:
            return f"the standby cannot be started: {error.strerror}"
        try:
            # Its errors are reported when it becomes the controller.
            with suppress(ControllerError, TimeoutError, OSError, asyncio.IncompleteReadError):
                await candidate.ask(setup)
                candidate.end_if_silent()
                self._waiting = candidate
                self._report("a standby for the controller is ready")
                await candidate.ended()
            self._waiting = None
            return f"the standby {await candidate.how_it_ended()}"
        except asyncio.CancelledError:
            if candidate is not self._taken:
                await candidate.kill()
            raise
