"""What fails in a point, and what follows: docs/faults.md, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from experiments.scenario.fault import Fault
from experiments.virtual.fabric import Cluster, Job
from experiments.virtual.handover import hand_over
from topologies.virtual import SECOND
from workers.collective import Algorithm


class FaultError(RuntimeError):
    """The job ends with it; or it did not come to it."""


@dataclass(frozen=True, slots=True)
class FaultTimes:
    """By which algorithm the job went on, and how long after the fault all workers had their next sum."""

    carried_on: Algorithm
    recovery_seconds: float

    @property
    def columns(self) -> dict[str, Any]:
        """By their names in Measured."""
        return {"fault_carried_on": self.carried_on, "fault_recovery_seconds": self.recovery_seconds}


def run_with(fault: Fault, cluster: Cluster, limit: float) -> FaultTimes | None:
    """Run until every worker has all its sums; None: not by `limit` (seconds).

    Raises:
        FaultError: a worker has died, or the job was over before anything failed.
    """
    network, job = cluster.network, cluster.job
    if fault.kind == "worker-stall":
        assert fault.duration
        network.stall(fault.node, fault.at, fault.at + fault.duration)
    if fault.kind == "worker-death":
        network.stall(fault.node, fault.at, 2 * limit)
    network.run(lambda: cluster.finished, fault.at)
    if cluster.finished:
        over = network.now / SECOND
        raise FaultError(f"fault.at: the job was over after {1e3 * over:.4g} ms; set it to less")
    done = min(len(station.outputs) for station in job.stations)
    _HAPPEN[fault.kind](fault, cluster)
    if not cluster.run(limit):
        return None
    recovered = max(station.ended[done] for station in job.stations)
    return FaultTimes(job.spec.algorithm, recovered - fault.at)


def _restart(fault: Fault, cluster: Cluster) -> None:
    """Jobs of which it is the root go on by ring, the others where they were."""
    cluster.lose_switch(fault.node, fault.notice)
    job = cluster.job
    job.reinstall(fault.node)
    if job.tree is not None and job.tree.root.switch == fault.node:
        hand_over(job, fault.at + fault.notice)


def _cut(fault: Fault, cluster: Cluster) -> None:
    """Routes go around it; a job whose tree has it goes on by ring. Nothing happens where it is up again before."""
    assert fault.far_node is not None
    network, ends = cluster.network, (fault.node, fault.far_node)
    link = cluster.topology.link_between(*ends)
    found = fault.at + fault.notice
    up = inf if fault.duration is None else fault.at + fault.duration
    network.set_loss(*ends, 1.0)
    if found < up:
        network.run(limit=found)
        cluster.reroute(cluster.topology.without([link]))
        if _uses(cluster.job, *ends):
            hand_over(cluster.job, found)
    if up < inf:
        network.run(lambda: cluster.finished, up)
        network.set_loss(*ends, link.properties.loss)
        cluster.reroute(cluster.topology)


def _uses(job: Job, a: str, b: str) -> bool:
    parts = job.tree.aggregators if job.tree is not None else ()
    return any({part.switch, part.parent} == {a, b} for part in parts)


def _stall(fault: Fault, cluster: Cluster) -> None:
    """The others wait."""


def _die(fault: Fault, cluster: Cluster) -> None:
    """The job ends, as it has no `min_workers`."""
    cluster.network.run(lambda: cluster.finished, fault.at + fault.notice)
    if not cluster.finished:
        rank = cluster.members.index(fault.node)
        raise FaultError(f"rank {rank} on {fault.node} ended while others wait")


_HAPPEN: dict[str, Callable[[Fault, Cluster], None]] = {
    "switch-restart": _restart,
    "link-down": _cut,
    "worker-stall": _stall,
    "worker-death": _die,
}
