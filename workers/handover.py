"""How the workers of a job that loses its lease agree on where the ring between them takes over.

Each says how many all-reduces it has finished in the network, and is told everybody's number. Nobody is ahead by more
than one: an all-reduce is finished only if all have begun it, and so have finished the one before. If all numbers are
alike, the next all-reduce is the first that goes round the ring; where it was under way, it is done again, from arrays
that nobody has written to. If they are not, those behind are in an all-reduce of which the others have all results and
they never will: the first of the others sends them its own. So all have the same sums, to the bit, whatever came when.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.collective import CollectiveError

_COME_SECONDS = 10.0  # for those behind, who wait for nothing else, to ask for a result


class LeaseLostError(CollectiveError):
    """The switches add up nothing for the job (any more); the ring does. The text says why."""


class Handover:
    """One worker's part.

    addresses: where each rank can be reached, by rank. say: sends a message to the job service. patience: seconds in
    which another worker goes on sending, or taking.
    """

    def __init__(
        self,
        rank: int,
        addresses: Sequence[tuple[str, int]],
        say: Callable[[Mapping[str, Any]], None],
        patience: float,
    ) -> None:
        self.why = ""  # there is no lease; empty: there is
        self.agreed = False
        self._rank = rank
        self._addresses = addresses
        self._say = say
        self._patience = patience
        self._finished = 0
        self._memory = np.empty(0, np.float32)
        self._pending = self._done = self._memory
        self._listener: socket.socket | None = None
        self._numbers: list[tuple[int, int] | None] = []

    def buffer(self, size: int) -> NDArray[np.float32]:
        """For the next result, which is kept there in case that others do not get it.

        It may lie where the last one is kept: the first of it arrives when all have begun it, and have the last one.
        """
        if len(self._memory) < size:
            self._memory = np.empty(size, np.float32)
        self._pending = self._memory[:size]
        return self._pending

    def finish(self) -> None:
        """The result is there."""
        self._finished += 1
        self._done = self._pending

    def lose(self, why: str) -> None:
        """The lease is revoked: from now on nothing is finished in the network."""
        self.why = why
        self._listener = socket.create_server((self._addresses[self._rank][0], 0))
        self._say({"finished": [self._finished, self._listener.getsockname()[1]]})

    def agree(self, numbers: Sequence[Sequence[int] | None]) -> None:
        """What everybody has finished, and at which port it can be asked for: by rank, None where one has ended."""
        assert self._listener is not None
        self._numbers = [None if each is None else (each[0], each[1]) for each in numbers]
        self.agreed = True
        with self._listener:
            if self._giver == self._rank:
                self._give(self._listener)

    @property
    def behind(self) -> bool:
        """Whether this worker is in an all-reduce that others have finished."""
        return self._finished < self._most

    def take(self) -> NDArray[np.float32]:
        """The result of that one.

        Raises:
            CollectiveError: it does not come.
        """
        number = self._numbers[self._giver]
        assert number is not None
        left = self._pending.data.cast("B")
        try:
            address = (self._addresses[self._giver][0], number[1])
            with socket.create_connection(address, self._patience) as connection:
                while left and (count := connection.recv_into(left)):
                    left = left[count:]
        except OSError as error:
            raise self._missing(str(error)) from error
        if left:
            raise self._missing("it hung up")
        self._finished += 1
        return self._pending

    @property
    def _most(self) -> int:
        return max(number[0] for number in self._numbers if number is not None)

    @property
    def _giver(self) -> int:
        return next(rank for rank, number in enumerate(self._numbers) if number and number[0] == self._most)

    def _give(self, listener: socket.socket) -> None:
        """To those behind. One that does not come says so itself."""
        behind = [
            self._addresses[rank][0]
            for rank, number in enumerate(self._numbers)
            if number and number[0] < self._most
        ]
        listener.settimeout(_COME_SECONDS)
        with suppress(OSError):
            while behind:
                connection, (ip, _) = listener.accept()
                with connection:
                    if ip not in behind:
                        continue
                    behind.remove(ip)
                    connection.settimeout(self._patience)
                    with suppress(ConnectionError):
                        connection.sendall(self._done.data)

    def _missing(self, why: str) -> CollectiveError:
        return CollectiveError(
            f"rank {self._rank}: the lease was lost in the middle of an all-reduce that rank {self._giver} had "
            f"finished, and its result did not come: {why}"
        )
