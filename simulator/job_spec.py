"""What a job in virtual time is made of, and a network of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from fanin.controller.jobs.ledger import GRANT
from fanin.simulator import HostModel
from fanin.simulator.network import DEFAULT_HOST
from fanin.topologies.model import Topology
from fanin.workers.collective import Algorithm, Transport, WindowScope
from fanin.workers.host_based.congestion_control import Dctcp, MakeControl
from fanin.workers.host_based.exchange import Call
from fanin.workers.recovery import Recovery

DEFAULT_RECOVERY = Recovery()

# What makes the congestion control of a sender on this host.
CongestionControlOf: TypeAlias = Callable[[Topology, str], MakeControl]


def dctcp(_topology: Topology, _host: str) -> MakeControl:
    """Return DCTCP with its usual parameters, whatever the link."""
    return Dctcp


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What one job is made of; times in seconds.

    hosts: names, by rank; None: all of the topology. trees: in the network, along each of which a part of every vector
    is summed, with a lease, slots and a UDP port of its own. window: slots, of each; between hosts, the most packets
    outstanding, of each connection or of a host (window_per). counted: how many workers each believes there are (None:
    as many as there are; fewer makes sums saturate, and they do not compare notes then). first_slot: None: after those
    of the jobs before. transport, congestion_control: between hosts. shards: of the parameter server, each on a
    worker of its own (None: on every worker). calls: between hosts, what a worker's calls do, in turn. flows: from a
    host to another. chunks: numbers of a lease.
    pauses: of each worker, before each of its all-reduces; (): none. They count from the end of the first all-reduce of
    each step, of which it has `per_step`. ring: it can carry on by ring where it loses its lease (Job.carry_on), with
    the timers of ring_recovery (None: recovery). elastic: or without some of its workers (Job.regroup). priority: of
    its packets, 0 to 7, where links have queues for each. on_call: its stations wait for WorkerStation.called to grow.
    """

    hosts: tuple[str, ...] | None = None
    trees: int = 1
    window: int = 64
    window_per: WindowScope = "connection"
    values: int = 256
    recovery: Recovery = DEFAULT_RECOVERY
    counted: int | None = None
    algorithm: Algorithm = "in-network"
    transport: Transport = "selective-repeat"
    shards: int | None = None
    flows: int = 1
    chunks: int = GRANT
    first_slot: int | None = None
    pauses: tuple[tuple[float, ...], ...] = ()
    per_step: int = 1
    ring: bool = False
    ring_recovery: Recovery | None = None
    elastic: bool = False
    congestion_control: CongestionControlOf = dctcp
    calls: tuple[Call, ...] = ("all-reduce",)
    priority: int = 0
    on_call: bool = False


@dataclass(frozen=True, slots=True)
class ClusterSpec(JobSpec):
    """A job and a network of its own. priorities: see Fabric."""

    topology: Topology
    host: HostModel = DEFAULT_HOST
    seed: int = 0
    priorities: bool = False
