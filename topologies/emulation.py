"""What a switch is told of the links at its ports: which directions it emulates, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fanin.topologies.errors import NetworkError
from fanin.topologies.link import VIRTUAL_ONLY, Burst, LinkModel, LinkProperties
from fanin.topologies.model import Topology

# By the names that a switch has for them: those of the model, but for what links do in virtual time only, and the rate.
SWITCH_PROPERTIES = ("rate", *(name for name in LinkProperties.model_fields if name not in VIRTUAL_ONLY))


def for_switch(properties: LinkModel) -> dict[str, Any]:
    """What differs from a link that has only a rate; empty: nothing does, and the kernel can keep that (shaping.py).

    Raises:
        NetworkError: only links in virtual time can.
    """
    given = properties.given
    for name in VIRTUAL_ONLY:
        if name in given:
            raise NetworkError(f"{name}: is for virtual time only; leave it out of the link's properties")
    return {name: value for name, value in given.items() if value or name not in ("delay", "overhead")}


@dataclass(frozen=True, slots=True)
class EmulatedLink:
    """One direction of the link at a switch's port. `properties` by the names and in the units that a switch has; no
    `rate` (bits/s) among them: unlimited, or kept by the sender itself.
    """

    port: int
    neighbour: str
    direction: Literal["egress", "ingress"]
    properties: Mapping[str, Any]

    @property
    def option(self) -> str:
        """On the switch's command line: `PORT:DIRECTION:NAME=VALUE,…`."""
        listed = ",".join(f"{name}={_text(value)}" for name, value in self.properties.items())
        return f"{self.port}:{self.direction}:{listed}"


def _text(value: Any) -> str:
    return f"{value.begin}/{value.end}/{value.loss}" if isinstance(value, Burst) else str(value)


def emulated_links(topology: Topology, switch: str) -> list[EmulatedLink]:
    """Those at the ports of `switch`: what it sends, and what hosts send to it.

    Raises:
        NetworkError: only links in virtual time can do what one of them does.
    """
    found = []
    for link in topology.links_of(switch):
        properties = for_switch(link.properties)
        if not properties:
            continue
        port, neighbour = link.end(switch).port, link.far_end(switch)
        rate = {} if link.rate_bits_per_second is None else {"rate": link.rate_bits_per_second}
        found.append(EmulatedLink(port, neighbour.node, "egress", properties | rate))
        if neighbour.port == 0:  # a host: its own kernel keeps the rate, and so lets its sockets wait
            found.append(EmulatedLink(port, neighbour.node, "ingress", properties))
    return found
