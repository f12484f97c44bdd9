"""Majority vote of one bit per element: README.md specifies it."""

from __future__ import annotations

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
from fanin.workers import wire
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from fanin.workers.slotted import Chunks, Datagrams, SlottedWorker, Vector

VOTES = 512  # in a packet: VOTES in program.p4
MOST_WORKERS = 255  # counts have eight bits
_UPDATE, _RESULT = 0x00, 0x10
_PACKET = np.dtype(
    [("kind", "u1"), ("lease", "u1"), ("chunk", ">u4"), ("pool_index", ">u2"), ("votes", "u1", VOTES // 8)]
)


# -- the worker ------------------------------------------------------------------------------------------------------


class Voter(SlottedWorker):
    """A worker that votes for the sign of each element, and gets 1 or -1."""

    def __init__(self, lease: Lease, recovery: Recovery) -> None:
        super().__init__(lease, recovery, VOTES)
        self._votes = np.zeros((0, VOTES // 8), np.uint8)

    def load(self, x: Vector) -> None:
        """Turn a vector [chunks, elements] into votes, 1 for an element that is not negative."""
        if np.isnan(x).any():
            raise ValueError("a NaN has no sign: clip or replace it before the vote")
        self._votes = np.packbits(x >= 0, axis=1)

    def updates(self, chunks: Chunks, rows: Chunks) -> Datagrams:
        """Return the packets of chunks [m]."""
        packets = np.zeros(len(chunks), _PACKET)
        packets["kind"], packets["lease"], packets["chunk"] = _UPDATE, self.lease.id, chunks
        packets["pool_index"] = wire.pool_index(chunks, self.lease.first_slot, self.lease.window)
        packets["votes"] = self._votes[rows]
        return packets.view(np.uint8).reshape(len(packets), _PACKET.itemsize)

    def results(self, datagrams: Datagrams) -> tuple[Chunks, Vector]:
        """Return the chunks [m] of results, and the majorities [m, elements]."""
        if datagrams.shape[1] != _PACKET.itemsize:
            return np.full(len(datagrams), -1), np.zeros((len(datagrams), VOTES), np.float32)
        packets = np.ascontiguousarray(datagrams).view(_PACKET).reshape(-1)
        ours = (packets["kind"] == _RESULT) & (packets["lease"] == self.lease.id)
        majorities = np.unpackbits(packets["votes"], axis=1).astype(np.float32) * 2 - 1
        return np.where(ours, packets["chunk"].astype(np.int64), -1), majorities


participant = Voter


def packet(_values: int) -> tuple[int, int, int]:
    """Return the elements in a packet, its UDP payload in bytes, and that of counts between switches."""
    return VOTES, _PACKET.itemsize, _PACKET.itemsize + 7 * VOTES // 8


# -- the plan --------------------------------------------------------------------------------------------------------


def plan_aggregation(network: Network, tree: Tree) -> Plan:
    """Return fanin's entries; those of the root's children say what it adds to a count to make bit 7 the majority."""
    workers = len(tree.job.hosts)
    if workers > MOST_WORKERS:
        raise ControllerError(
            f"majority counts up to {MOST_WORKERS} votes, and the job has {workers} workers"
        )
    return {
        switch: replace(part, entries=tuple(_with_bias(entry, workers) for entry in part.entries))
        for switch, part in plan.plan_aggregation(network, tree).items()
    }


def _with_bias(entry: TableEntry, workers: int) -> TableEntry:
    if not entry.action.endswith(".admit_child"):
        return entry
    bias = 128 - -(-workers // 2) if entry.params["root"] else 0
    return replace(entry, params={**entry.params, "bias": bias})


# -- the oracle ------------------------------------------------------------------------------------------------------


def exact(inputs: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Return 1 where at least half of the workers have no negative element, else -1: [elements]."""
    votes = sum((x >= 0).astype(np.int64) for x in inputs)
    return np.where(2 * votes >= len(inputs), 1.0, -1.0)


def error_bound(inputs: Sequence[NDArray[np.float32]], _values: int, _window: int) -> NDArray[np.float64]:
    """Return zeros [elements]: a vote has one right result."""
    return np.zeros(len(inputs[0]))


def survives() -> Iterable[str]:
    """Return the faults that soak may cause, in addition to loss."""
    return "duplication", "reordering", "corruption", "restarts", "new leases"


def invariants(run: Any) -> Iterable[str]:
    """Yield what is wrong: each worker's vote for a chunk counts once at each switch, and each result is taken once."""
    wanted = 0
    for job in run.jobs:
        chunks = sum(-(-one.length // VOTES) for one in job.expected)
        wanted += job.contributions * chunks
        for rank, worker in enumerate(job.workers):
            if job.undisturbed and worker.statistics.accepted != chunks:
                yield f"job {job.number}, rank {rank}: {worker.statistics.accepted} results taken of {chunks}"
    if run.undisturbed and run.added != wanted:
        yield f"switches added {run.added} votes and counts, of {wanted} that the jobs have"
