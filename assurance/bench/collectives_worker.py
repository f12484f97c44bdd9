"""A worker that measures collectives on a host of a running network.

python -m fanin.assurance.bench.collectives_worker ORDERS, a JSON list of CollectiveOrder. For each it prints a Report
as a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from fanin.assurance.bench.allreduce_worker import Report, Vector
from fanin.experiments.live.output import lines_out, write_line
from fanin.experiments.results.checking import float32_sum_bound, quantized_sum_bound, sums_within
from fanin.testbed.patience import setting
from fanin.workers import CollectiveError, join
from fanin.workers.collective import Operation
from fanin.workers.communicator import Communicator
from fanin.workers.host_based.tcp import TcpAllReduce, TcpConfig

_JOIN_SECONDS = 60.0
_MANY_BLOCKS = 1 << 30  # every vector may use exponents of earlier ones


@dataclass(frozen=True, slots=True)
class CollectiveOrder:
    """Request to carry out a collective so many times, after one warm-up.

    Attributes:
        operation: The operation.
        algorithm: "in-network", or "ring" between the hosts over TCP.
        elements: float32 values of the whole array.
        repetitions: Number of repetitions.
    """

    operation: Operation
    algorithm: str
    elements: int
    repetitions: int


def carry_out(order: CollectiveOrder, comm: Communicator, addresses: Sequence[tuple[str, int]]) -> Report:
    """Carry out an order, and compare every result with what all workers have given.

    Args:
        order: The order.
        comm: This worker's end of the job.
        addresses: Where each rank listens for the ring, by rank.

    Raises:
        ValueError: If the operation is none that a communicator has.
        CollectiveError: If an operation fails.
    """
    report = Report()
    part = slice(*(order.elements // comm.size * rank for rank in (comm.rank, comm.rank + 1)))
    with _carrier(order, comm, addresses, part) as call:
        _repeat(order, comm, call, part, report)
    return report


def _repeat(
    order: CollectiveOrder, comm: Communicator, call: Callable[[Vector], Vector], part: slice, report: Report
) -> None:
    quantized = partial(quantized_sum_bound, window=_MANY_BLOCKS)
    oracle = sums_within(float32_sum_bound if order.algorithm == "ring" else quantized)
    for repetition in range(order.repetitions + 1):
        given = [
            np.random.default_rng((repetition, rank)).standard_normal(order.elements, np.float32)
            for rank in range(comm.size)
        ]
        promise = oracle.promise(given, order.operation)
        x = given[comm.rank]
        comm.barrier()
        start = time.monotonic()
        result = call(x)
        end = time.monotonic()
        expected, most = promise.exact, promise.bound
        if order.operation == "reduce-scatter":
            result = result if order.algorithm == "in-network" else result[part]
            expected, most = expected[part], most[part]
        report.wrong += int(np.count_nonzero(~(np.abs(result - expected) <= most)))
        if repetition:
            report.starts.append(start)
            report.ends.append(end)


@contextmanager
def _carrier(
    order: CollectiveOrder, comm: Communicator, addresses: Sequence[tuple[str, int]], part: slice
) -> Iterator[Callable[[Vector], Vector]]:
    """Yield what carries out the operation, given the whole array."""
    if order.algorithm == "ring":
        comm.barrier()  # the ports of an earlier ring are free
        with TcpAllReduce(
            TcpConfig(comm.rank, tuple(addresses), call=order.operation, connect_timeout=_JOIN_SECONDS)
        ) as ring:
            yield ring.all_reduce
    else:
        yield lambda x: _call(comm, order.operation, x, part)


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
        place = join(timeout=_JOIN_SECONDS * setting())
        with Communicator(place, _JOIN_SECONDS * setting()) as comm:
            for order in json.loads(orders):
                report = carry_out(CollectiveOrder(**order), comm, place.addresses)
                write_line(json.dumps(asdict(report)).encode())
    except CollectiveError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1])
