"""A controller that waits: a backup at every switch, from which another one can go on where the primary has ended."""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from finsy import P4Schema

from fanin.controller.connection import Connection, connections
from fanin.controller.errors import ControllerError
from fanin.controller.network import Network

_PAUSE = 1.0  # seconds, before a switch that has refused a session is asked again


class Standby:
    """Sessions with all switches of `network`, as a backup with `election_id`: see Connection.stand_by.

    An asynchronous context manager: inside, there is one with each switch that answers, and again with each that has
    come back; it ends them all, but those that somebody has taken.
    """

    def __init__(self, network: Network, schema: P4Schema, patience: float, election_id: int) -> None:
        self._connections = connections(network, schema, patience)
        self._election_id = election_id
        self._keepers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        asked = [asyncio.Event() for _ in self._connections]
        self._keepers = [
            asyncio.create_task(self._keep(connection, once))
            for connection, once in zip(self._connections.values(), asked, strict=True)
        ]
        await asyncio.gather(*(once.wait() for once in asked))
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        for connection in (await self.take()).values():
            await connection.close()

    async def take(self) -> Mapping[str, Connection]:
        """The sessions, which are the caller's from now on, to bid in; some switches may have ended theirs."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        taken, self._connections = self._connections, {}
        return taken

    async def _keep(self, connection: Connection, asked: asyncio.Event) -> None:
        while True:
            try:
                await connection.stand_by(self._election_id)
                asked.set()
                await connection.ended()
            except ControllerError:
                asked.set()
                await asyncio.sleep(_PAUSE)
