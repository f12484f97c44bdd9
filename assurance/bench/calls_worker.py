"""A worker that `fanin launch` starts to measure what calls add: one vector, summed in turn by each way to call.

python -m fanin.assurance.bench.calls_worker ORDERS, a JSON list of Order. For each it prints a line of JSON: Calls by
way.

The bare all-reduce and the calls each have a job on the same switches. It also runs in PyTorch's Python, like
allreduce_worker.py. If PyTorch is there, its calls are measured too, and a backend that does nothing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np

import fanin
from fanin.assurance.bench.allreduce_worker import REST, Inputs, Order, Vector, spent
from fanin.experiments.live.output import lines_out, write_line
from fanin.experiments.results.checking import quantized_sum_bound
from fanin.workers import InNetworkAllReduce
from fanin.workers.job.environment import JOB
from fanin.workers.job.membership import Service, ask, config_of

BARE, CALL, TORCH, NOTHING = "bare", "comm.allreduce", "torch", "torch, no backend"
_WARM_UP = 2  # the second vector of a length is the first that needs a single round trip
_JOIN_SECONDS = 60.0
_PERIOD = 509 * 256  # as in joined_worker.py


@dataclass(slots=True)
class Calls:
    """Measurements of one way to call. Times are in seconds.

    Attributes:
        starts: Start of each repetition on the machine's monotonic clock.
        ends: End of each repetition on the same clock.
        processor: Processor time of the process in each repetition.
        waits: How long the worker waited for packets in each repetition, if C handles the packets.
        wrong: Number of elements of all sums outside their bound.
    """

    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    wrong: int = 0


# Takes a vector and returns a function that sums it in place.
Sum = Callable[[Vector], Callable[[], object]]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to call.

    Attributes:
        sum: Makes the call for a vector.
        barrier: Makes the call before each measured one.
        through: The worker whose packets it sends, or None.
    """

    sum: Sum
    barrier: Sum
    through: object


def bare_all_reduce() -> tuple[Service, InNetworkAllReduce]:
    """Join a separate job, which lasts as long as the connection to the job service, and return its bare all-reduce."""
    job = f"{os.environ[JOB]}-{BARE}"
    asked = {"hosts": int(os.environ["WORLD_SIZE"]), "job": job, "slots": None, "ring": False}
    service, assignment = ask(asked, _JOIN_SECONDS)
    return service, InNetworkAllReduce(config_of(assignment["config"], None, {}))


def torch_sums() -> tuple[Sum, Sum]:
    """Return PyTorch's call with the backend "fanin", and with one that does nothing (PyTorch's own time)."""
    import torch
    import torch.distributed as dist

    import fanin.torch  # noqa: F401  # PyTorch finds it by itself only if fanin is installed

    class Nothing(dist.ProcessGroup):
        def allreduce(self, _tensors: Any, _opts: Any) -> None:
            """Do nothing."""

    def nothing(_store: object, rank: int, size: int, _timeout: object) -> dist.ProcessGroup:
        return Nothing(rank, size)

    dist.Backend.register_backend("nothing", nothing, devices=["cpu"])
    torch.set_num_threads(1)
    dist.init_process_group("fanin")
    group = dist.new_group(backend="nothing")

    def on_all(x: Vector) -> Callable[[], object]:
        tensor = torch.from_numpy(x)
        return lambda: dist.all_reduce(tensor)

    def on_none(x: Vector) -> Callable[[], object]:
        tensor = torch.from_numpy(x)
        return lambda: dist.all_reduce(tensor, group=group)

    return on_all, on_none


def execute(order: Order, ways: dict[str, Way], inputs: Inputs) -> dict[str, Calls]:
    """Time each way once per repetition, beginning with another one each time.

    The barrier before a call is a call of the same way, so that all find their code in the caches.
    """
    vector = np.empty(order.elements, np.float32)
    names, calls = list(ways), {name: Calls() for name in ways}
    one = np.zeros(1, np.float32)
    by_name = {name: (way.barrier(one), way.sum(vector)) for name, way in ways.items()}
    for repetition in range(order.repetitions + _WARM_UP):
        first = repetition % len(names)
        for name in names[first:] + names[:first]:
            (barrier, call), of = by_name[name], calls[name]
            inputs.fill(vector, repetition)
            barrier()
            waited = spent(ways[name].through).get("wait", 0.0)
            used = time.process_time()
            start = time.monotonic()
            call()
            end = time.monotonic()
            processor = time.process_time() - used
            time.sleep(REST)
            if name != NOTHING:
                of.wrong += inputs.wrong(vector, repetition)
            if repetition >= _WARM_UP:
                of.starts.append(start)
                of.ends.append(end)
                of.processor.append(processor)
                of.waits.append(spent(ways[name].through).get("wait", 0.0) - waited)
    return calls


def main(orders: str) -> None:
    """Join both jobs, and obey the orders."""
    lines_out()
    service, bare = bare_all_reduce()
    with fanin.init() as comm:

        def by_bare(x: Vector) -> Callable[[], object]:
            return partial(bare.all_reduce, x, x)

        def by_call(x: Vector) -> Callable[[], object]:
            return partial(comm.allreduce, x, out=x)

        ways = {BARE: Way(by_bare, by_bare, bare), CALL: Way(by_call, by_call, comm._place)}
        if importlib.util.find_spec("torch"):
            by_torch, by_nothing = torch_sums()
            ways |= {TORCH: Way(by_torch, by_torch, comm._place), NOTHING: Way(by_nothing, by_torch, None)}
        # The bound for vectors that are scaled according to earlier ones.
        inputs = Inputs(comm.rank, comm.size, partial(quantized_sum_bound, window=_PERIOD), _PERIOD)
        for order in json.loads(orders):
            calls = execute(Order(**order), ways, inputs)
            write_line(json.dumps({name: asdict(of) for name, of in calls.items()}).encode())
    bare.close()
    service.close()


if __name__ == "__main__":
    main(sys.argv[1])
