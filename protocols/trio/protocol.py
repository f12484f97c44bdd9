"""Trio-ML (Yang et al., SIGCOMM 2022): README.md specifies it, and what differs from the paper."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.controller import plan
from fanin.controller.errors import ControllerError
from fanin.controller.network import Network
from fanin.controller.plan import Plan, TableEntry
from fanin.controller.tree import Tree
from fanin.experiments.protocol import exact_sum
from fanin.workers import wire
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from fanin.workers.slotted import Chunks, FixedPointWorker, Vector
from fanin.workers.values import fixed_point

MOST_WORKERS = 16  # so that the oracle can try all sets of workers
TIMEOUTS = 4  # retransmission timeouts for which a leaf waits for late workers
_STEP = 32e-6  # seconds: the unit of that time in packets, which have 15 bits for it
_LONGEST = 0x7FFF
_PROBED = 16  # elements by which the oracle chooses a set of workers

# -- the worker ------------------------------------------------------------------------------------------------------


class TrioWorker(FixedPointWorker):
    """A worker whose results may lack the values of late workers, and are scaled by how many they have."""

    def __init__(self, lease: Lease, recovery: Recovery) -> None:
        super().__init__(lease, recovery)
        self._patience = min(math.ceil(TIMEOUTS * recovery.initial_rto / _STEP), _LONGEST)

    def packets(
        self, chunks: Chunks, values: NDArray[np.int32], message: int = wire.UPDATE
    ) -> NDArray[np.void]:
        """Return packets with the worker's bit, and how long switches wait for late workers."""
        packets = super().packets(chunks, values, message)
        packets["call"] = 1 << self.lease.rank
        packets["e0"] = np.uint8(self._patience >> 7).view(np.int8)
        packets["e1"] = self._patience & 0x7F
        return packets

    def is_result(self, packets: NDArray[np.void]) -> NDArray[np.bool_]:
        """Return which packets [m] are results of this lease, which have at least one worker's values."""
        return super().is_result(packets) & (_workers_in(packets) > 0)

    def sums(self, packets: NDArray[np.void]) -> Vector:
        """Return the sums [m, elements], each scaled by how many workers it has."""
        factors = self.lease.workers / np.maximum(_workers_in(packets), 1) / self._scale
        found: Vector = (packets["values"] * factors[:, np.newaxis]).astype(np.float32)
        return found


def _workers_in(packets: NDArray[np.void]) -> NDArray[np.int64]:
    """Return how many workers' values each packet [m] has: a bit of `call` for each."""
    counts: NDArray[np.int64] = np.unpackbits(
        np.ascontiguousarray(packets["call"]).view(np.uint8).reshape(-1, 4), axis=1
    ).sum(axis=1)
    return counts


participant, packet = TrioWorker, wire.full_packet


# -- the plan --------------------------------------------------------------------------------------------------------


def plan_aggregation(network: Network, tree: Tree) -> Plan:
    """Return fanin's entries, with the workers below each child, and how many levels of switches are below.

    Raises:
        ControllerError: If there are too many workers.
    """
    hosts = tree.job.hosts
    if len(hosts) > MOST_WORKERS:
        raise ControllerError(f"trio has at most {MOST_WORKERS} workers in a job, not {len(hosts)}")
    children = {part.switch: part.children for part in tree.aggregators}

    def ranks(name: str) -> int:
        return sum(map(ranks, children[name])) if name in children else 1 << hosts.index(name)

    def level(name: str) -> int:
        return 1 + max(map(level, children[name])) if name in children else 0

    def changed(switch: str, entry: TableEntry) -> TableEntry:
        if not entry.action.endswith(".admit_child"):
            return entry
        member = entry.params["member"]
        assert isinstance(member, int)
        more = {"below": ranks(children[switch][member - 1]), "level": level(switch)}
        return replace(entry, params={**entry.params, **more})

    return {
        switch: replace(part, entries=tuple(changed(switch, entry) for entry in part.entries))
        for switch, part in plan.plan_aggregation(network, tree).items()
    }


# -- the oracle ------------------------------------------------------------------------------------------------------


vector = fixed_point.draw_vector


def exact_for(inputs: Sequence[NDArray[np.float32]], output: Vector, values: int) -> NDArray[np.float64]:
    """Return the right result [elements] of a worker that got `output`: for each chunk, of the workers that it has.

    A chunk is right if it is the sum of some workers' values, of each once, times n / their number. Which workers is
    found from the values alone: those whose scaled sum is nearest.
    """
    exact, workers = exact_sum(inputs), len(inputs)
    subsets = np.arange(1, 1 << workers, dtype=np.uint32)
    members = (subsets[:, np.newaxis] >> np.arange(workers, dtype=np.uint32) & 1).astype(np.float64)
    members *= workers / members.sum(axis=1, keepdims=True)
    differs = ~(np.abs(output - exact) <= error_bound(inputs, values, 0))
    for chunk in np.unique(np.flatnonzero(differs) // values):
        part = slice(chunk * values, (chunk + 1) * values)
        own = np.array([x[part] for x in inputs], np.float64)
        probed = np.argsort(-np.abs(own).sum(axis=0), kind="stable")[:_PROBED]
        distances = np.abs(members @ own[:, probed] - output[part][probed]).max(axis=1)
        if not np.isnan(distances).any():
            exact[part] = members[distances.argmin()] @ own
    return exact


def error_bound(inputs: Sequence[NDArray[np.float32]], _values: int, _window: int) -> NDArray[np.float64]:
    """Return the bound [elements]: half a step for each worker, and the rounding of the result to float32."""
    workers = len(inputs)
    largest = np.max([np.abs(x).astype(np.float64) for x in inputs], axis=0)
    bound: NDArray[np.float64] = workers * (0.5 / fixed_point.scale(workers) + largest * 2.0**-23)
    return bound


def survives() -> Iterable[str]:
    """Return the faults that soak may cause, in addition to loss."""
    return "duplication", "reordering", "corruption", "new leases"


def invariants(run: Any) -> Iterable[str]:
    """Yield what is wrong: each worker takes each result once, and each child counts at most once in a chunk."""
    most = 0
    for job in run.jobs:
        chunks = sum(-(-one.length // job.work.values) for one in job.expected)
        most += job.contributions * chunks
        for rank, worker in enumerate(job.workers):
            if job.undisturbed and worker.statistics.accepted != chunks:
                yield f"job {job.number}, rank {rank}: {worker.statistics.accepted} results taken of {chunks}"
    if run.undisturbed and run.added > most:
        yield f"switches added {run.added} contributions, and the jobs have {most}"
