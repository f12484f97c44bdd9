"""Description of a job in virtual time, and of a network with only one job."""

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
from fanin.workers.host_based.transport import PAYLOAD
from fanin.workers.recovery import Recovery

DEFAULT_RECOVERY = Recovery()

# Returns what makes the congestion control of a sender on this host.
CongestionControlOf: TypeAlias = Callable[[Topology, str], MakeControl]


def dctcp(_topology: Topology, _host: str) -> MakeControl:
    """Return DCTCP with its usual parameters, whatever the link."""
    return Dctcp


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """Description of one job. Times are in seconds.

    Attributes:
        hosts: Names of the hosts, by rank. None takes all hosts of the topology.
        trees: Number of aggregation trees. Along each, part of every vector is summed, with its own lease, slots and
            UDP port.
        window: In the network, slots of each tree. Between hosts, the maximum number of packets in flight of each
            connection or host.
        window_per: Whether the window between hosts is per connection or per host.
        values: Integers in a packet; 128 and 512 are of 16 bits.
        recovery: Timers.
        counted: How many workers each worker assumes. None means the true number. Fewer makes sums saturate; the
            workers then do not compare what they must have in common.
        algorithm: In-network or one of the host-based algorithms.
        transport: Transport between hosts.
        shards: Number of shards of the parameter server, each on its own worker. None puts one on every worker.
        flows: Number of flows from one host to another.
        chunks: Number of chunk numbers of a lease.
        first_slot: First slot. None takes those after the slots of earlier jobs, or the first ones if jobs share them.
        slots: Number of slots that all trees and jobs share, from first_slot on. None: each tree has its own, as many
            as `window`.
        servers: Hosts of the parameter servers, one for each tree, if the protocol has servers.
        pauses: For each worker, the pause before each of its all-reduces, counted from the end of the first all-reduce
            of a step. Empty: no pauses.
        per_step: Number of all-reduces in a step.
        ring: Whether the job can fall back to the ring when it loses its lease (Job.carry_on).
        ring_recovery: Timers of that ring. None takes `recovery`.
        elastic: Whether the job can continue without some of its workers (Job.regroup).
        congestion_control: Congestion control between hosts.
        calls: What the calls of a worker do in turn, between hosts.
        payload: Between hosts, bytes of a vector in a full packet.
        priority: Priority of its packets, 0 to 7, where links have queues for each.
        on_call: Whether its stations wait until WorkerStation.called grows.
        until_sum: Whether an all-reduce ends when the sum is there, although packets may not be acknowledged yet.
        shares_card: Whether its packets in the network take turns with others of its hosts, as those between hosts do.
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
    slots: int | None = None
    servers: tuple[str, ...] = ()
    pauses: tuple[tuple[float, ...], ...] = ()
    per_step: int = 1
    ring: bool = False
    ring_recovery: Recovery | None = None
    elastic: bool = False
    congestion_control: CongestionControlOf = dctcp
    calls: tuple[Call, ...] = ("all-reduce",)
    payload: int = PAYLOAD
    priority: int = 0
    on_call: bool = False
    until_sum: bool = False
    shares_card: bool = False


@dataclass(frozen=True, slots=True)
class ClusterSpec(JobSpec):
    """Description of a job and of a network with only this job.

    Attributes: see Fabric for `priorities`, `reconfiguration` and `loopback`.
    """

    topology: Topology
    host: HostModel = DEFAULT_HOST
    seed: int = 0
    priorities: bool = False
    reconfiguration: float | None = None
    loopback: float | None = None
