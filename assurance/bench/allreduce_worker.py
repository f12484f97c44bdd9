"""One worker of the all-reduce benchmark: joins one group, then obeys its standard input, one JSON line per request.

It also runs in PyTorch's Python, for Gloo. So it imports only numpy and modules of ours that need nothing more.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.live.output import lines_out, write_line
from fanin.experiments.results.checking import ErrorBound, float32_sum_bound, quantized_sum_bound
from fanin.workers import (
    InNetworkAllReduce,
    InNetworkConfig,
    Lease,
    Recovery,
    TcpAllReduce,
    TcpConfig,
    Worker,
)
from fanin.workers.collective import CollectiveError, Statistics
from fanin.workers.engines.buffers import Buffers

Vector = NDArray[np.float32]

# Inputs repeat after so many elements, so that exact sums of any length cost little. The number of blocks is prime,
# so that a block in the wrong place is always noticed.
PERIOD = 4093 * 256
STEP = 97 * 256  # shift of a worker's input from one repetition to the next
SHIFT = 1001  # shift of a worker's input against that of the rank before
GIVE_UP = 30.0
# Seconds that a worker sleeps when it is done: its computations would delay workers that share its core.
REST = 0.002


@dataclass(frozen=True, slots=True)
class Join:
    """The group to join.

    Attributes:
        algorithm: Algorithm of the group.
        rank: Rank of this worker.
        hosts: Addresses by rank.
        port: UDP or TCP port.
        interface: Network interface, for Gloo.
        switch: Address of the switch, in the network.
        lease: The lease, in the network.
        segments: Datagrams in a frame, in the network.
    """

    algorithm: str
    rank: int
    hosts: tuple[str, ...]
    port: int
    interface: str
    switch: str = ""
    lease: Lease | None = None
    segments: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    """Request to all-reduce a vector of `elements` so many times, after one warm-up."""

    elements: int
    repetitions: int


@dataclass(slots=True)
class Report:
    """The results of an order.

    Attributes:
        starts: Start of each repetition, in seconds on the machine's monotonic clock.
        ends: End of each repetition, in seconds on the same clock.
        user: User processor time in all, in seconds.
        system: System processor time in all, in seconds.
        wrong: Number of elements outside their bound.
        retransmissions: Number of retransmissions.
        parts: Seconds in each part of the worker (see Worker.spent).
    """

    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    user: float = 0.0
    system: float = 0.0
    wrong: int = 0
    retransmissions: int = 0
    parts: dict[str, float] = field(default_factory=dict)


class Gloo:
    """torch.distributed's all-reduce, in place."""

    def __init__(self, join: Join) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = join.interface
        import torch
        import torch.distributed as dist

        self.statistics = Statistics()
        self._torch, self._dist = torch, dist
        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://{join.hosts[0]}:{join.port}",
            rank=join.rank,
            world_size=len(join.hosts),
        )

    def all_reduce(self, x: Vector) -> None:
        """Replace `x` by its sum over all workers."""
        self.in_place(x)()

    def in_place(self, x: Vector) -> Callable[[], object]:
        """Return a function that does this whenever it is called."""
        return partial(self._dist.all_reduce, self._torch.from_numpy(x))

    def close(self) -> None:
        """Leave the group."""
        self._dist.destroy_process_group()


def join_group(join: Join) -> InNetworkAllReduce | TcpAllReduce | Gloo:
    """Join the group and return this worker's end of it.

    Raises:
        ValueError: There is no such algorithm.
    """
    here = join.hosts[join.rank]
    match join.algorithm:
        case "in-network":
            assert join.lease
            return InNetworkAllReduce(
                InNetworkConfig(
                    join.lease,
                    (here, join.port),
                    (join.switch, join.port),
                    segments=join.segments,
                    recovery=Recovery(give_up=GIVE_UP),
                )
            )
        case "ring":
            addresses = tuple((host, join.port) for host in join.hosts)
            return TcpAllReduce(TcpConfig(join.rank, addresses, give_up=GIVE_UP))
        case "gloo":
            return Gloo(join)
    raise ValueError(f"no algorithm {join.algorithm}")


class Inputs:
    """The inputs of all workers, and their exact sum. `period_elements` is the period of the inputs, as in PERIOD."""

    def __init__(self, rank: int, workers: int, promise: ErrorBound, period_elements: int = PERIOD) -> None:
        self._elements = period_elements
        period = np.random.default_rng(1).standard_normal(period_elements, np.float32)
        every = np.stack([np.roll(period, SHIFT * other) for other in range(workers)])
        self._own = every[rank].copy()
        self._exact = every.sum(axis=0, dtype=np.float64)
        # Of whole blocks; a block that a vector's end cuts off has no larger error.
        self._bound = promise(list(every))

    def fill(self, vector: Vector, repetition: int) -> None:
        """Write this worker's input into `vector` [elements]. It differs in each repetition."""
        for part, place in self._parts(vector, repetition):
            part[:] = self._own[place]

    def wrong(self, total: Vector, repetition: int) -> int:
        """Return how many elements of `total` [elements] are outside the promised bound around the exact sum."""
        count = 0
        for part, place in self._parts(total, repetition):
            error = np.abs(part - self._exact[place])
            count += int(np.count_nonzero(~(error <= self._bound[place])))  # a NaN is outside, too
        return count

    def _parts(self, vector: Vector, repetition: int) -> Iterator[tuple[Vector, slice]]:
        """Yield the vector in pieces, with the place of each in the period. Each repetition starts at another block."""
        place, start = repetition * STEP % self._elements, 0
        while start < len(vector):
            part = vector[start : start + self._elements - place]
            yield part, slice(place, place + len(part))
            start += len(part)
            place = 0


def in_place(collective: Any, x: Vector) -> Callable[[], object]:
    """Return a function that sums `x` in place whenever it is called, with everything prepared once, as in training."""
    if isinstance(collective, Gloo):
        return collective.in_place(x)
    if type(collective) is InNetworkAllReduce:  # a job's member has more to do in a call
        return partial(collective.sum_in_network, Buffers(x, x), "")
    return partial(collective.all_reduce, x, x)


def execute(order: Order, collective: Any, inputs: Inputs) -> Report:
    """Execute an order, and check every result."""
    report = Report()
    vector, one = np.empty(order.elements, np.float32), np.zeros(1, np.float32)
    sum_up = in_place(collective, vector)
    before = collective.statistics.retransmissions
    for repetition in range(order.repetitions + 1):
        inputs.fill(vector, repetition)
        collective.all_reduce(one.copy())  # a barrier
        used = resource.getrusage(resource.RUSAGE_SELF)
        parts = spent(collective)
        start = time.monotonic()
        sum_up()
        end = time.monotonic()
        time.sleep(REST)
        after = resource.getrusage(resource.RUSAGE_SELF)
        report.wrong += inputs.wrong(vector, repetition)
        if repetition:
            report.starts.append(start)
            report.ends.append(end)
            report.user += after.ru_utime - used.ru_utime
            report.system += after.ru_stime - used.ru_stime
            for name, seconds in spent(collective).items():
                report.parts[name] = report.parts.get(name, 0.0) + seconds - parts[name]
    report.retransmissions = collective.statistics.retransmissions - before
    return report


def spent(collective: Any) -> dict[str, float]:
    """Return the seconds so far by part, for an in-network worker whose packets C handles."""
    worker = getattr(collective, "worker", None)
    return worker.spent if isinstance(worker, Worker) else {}


def main() -> None:
    """Join the group, confirm it, and obey orders until the input ends."""
    lines_out()
    given = json.loads(sys.stdin.readline())
    lease = given["lease"] and Lease(**given["lease"])
    join = Join(**{**given, "lease": lease})
    quantized = partial(quantized_sum_bound, window=PERIOD)  # for short vectors, too
    promise = quantized if join.algorithm == "in-network" else float32_sum_bound
    inputs = Inputs(join.rank, len(join.hosts), promise)
    collective = join_group(join)
    write_line(b"{}")
    try:
        for line in sys.stdin:
            report = execute(Order(**json.loads(line)), collective, inputs)
            write_line(json.dumps(asdict(report)).encode())
    except CollectiveError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    finally:
        collective.close()


if __name__ == "__main__":
    main()
