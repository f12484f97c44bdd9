"""Flows of several senders that share one link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fanin.experiments.scenario.tables.congestion import Congestion
from fanin.experiments.virtual.outcome import UnfinishedError
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import SECOND, HostModel
from fanin.simulator.fabric import Fabric
from fanin.simulator.flows import Flows, FlowSpec
from fanin.topologies.model import Topology
from fanin.workers.recovery import Recovery

PACKET_BYTES = 1112  # a full packet on a link, including all headers and the gap between frames

_WINDOW = 4096  # packets; only congestion control limits what is in flight
_RECOVERY = Recovery(initial_rto=1.0, min_rto=1.0, granularity=1e-6)  # nothing is lost
_HOST = HostModel(coalescing=0.0)
_LIMIT = 3.0  # s


def incast(topology: Topology, size: int, switch: Engine) -> Fabric:
    """Return the network after all hosts but the first have sent it `size` bytes at once, as fast as they can.

    Raises:
        UnfinishedError: Not all arrived within a second.
    """
    receiver, *senders = (host.name for host in topology.ranked_hosts)
    fabric = Fabric(topology, switch, host=_HOST)
    specs = [FlowSpec(source=host, destination=receiver, size=size) for host in senders]
    control = Congestion(control="none").control_of
    flows = Flows(fabric, specs, window=_WINDOW, recovery=_RECOVERY, congestion_control=control)
    if not flows.run(_LIMIT):
        raise UnfinishedError(f"{len(flows.completed)} of {len(specs)} flows arrived in {_LIMIT:g} s")
    return fabric


@dataclass(frozen=True, slots=True)
class Used:
    """The use of a link over some time.

    Attributes:
        share: Share of the time in which it was sending.
        queue: Mean queue before it, in bytes.
    """

    share: float
    queue: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """Hosts that all send to one host, and the link that they share.

    Attributes:
        topology: The network.
        senders: Names of the hosts that send, one flow each.
        receiver: Name of the host that receives.
        link: The nodes at the ends of the shared link, in the direction of the flows.
    """

    topology: Topology
    senders: Sequence[str]
    receiver: str
    link: tuple[str, str]

    def used(self, congestion: Congestion, begin: float, end: float, switch: Engine) -> Used:
        """Return how the link was used from `begin` to `end` (seconds) in virtual time.

        Raises:
            UnfinishedError: The flows ended before.
        """
        fabric = Fabric(self.topology, switch, host=_HOST)
        fastest = max(link.rate_bits_per_second or 0 for link in self.topology.links)
        size = int(fastest / 8 * end)  # more than a host can send until the end
        specs = [FlowSpec(source=host, destination=self.receiver, size=size) for host in self.senders]
        flows = Flows(
            fabric, specs, window=_WINDOW, recovery=_RECOVERY, congestion_control=congestion.control_of
        )
        links = fabric.network.links
        place = fabric.network.link_ends.index(self.link)
        counted = []
        for until in (begin, end):
            if flows.run(until):
                raise UnfinishedError(f"all flows arrived within {until:g} s; make them longer")
            now = round(until * SECOND)
            # A link that is sending has counted the whole packet.
            ahead = max(0, int(links.table["free_at"][place]) - now)
            counted.append((int(links.counts.busy[place]) - ahead, int(links.queue_areas(now)[place])))
        (busy_then, area_then), (busy, area) = counted
        seconds = end - begin
        return Used((busy - busy_then) / SECOND / seconds, (area - area_then) / 1e9 / seconds)
