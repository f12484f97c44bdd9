"""Division of a network into parts, each of which a core can run (loop/parts.c)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fanin.topologies.model import Topology


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a network, numbered from 0.

    Attributes:
        switches: The part of each switch, in the order of the topology.
        first_hosts: Number of the first host of each part, and then the number of hosts. Hosts are divided in the order
            of the topology.
    """

    switches: Sequence[int]
    first_hosts: Sequence[int]

    @property
    def count(self) -> int:
        """Return the number of parts."""
        return len(self.first_hosts) - 1

    @property
    def hosts(self) -> list[int]:
        """Return the part of each host, in the order of the topology."""
        ends = zip(self.first_hosts, self.first_hosts[1:], strict=False)
        return [part for part, (first, end) in enumerate(ends) for _ in range(first, end)]


def divide(topology: Topology, cores: int) -> Parts:
    """Divide a network so that about the same work falls to each core, and few packets cross.

    The hosts of a leaf stay together if they follow one another in the topology. A leaf goes where its hosts are. Any
    other switch goes to the part with most of its neighbours; among several such parts, to the one with the fewest
    ports.

    Args:
        topology: The network.
        cores: The most parts to make. There are fewer if there are fewer leaves with hosts.
    """
    leaves = [host.leaf for host in topology.hosts]
    begins = [i for i, leaf in enumerate(leaves) if i == 0 or leaf != leaves[i - 1]]
    wanted = (len(leaves) * part / cores for part in range(1, cores))
    cuts = {min(begins, key=lambda begin: abs(begin - at)) for at in wanted} if begins else set()
    first_hosts = [0, *sorted(cuts - {0}), len(leaves)]
    hosts = Parts([], first_hosts).hosts
    neighbours: dict[str, list[str]] = {switch.name: [] for switch in topology.switches}
    near: dict[str, Counter[int]] = {switch.name: Counter() for switch in topology.switches}
    own = {host.name: part for host, part in zip(topology.hosts, hosts, strict=True)}
    for link in topology.links:
        for one, other in ((link.a.node, link.b.node), (link.b.node, link.a.node)):
            if one in near and other in own:
                near[one][own[other]] += 1
            elif one in near:
                neighbours[one].append(other)
    found = _spread(neighbours, near, len(first_hosts) - 1)
    return Parts([found[switch.name] for switch in topology.switches], first_hosts)


def _spread(
    neighbours: Mapping[str, Sequence[str]], near: Mapping[str, Counter[int]], parts: int
) -> dict[str, int]:
    """Return the part of each switch: layer by layer, beginning with the switches that have hosts.

    Args:
        neighbours: The switches next to each switch.
        near: How many neighbours a switch has in each part, at first its hosts; counts are added to it.
        parts: The number of parts.
    """
    found: dict[str, int] = {}
    ports = dict.fromkeys(range(parts), 0)
    while left := [name for name in neighbours if name not in found]:
        layer = [name for name in left if near[name]] or left
        for name in layer:
            most = max(near[name].values(), default=0)
            best = [part for part in range(parts) if near[name][part] == most]
            found[name] = min(best, key=lambda part: ports[part])
            ports[found[name]] += len(neighbours[name]) + sum(near[name].values())
        for name in layer:
            for other in neighbours[name]:
                near[other][found[name]] += 1
    return found
