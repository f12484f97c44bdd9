"""How the workers of a job that loses its lease agree on where the ring between them takes over.

Each says how many all-reduces it has finished in the network, and is told everybody's number. Nobody is ahead by more
than one: an all-reduce is finished only if all have begun it, and so have finished the one before. If all numbers are
alike, the next all-reduce is the first that goes round the ring; where it was under way, it is done again, from arrays
that nobody has written to. If they are not, those behind are in an all-reduce of which the others have all results and
they never will: the first of the others sends them its own. So all have the same sums, to the bit, whatever came when.

For that a result is kept until the next one, since callers may change theirs. Of one with more blocks than the window
the end is kept, which is all that others may lack. It is made where it is wanted, perhaps in the place of what is
summed: if it is done again, what has been summed at some worker counts (UnderWay).
"""

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.workers.collective import CollectiveError
from fanin.workers.host_based.tcp import TcpRing
from fanin.workers.job.retained_results import Kept, ProgressSnapshot

_LOOK = 0.25  # seconds, at most, between looks at what the job service says
_COME_SECONDS = 10.0  # for those behind, who wait for nothing else, to ask for a result


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A sum into the place where it is wanted, which may be that of what is summed: `x` and `out`, flat [elements].

    summed: of which blocks, of `values` elements each, the sum is in `out` [blocks]. Of the others `x` is as it was.
    """

    x: NDArray[np.float32]
    out: NDArray[np.float32]
    summed: NDArray[np.bool_]
    values: int

    def go_on(self, ring: TcpRing, rank: int, workers: int, what: str) -> None:
        """Round the ring, which all workers do. Whoever has overwritten what it had of a block has the block's sum.

        Of those who have it, the first puts it in, and all others negative zeros, which change no number.
        """
        givers = np.where(self.summed, np.int32(rank), np.int32(workers))
        ring.all_reduce(givers, np.minimum, f"{what}: blocks that have been summed")
        of_elements = np.repeat(givers, self.values)[: len(self.out)]
        np.copyto(self.out, self.x, where=of_elements == workers)
        self.out[(of_elements != workers) & (of_elements != rank)] = -0.0
        ring.all_reduce(self.out, np.add, what)


class LeaseLostError(CollectiveError):
    """The switches add up nothing for the job (any more); the ring does. The text says why.

    under_way: how far a sum has come, at all workers or at none; None: the ring begins with what is to be summed.
    """

    def __init__(self, why: str, under_way: UnderWay | None = None) -> None:
        super().__init__(why)
        self.under_way = under_way


class Handover(Kept):
    """One worker's part.

    addresses: where each rank can be reached, by rank. say: sends a message to the job service. watch: called again
    and again while others are waited for; what it raises ends that. patience: seconds in which another worker goes on
    sending, or taking.
    """

    def __init__(
        self,
        rank: int,
        addresses: Sequence[tuple[str, int]],
        say: Callable[[Mapping[str, Any]], None],
        watch: Callable[[], object],
        patience: float,
    ) -> None:
        super().__init__()
        self.why = ""  # there is no lease; empty: there is
        self.agreed = False
        self._rank = rank
        self._addresses = addresses
        self._say = say
        self._watch = watch
        self._patience = patience
        self._listener: socket.socket | None = None
        self._ports: list[int | None] = []  # at which each rank can be asked for its last result
        self._standing = ProgressSnapshot(())

    def lose(self, why: str) -> None:
        """The lease is revoked: from now on nothing is finished in the network."""
        self.why = why
        self._listener = socket.create_server((self._addresses[self._rank][0], 0))
        self._say({"finished": [self.finished, self._listener.getsockname()[1]]})

    def agree(self, numbers: Sequence[Sequence[int] | None]) -> None:
        """What everybody has finished, and at which port it can be asked for: by rank, None where one has ended."""
        assert self._listener is not None
        self._standing = ProgressSnapshot([None if each is None else each[0] for each in numbers])
        self._ports = [None if each is None else each[1] for each in numbers]
        self.agreed = True
        with self._listener:
            if self._standing.giver == self._rank:
                self._give(self._listener)

    def close(self) -> None:
        """Nobody need ask any more, for all are at their end."""
        if self._listener is not None:
            self._listener.close()

    @property
    def behind(self) -> bool:
        """Whether this worker is in an all-reduce that others have finished."""
        return self.finished < self._standing.most

    def take(self) -> NDArray[np.float32]:
        """The result of that one.

        Raises:
            CollectiveError: it does not come.
        """
        giver = self._standing.giver
        port = self._ports[giver]
        assert port is not None
        left = self._pending.data.cast("B")
        try:
            address = (self._addresses[giver][0], port)
            with socket.create_connection(address, self._patience) as connection:
                connection.settimeout(_LOOK)
                latest = time.monotonic()
                while left:
                    try:
                        count = connection.recv_into(left)
                    except TimeoutError:
                        self._watch()
                        if time.monotonic() - latest >= self._patience:
                            raise
                        continue
                    if not count:
                        break
                    left, latest = left[count:], time.monotonic()
        except OSError as error:
            raise self._missing(str(error)) from error
        if left:
            raise self._missing("it hung up")
        self.finished += 1
        return self._pending

    def _give(self, listener: socket.socket) -> None:
        """To those behind. One that does not come says so itself."""
        behind = [self._addresses[rank][0] for rank in self._standing.behind]
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
                        connection.sendall(self.last.data)

    def _missing(self, why: str) -> CollectiveError:
        return CollectiveError(
            f"rank {self._rank}: the lease was lost in the middle of an all-reduce that rank "
            f"{self._standing.giver} had finished, and its result did not come: {why}"
        )
