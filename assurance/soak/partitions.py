"""Jobs of soak that gather or scatter: the partition of each worker, and what it must get."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.assurance.soak.scenario import Work
from fanin.simulator.hosts.stations import Vector
from fanin.workers.lease import Lease
from fanin.workers.protocol import AnyWorker, MakeWorker, Worker
from fanin.workers.recovery import Recovery
from fanin.workers.tensor import Partition


def partition_of(work: Work, rank: int) -> Partition:
    """Return the part that a rank owns."""
    assert work.operation != "all-reduce"
    return Partition(work.operation, work.workers, rank)


def own(work: Work, rank: int, elements: int) -> slice:
    """Return the elements that a rank owns."""
    part = elements // work.workers
    return slice(part * rank, part * (rank + 1))


def partitioned(work: Work, make_worker: MakeWorker, lease: Lease, recovery: Recovery) -> AnyWorker:
    """Make a worker that gathers or scatters where its station starts an all-reduce."""
    worker = make_worker(lease, recovery)
    assert isinstance(worker, Worker)
    worker.start = partial(_start, worker.start, work, lease.rank)  # type: ignore[method-assign]
    return worker


def _start(
    start: Callable[..., None], work: Work, rank: int, x: Vector, now: float, out: Vector | None = None
) -> None:
    if work.operation == "gather":  # takes place in its input
        out = x
    elif out is x:
        out = None
    start(x, now, out, partition=partition_of(work, rank))


@dataclass(frozen=True, slots=True)
class Gathered:
    """The result that all workers of a gather must get, bit for bit; see experiments.protocol.Expected."""

    result: Vector
    chunks: int
    saturated: tuple[int, int] = (0, 0)

    @property
    def length(self) -> int:
        """Return the number of elements."""
        return len(self.result)

    def wrong(self, output: Vector) -> NDArray[np.bool_]:
        """Return flags [elements] for the elements whose bits differ."""
        wrong: NDArray[np.bool_] = output.view(np.uint32) != self.result.view(np.uint32)
        return wrong


def gathered(work: Work, vectors: Sequence[Vector]) -> Any:
    """Return what workers with these vectors must get of a gather."""
    elements = len(vectors[0])
    parts = [x[own(work, rank, elements)] for rank, x in enumerate(vectors)]
    blocks = -(-elements // work.block)
    return Gathered(np.concatenate(parts), blocks + 1 if blocks else 0)
