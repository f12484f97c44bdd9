"""A worker that measures collectives on a host of a running network.

python -m fanin.assurance.bench.collectives_worker ORDERS, a JSON list of CollectiveOrder. For each it prints a Report
as a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from fanin.assurance.bench.allreduce_worker import Report, Vector
from fanin.experiments.live.output import lines_out, write_line
from fanin.experiments.results.checking import (
    quantized_sum_bound,
    sums_within,
)
from fanin.testbed.patience import setting
from fanin.workers import CollectiveError, join
from fanin.workers.collective import Operation
from fanin.workers.communicator import Communicator

_JOIN_SECONDS = 60.0
_MANY_BLOCKS = 1 << 30  # every vector may use exponents of earlier ones


@dataclass(frozen=True, slots=True)
class CollectiveOrder:
    """Request to carry out a collective so many times, after one warm-up.

    Attributes:
        operation: The operation.
        elements: float32 values of the whole array.
        repetitions: Number of repetitions.
    """

    operation: Operation
    elements: int
    repetitions: int


def carry_out(order: CollectiveOrder, comm: Communicator) -> Report:
    """Carry out an order, and compare every result with what all workers have given.

    Raises:
        ValueError: If the operation is none that a communicator has.
    """
    report = Report()
    part = slice(*(order.elements // comm.size * rank for rank in (comm.rank, comm.rank + 1)))
    for repetition in range(order.repetitions + 1):
        given = [
            np.random.default_rng((repetition, rank)).standard_normal(order.elements, np.float32)
            for rank in range(comm.size)
        ]
        bound = partial(quantized_sum_bound, window=_MANY_BLOCKS)
        promise = sums_within(bound).promise(given, order.operation)
        x = given[comm.rank]
        comm.barrier()
        start = time.monotonic()
        result = _call(comm, order.operation, x, part)
        end = time.monotonic()
        expected, most = promise.exact, promise.bound
        if order.operation == "reduce-scatter":
            expected, most = expected[part], most[part]
        report.wrong += int(np.count_nonzero(~(np.abs(result - expected) <= most)))
        if repetition:
            report.starts.append(start)
            report.ends.append(end)
    return report


def _call(comm: Communicator, operation: Operation, x: Vector, part: slice) -> Vector:
    match operation:
        case "all-reduce":
            return comm.allreduce(x)
        case "reduce-scatter":
            return comm.reduce_scatter(x)
        case "all-gather":
            return comm.allgather(x[part]).reshape(-1)
        case "broadcast":
            return comm.broadcast(x)
        case _:
            raise ValueError(f"{operation}: a communicator has no such operation")


def main(orders: str) -> None:
    """Join the job of all hosts, and carry out the orders one after the other."""
    lines_out()
    try:
        with Communicator(join(timeout=_JOIN_SECONDS * setting()), _JOIN_SECONDS * setting()) as comm:
            for order in json.loads(orders):
                write_line(json.dumps(asdict(carry_out(CollectiveOrder(**order), comm))).encode())
    except CollectiveError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1])
