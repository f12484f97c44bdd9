"""A call of each operation of a communicator, and the numbers that it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fanin.workers.communicator import Communicator
from fanin.workers.values.compression import TopK

OPERATIONS: dict[str, Callable[[Communicator], Any]] = {
    "allreduce": lambda comm: comm.allreduce(np.full(9000, comm.rank + 1, np.float32)),
    "allreduce of integers": lambda comm: comm.allreduce(np.full(500, comm.rank + 1)),
    "allreduce of several": lambda comm: comm.allreduce(
        [np.ones(5, np.float32), np.ones(5), np.ones(5, int)]
    ),
    "allreduce by ring": lambda comm: comm.allreduce(np.full(9000, comm.rank + 1.0), "max"),
    "allreduce of what is compressed": lambda comm: comm.allreduce(
        np.full(500, comm.rank + 1, np.float32), compression=TopK(1.0)
    ),
    "reduce": lambda comm: comm.reduce(np.full(500, comm.rank + 1, np.float32), root=2),
    "broadcast": lambda comm: comm.broadcast(np.full(500, comm.rank + 1), root=2),
    "allgather": lambda comm: comm.allgather(np.full(500, comm.rank + 1)),
    "reduce_scatter": lambda comm: comm.reduce_scatter(np.full(600, comm.rank + 1)),
    "barrier": lambda comm: comm.barrier(),
    "in the background": lambda comm: comm.allreduce(np.ones(9000, np.float32), async_op=True).wait(),
}


def numbers(comm: Communicator, what: str) -> Any:
    result = OPERATIONS[what](comm)
    return (
        [each.tolist() for each in result]
        if isinstance(result, list)
        else getattr(result, "tolist", lambda: result)()
    )
