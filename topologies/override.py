"""Single links of a network that differ from the others: down, degraded, slow or lossy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fanin.topologies.link import LinkProperties
from fanin.topologies.model import FASTEST, SLOWEST, Link, Topology, TopologyError
from fanin.topologies.shapes import topology_from
from fanin.topologies.units import Bytes, Probability, Rate, Seconds


class Override(BaseModel):
    """The properties of one link that differ from those of the other links in its tier.

    Properties that are left out stay as they are. LinkModel describes those that are not listed here.

    Attributes:
        link: The names of its two ends, in any order.
        down: Remove the link.
        rate: Its rate in bits/s.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    link: Annotated[tuple[str, str], Field(description="the names of its two ends")]
    down: Annotated[bool, Field(description="the link has failed; nothing crosses it")] = False
    rate: Annotated[Rate | None, Field(ge=SLOWEST, le=FASTEST)] = None
    delay: Seconds | None = None
    jitter: Seconds | None = None
    queue_bytes: Bytes | None = None
    ecn_bytes: Bytes | None = None
    loss: Probability | None = None
    corruption: Probability | None = None
    duplication: Probability | None = None

    def applied_to(self, link: Link) -> Link:
        """Return the link with these properties.

        Raises:
            pydantic.ValidationError: If no link can have such properties.
        """
        given: dict[str, Any] = self.model_dump(exclude_none=True, exclude={"link", "down", "rate"})
        changes: dict[str, Any] = {"properties": LinkProperties(**dict(link.properties) | given)}
        if self.rate is not None:
            changes["rate_bits_per_second"] = self.rate
        return link.model_copy(update=changes)


def override(network: Topology, overrides: Sequence[Override]) -> Topology:
    """Return the network with each override applied to its link.

    Raises:
        TopologyError: If a link does not exist or has two overrides, if no link can have such properties, or if some
            hosts cannot reach one another without the links that are down.
    """
    if not overrides:
        return network
    places = {frozenset((link.a.node, link.b.node)): place for place, link in enumerate(network.links)}
    links = list(network.links)
    problems = []
    for number, one in enumerate(overrides):
        key = f"overrides[{number}]"
        place = places.get(frozenset(one.link))
        if place is None:
            problems.append(f"{key}.link: {_no_link(network, *one.link)}")
            continue
        try:
            links[place] = one.applied_to(links[place])
        except ValidationError as error:
            problems += [f"{key}: {each['msg'].removeprefix('Value error, ')}" for each in error.errors()]
    for ends, count in Counter(frozenset(one.link) for one in overrides).items():
        if count > 1:
            problems.append(
                f"overrides: the link {' '.join(sorted(ends))} has {count} of them; merge them into one"
            )
    if problems:
        raise TopologyError("\n".join(problems))
    down = {places[frozenset(one.link)] for one in overrides if one.down}
    left = tuple(link for place, link in enumerate(links) if place not in down)
    parts = {name: getattr(network, name) for name in Topology.model_fields}
    return topology_from(parts | {"links": left})


def _no_link(network: Topology, one: str, other: str) -> str:
    """Return why the network has no such link."""
    names = {switch.name for switch in network.switches} | {host.name for host in network.hosts}
    for name in (one, other):
        if name not in names:
            return f"{name}: no such switch or host; the network has {', '.join(sorted(names))}"
    near = ", ".join(sorted(link.far_end(one).node for link in network.links_of(one)))
    return f"no link joins {one} and {other}; the links of {one} lead to {near}"
