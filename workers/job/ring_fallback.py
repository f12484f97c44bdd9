"""The fallback to a ring: how the workers of a job that loses its lease agree on the point where the ring takes over.

Each reports how many all-reduces it has finished in the network, and receives everybody's number. Nobody is ahead by
more than one: an all-reduce is finished only if all have begun it, and so have finished the one before. If all numbers
are equal, the next all-reduce is the first that goes round the ring. If it was already under way, it is repeated, from
arrays that nobody has written to. If the numbers differ, those behind are in an all-reduce whose results are complete
at the others, but will never be complete here: the first of the others sends them its result. So all have the same
sums, bit for bit, regardless of timing.

For this purpose a result is kept until the next one, since callers may change their arrays. If a result has more blocks
than the window, only its end is kept, which is all that others may lack. Such a sum is made directly in the caller's
output, which may be the input: if it is repeated, blocks that are already summed at some worker keep that sum
(UnderWay).
"""

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.workers.collective import CollectiveError, HostRing
from fanin.workers.job.retained_results import ProgressSnapshot, RetainedResult

_LOOK = 0.25  # longest time in seconds between checks for messages of the job service
_COME_SECONDS = 10.0  # time for the workers behind, which wait for nothing else, to ask for a result


@dataclass(frozen=True, slots=True)
class UnderWay:
    """An interrupted sum, made directly in the output, which may be the input.

    Attributes:
        x: The input, flat [elements]. Blocks that are not summed still have their values.
        out: The output, flat [elements].
        summed: Which blocks have their sum in `out` [blocks].
        values: Elements of a block.
    """

    x: NDArray[np.float32]
    out: NDArray[np.float32]
    summed: NDArray[np.bool_]
    values: int

    def complete(self, ring: HostRing, rank: int, workers: int, what: str) -> None:
        """Complete the sum round the ring, together with all workers.

        A worker that has overwritten its values of a block has the block's sum. The first worker that
        has it puts it in, and all others put in negative zeros, which change no number.

        Args:
            ring: The ring.
            rank: This worker's number.
            workers: Number of workers.
            what: The call, in words that must be the same at all workers.
        """
        givers = np.where(self.summed, np.int32(rank), np.int32(workers))
        ring.all_reduce(givers, np.minimum, f"{what}: blocks that have been summed")
        of_elements = np.repeat(givers, self.values)[: len(self.out)]
        np.copyto(self.out, self.x, where=of_elements == workers)
        self.out[(of_elements != workers) & (of_elements != rank)] = -0.0
        ring.all_reduce(self.out, np.add, what)


class LeaseLostError(CollectiveError):
    """The loss or lack of a lease: the ring adds up instead of the switches. The text explains why.

    Attributes:
        under_way: An interrupted sum, set at all workers or at none. None: the ring starts from the input.
    """

    def __init__(self, why: str, under_way: UnderWay | None = None) -> None:
        super().__init__(why)
        self.under_way = under_way


class RingFallback(RetainedResult):
    """One worker's part in the agreement.

    Args:
        rank: This worker's number.
        addresses: Where each rank can be reached, by rank.
        send: Sends a message to the job service.
        watch: Called repeatedly while other workers are waited for. An error that it raises ends the wait.
        patience: Seconds without progress in a transfer from or to another worker after which it fails.

    Attributes:
        why: Why there is no lease; empty while there is one.
        agreed: Whether everybody's number is known.
    """

    def __init__(
        self,
        rank: int,
        addresses: Sequence[tuple[str, int]],
        send: Callable[[Mapping[str, Any]], None],
        watch: Callable[[], object],
        patience: float,
    ) -> None:
        super().__init__()
        self.why = ""
        self.agreed = False
        self._rank = rank
        self._addresses = addresses
        self._send = send
        self._watch = watch
        self._patience = patience
        self._listener: socket.socket | None = None
        self._ports: list[int | None] = []  # where each rank can be asked for its last result
        self._progress = ProgressSnapshot(())

    def lose(self, why: str) -> None:
        """Report the finished all-reduces after the lease was revoked: from now on none is finished in the network."""
        self.why = why
        self._listener = socket.create_server((self._addresses[self._rank][0], 0))
        self._send({"finished": [self.finished, self._listener.getsockname()[1]]})

    def agree(self, numbers: Sequence[Sequence[int] | None]) -> None:
        """Store how many all-reduces each rank has finished, and send the last result to ranks that lack it.

        Args:
            numbers: For each rank the number of finished all-reduces and the port where it can be asked for its last
                result; None for a worker that has ended.
        """
        assert self._listener is not None
        self._progress = ProgressSnapshot([None if each is None else each[0] for each in numbers])
        self._ports = [None if each is None else each[1] for each in numbers]
        self.agreed = True
        with self._listener:
            if self._progress.giver == self._rank:
                self._give(self._listener)

    def close(self) -> None:
        """Close the listener: all workers are at their end, so nobody asks for a result."""
        if self._listener is not None:
            self._listener.close()

    @property
    def behind(self) -> bool:
        """Return whether this worker is in an all-reduce that others have finished."""
        return self.finished < self._progress.most

    def take(self) -> NDArray[np.float32]:
        """Receive the result of the all-reduce that others have finished.

        Raises:
            CollectiveError: If it does not arrive.
        """
        giver = self._progress.giver
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
            raise self._missing("it closed the connection")
        self.finished += 1
        return self._pending

    def _give(self, listener: socket.socket) -> None:
        """Send the last result to the workers behind. A worker that does not come reports that itself."""
        behind = [self._addresses[rank][0] for rank in self._progress.behind]
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
            f"{self._progress.giver} had finished, and its result did not come: {why}"
        )
