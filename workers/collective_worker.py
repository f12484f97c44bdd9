"""A worker in the network whose calls gather and scatter, too, as those of the communicator do (reducer.py)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.workers.collective import Operation, raveled
from fanin.workers.engines.buffers import Buffers
from fanin.workers.host_based.pieces import bounds
from fanin.workers.lease import Lease
from fanin.workers.protocol import Worker
from fanin.workers.recovery import Recovery
from fanin.workers.tensor import NOBODY, Partition

# Operations that a CollectiveWorker carries out with the switches.
IN_SWITCHES: frozenset[Operation] = frozenset({"all-reduce", "reduce-scatter", "all-gather", "broadcast"})

_END = "all have it"


class CollectiveWorker(Worker):
    """A Worker whose calls carry out these operations in turn: any but "all-to-all".

    A vector has a part for each rank, as between hosts (schedules.schedule()). Rank 0 is the root of a broadcast. After
    a reduce-scatter, only this worker's part of the result has a meaning.

    Args:
        lease: The worker's lease.
        recovery: Settings of loss recovery.
        operations: The operations.
        settings: See Worker.
    """

    def __init__(
        self, lease: Lease, recovery: Recovery, operations: Sequence[Operation], **settings: Any
    ) -> None:
        super().__init__(lease, recovery, **settings)
        self._operations = operations
        self._begun = 0
        self._exchanging: _Exchange | None = None
        self._ending = False  # in the gather that tells that all have their parts

    def start(
        self,
        x: NDArray[np.float32],
        now: float,
        out: NDArray[np.float32] | None = None,
        call: str = "",
        partition: Partition | None = None,
    ) -> None:
        """Begin the next operation; see Worker."""
        operation = self._operations[self._begun % len(self._operations)]
        self._begun += 1
        self._exchanging, self._ending = None, False
        if operation == "all-reduce" or not x.size:
            super().start(x, now, out, call, partition)
            return
        result = np.empty_like(x) if out is None else out
        self._exchanging = exchange = _Exchange(operation, x, result, self.lease)
        self.begin(exchange.buffers, now, operation, exchange.partition)

    @property
    def finished(self) -> bool:
        """Return whether the operation is done, at all workers."""
        return super().finished and (self._exchanging is None or self._ending)

    def receive(self, datagrams: NDArray[np.uint8], now: float) -> None:
        """Process datagrams; see Worker."""
        super().receive(datagrams, now)
        if self._exchanging is not None and not self._ending and super().finished:
            self._ending = True
            super().finish()
            nothing = np.zeros(1, np.float32)
            self.begin(Buffers(nothing, nothing), now, _END, Partition("gather", 1, NOBODY))

    def finish(self, **settings: Any) -> NDArray[np.float32]:
        """Return the result; see Worker."""
        result = super().finish(**settings)
        return result if self._exchanging is None else self._exchanging.placed()


class _Exchange:
    """One gather or scatter of a vector, whose parts are filled up to the length of the longest.

    Attributes:
        buffers: The arrays for Worker.begin().
        partition: The part that the worker owns.
    """

    def __init__(
        self, operation: Operation, x: NDArray[np.float32], out: NDArray[np.float32], lease: Lease
    ) -> None:
        rank, flat = lease.rank, x.reshape(-1)
        self._operation, self._out, self._rank = operation, out, rank
        self._edges = [0, x.size] if operation == "broadcast" else bounds(x.size, lease.workers)
        longest = max(end - begin for begin, end in pairwise(self._edges))
        parts = len(self._edges) - 1
        words = np.zeros((parts, longest), np.float32)
        for row, (begin, end) in enumerate(pairwise(self._edges)):
            words[row, : end - begin] = flat[begin:end]
        self._results = words
        match operation:
            case "reduce-scatter":
                self._results = np.empty_like(words)
                self.partition = Partition("scatter", parts, rank)
            case "all-gather":
                self.partition = Partition("gather", parts, rank)
            case "broadcast":
                self.partition = Partition("gather", parts, 0 if rank == 0 else NOBODY)
            case _:
                raise ValueError(f"{operation}: switches do not carry it out")
        self.buffers = Buffers(raveled(words), raveled(self._results))

    def placed(self) -> NDArray[np.float32]:
        """Return the output with the parts that this worker gets."""
        flat = self._out.reshape(-1)
        for row, (begin, end) in enumerate(pairwise(self._edges)):
            if self._operation != "reduce-scatter" or row == self._rank:
                flat[begin:end] = self._results[row, : end - begin]
        return self._out
