"""One worker of the all-reduce benchmark: joins one group, then does what its standard input asks, a JSON line each.

It runs in PyTorch's Python too, for Gloo, and so imports nothing but numpy and our own modules that need no more.
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
from fanin.workers import InNetworkAllReduce, InNetworkConfig, Lease, Recovery, TcpAllReduce, TcpConfig
from fanin.workers.collective import CollectiveError, Statistics
from fanin.workers.engines.buffers import Buffers

Vector = NDArray[np.float32]

# Inputs repeat after so many elements, so that exact sums of any length cost little. The number of blocks is prime:
# one that is taken for another cannot go unseen.
PERIOD = 4093 * 256
STEP = 97 * 256  # by which it is further in its input from one repetition to the next
SHIFT = 1001  # by which a worker's input lies behind that of the rank before
GIVE_UP = 30.0
# Seconds that a worker keeps still when it is done, for what it computes would keep those that share its core from
# finishing.
REST = 0.002


@dataclass(frozen=True, slots=True)
class Join:
    """Which group, and where. hosts: addresses by rank. The rest is what some of the algorithms need."""

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
    """All-reduce a vector of `elements` so often, after once to warm up."""

    elements: int
    repetitions: int


@dataclass(slots=True)
class Report:
    """What came of an order: seconds on the machine's monotonic clock, by repetition; seconds of processor time in all.

    wrong: elements outside their bound. parts: seconds in each part of the worker (see Worker.spent).
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
        """Sum of `x` over all workers, of its shape, in its place."""
        self.in_place(x)()

    def in_place(self, x: Vector) -> Callable[[], object]:
        """What does it whenever it is called."""
        return partial(self._dist.all_reduce, self._torch.from_numpy(x))

    def close(self) -> None:
        """Leave the group."""
        self._dist.destroy_process_group()


def join_group(join: Join) -> InNetworkAllReduce | TcpAllReduce | Gloo:
    """This worker's end of the group.

    Raises:
        ValueError: there is no such algorithm.
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
    """The vectors that all workers put in, and what their sum must be; period_elements: as PERIOD."""

    def __init__(self, rank: int, workers: int, promise: ErrorBound, period_elements: int = PERIOD) -> None:
        self._elements = period_elements
        period = np.random.default_rng(1).standard_normal(period_elements, np.float32)
        every = np.stack([np.roll(period, SHIFT * other) for other in range(workers)])
        self._own = every[rank].copy()
        self._exact = every.sum(axis=0, dtype=np.float64)
        self._bound = promise(list(every))  # of whole blocks; one that a vector's end cuts off errs no more

    def fill(self, vector: Vector, repetition: int) -> None:
        """This worker's input, as long as `vector` [elements] and another each time."""
        for part, place in self._parts(vector, repetition):
            part[:] = self._own[place]

    def wrong(self, total: Vector, repetition: int) -> int:
        """How many elements of `total` [elements] are not within what is promised of the exact sum."""
        count = 0
        for part, place in self._parts(total, repetition):
            error = np.abs(part - self._exact[place])
            count += int(np.count_nonzero(~(error <= self._bound[place])))  # a NaN is outside, too
        return count

    def _parts(self, vector: Vector, repetition: int) -> Iterator[tuple[Vector, slice]]:
        """The vector in pieces, and where each is in the period: another block comes first each time."""
        place, start = repetition * STEP % self._elements, 0
        while start < len(vector):
            part = vector[start : start + self._elements - place]
            yield part, slice(place, place + len(part))
            start += len(part)
            place = 0


def in_place(collective: Any, x: Vector) -> Callable[[], object]:
    """What sums `x` in its place whenever it is called, and as training does it: what can be prepared is, once."""
    if isinstance(collective, Gloo):
        return collective.in_place(x)
    if type(collective) is InNetworkAllReduce:  # a job's member has more to do in a call
        return partial(collective.sum, Buffers(x, x), "")
    return partial(collective.all_reduce, x, x)


def execute(order: Order, collective: Any, inputs: Inputs) -> Report:
    """Do it, every result checked."""
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
    """Seconds so far by part, of an in-network worker whose packets are C's."""
    return collective.worker.spent if isinstance(collective, InNetworkAllReduce) else {}


def main() -> None:
    """Join, say so, and do what is asked until the input ends."""
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
