"""Which direction of which link a switch emulates: those that it sends on, and those of hosts to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from topologies.link import PLAIN, LinkProperties
from topologies.model import Topology


@dataclass(frozen=True, slots=True)
class EmulatedLink:
    """One direction of the link at a switch's port. `rate` in bits/s; None: unlimited, or kept by the sender itself."""

    port: int
    neighbour: str
    direction: Literal["egress", "ingress"]
    rate: int | None
    properties: LinkProperties


def emulated_links(topology: Topology, switch: str) -> list[EmulatedLink]:
    """Those at the ports of `switch`. Links that have only a rate are left to the kernel (shaping.py)."""
    found = []
    for link in topology.links_of(switch):
        if link.properties == PLAIN:
            continue
        port, neighbour = link.end(switch).port, link.far_end(switch)
        found.append(EmulatedLink(port, neighbour.node, "egress", link.rate_bits_per_second, link.properties))
        if neighbour.port == 0:  # a host: its own kernel keeps the rate, and so lets its sockets wait
            found.append(EmulatedLink(port, neighbour.node, "ingress", None, link.properties))
    return found
