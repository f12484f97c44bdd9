"""A standby controller: a backup at every switch, from which another controller can continue if the primary ends."""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from finsy import P4Schema

from fanin.controller.connection import Connection, connections
from fanin.controller.errors import ControllerError
from fanin.controller.network import Network

_PAUSE = 1.0  # seconds before another attempt with a switch that has refused a session


class Standby:
    """Sessions with all switches of a network, as a backup: see Connection.stand_by.

    It is an asynchronous context manager: inside, there is a session with each switch that answers, and a new one with
    each that is back. At the end it closes all sessions except those that were taken.

    Args:
        network: The network.
        schema: The schema of the switches' program.
        patience: Factor for the time in which a switch has to answer.
        election_id: The backup's election id.
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
        """Return the sessions, which the caller owns from now on, to bid in. Some switches may have ended theirs."""
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
