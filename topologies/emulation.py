"""The links that a switch emulates at its ports: which directions, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fanin.topologies.errors import NetworkError
from fanin.topologies.link import VIRTUAL_ONLY, Burst, LinkModel, LinkProperties
from fanin.topologies.model import Topology

# The properties that a switch knows: its rate, and those of the model except the ones for virtual time only.
SWITCH_PROPERTIES = ("rate", *(name for name in LinkProperties.model_fields if name not in VIRTUAL_ONLY))


def for_switch(properties: LinkModel) -> dict[str, Any]:
    """Return the properties that a switch has to emulate, by name.

    The result is empty if the link has nothing but a rate, which the kernel can keep (shaping.py).

    Raises:
        NetworkError: If a property is for virtual time only.
    """
    given = properties.given
    for name in VIRTUAL_ONLY:
        if name in given:
            raise NetworkError(f"{name}: works in virtual time only; leave it out of the link's properties")
    return {name: value for name, value in given.items() if value or name not in ("delay", "overhead")}


@dataclass(frozen=True, slots=True)
class EmulatedLink:
    """One direction of the link at a switch's port.

    Attributes:
        port: The switch's port.
        neighbour: The node at the far end.
        direction: "egress" from the switch, "ingress" to it.
        properties: What to emulate, with the switch's names and units. Without `rate` (bits/s) the link is unlimited,
            or the sender keeps the rate itself.
    """

    port: int
    neighbour: str
    direction: Literal["egress", "ingress"]
    properties: Mapping[str, Any]

    @property
    def option(self) -> str:
        """Return the link as an argument of the switch's command line: `PORT:DIRECTION:NAME=VALUE,…`."""
        listed = ",".join(f"{name}={_text(value)}" for name, value in self.properties.items())
        return f"{self.port}:{self.direction}:{listed}"


def _text(value: Any) -> str:
    return f"{value.begin}/{value.end}/{value.loss}" if isinstance(value, Burst) else str(value)


def emulated_links(topology: Topology, switch: str) -> list[EmulatedLink]:
    """Return the links that `switch` emulates at its ports: what it sends, and what hosts send to it.

    Raises:
        NetworkError: If a link has a property for virtual time only.
    """
    found = []
    for link in topology.links_of(switch):
        properties = for_switch(link.properties)
        if not properties:
            continue
        port, neighbour = link.end(switch).port, link.far_end(switch)
        rate = {} if link.rate_bits_per_second is None else {"rate": link.rate_bits_per_second}
        found.append(EmulatedLink(port, neighbour.node, "egress", properties | rate))
        if neighbour.port == 0:  # a host; its kernel keeps the rate, so that its sockets block
            found.append(EmulatedLink(port, neighbour.node, "ingress", properties))
    return found
