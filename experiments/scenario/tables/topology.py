"""The table `topology` of a scenario: one of the shapes, or every switch, host and link."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from fanin.experiments.scenario.tables.table import Table
from fanin.topologies.link import PLAIN, LinkProperties
from fanin.topologies.model import Host, Link, Switch, Topology, TopologyError
from fanin.topologies.override import Override, override
from fanin.topologies.shapes import BUILDERS, topology_from
from fanin.topologies.units import Rate, Seconds


def _properties(of: str) -> Any:
    """Return a key for the properties of some links."""
    return Field(None, description=f"properties of the links {of}; default: like the links below")


class BuiltNetwork(Table):
    """The arguments of `builder`, one of `fanin.topologies.shapes.BUILDERS`."""

    builder: ClassVar[str]

    def build(self, offload: bool) -> Topology:
        """Build the network.

        Raises:
            TopologyError: If a number is out of range, or two exclude each other.
        """
        return _built(self.builder, offload, **dict(self))


@lru_cache  # points often share their network
def _built(builder: str, offload: bool, **arguments: Any) -> Topology:
    return BUILDERS[builder](**arguments, offload=offload)


class LeafSpine(BuiltNetwork):
    """A network of leaves and spines; each leaf has a link to each spine.

    Attributes:
        spines: The number of spines.
        leaves: The number of leaves.
        hosts_per_leaf: The number of hosts below each leaf.
        rate: The rate of the hosts' links. Left out: unlimited.
        uplink_rate: The rate of the links between leaves and spines. Left out: that of the hosts' links.
        oversubscription: The rate at which the hosts of a rack can send together, divided by that of its uplinks;
            replaces uplink_rate.
        uplink_delay: The delay of the links between leaves and spines; replaces that of their properties.
    """

    builder = "leaf_spine"

    spines: int = 2
    leaves: int = 2
    hosts_per_leaf: int = 4
    rate: Rate | None = None
    uplink_rate: Rate | None = None
    oversubscription: Annotated[float, Field(gt=0)] | None = None
    uplink_delay: Seconds | None = None
    properties: Annotated[LinkProperties, Field(description="properties of the hosts' links")] = PLAIN
    uplink_properties: LinkProperties | None = _properties("between leaves and spines")

    def build(self, offload: bool) -> Topology:
        """Build the network; see BuiltNetwork."""
        uplink_rate = self.uplink_rate
        if self.oversubscription is not None:
            if self.rate is None or not self.spines or uplink_rate is not None:
                raise TopologyError("oversubscription: needs rate and a spine, and excludes uplink_rate")
            uplink_rate = round(self.rate * self.hosts_per_leaf / self.spines / self.oversubscription)
        uplinks = self.uplink_properties
        if self.uplink_delay is not None:
            uplinks = LinkProperties(**dict(uplinks or self.properties) | {"delay": self.uplink_delay})
        arguments = dict(self) | {"uplink_rate": uplink_rate, "uplink_properties": uplinks}
        del arguments["oversubscription"], arguments["uplink_delay"]
        return _built(self.builder, offload, **arguments)


class FatTree(BuiltNetwork):
    """A fat tree of three tiers: pods of leaves and spines, joined by cores.

    Attributes:
        k: The number of ports of each switch, from which the other numbers follow where they are left out.
        pods: The number of pods. Left out: k.
        hosts_per_leaf: The number of hosts below each leaf. Left out: k / 2.
        rate: The rate of the hosts' links. Left out: unlimited.
    """

    builder = "fat_tree"

    k: int = 4
    pods: int | None = None
    leaves: Annotated[int | None, Field(description="leaves of a pod")] = None
    spines: Annotated[int | None, Field(description="spines of a pod")] = None
    cores: Annotated[int | None, Field(description="cores of the network, a multiple of spines")] = None
    hosts_per_leaf: int | None = None
    rate: Rate | None = None
    uplink_rate: Annotated[Rate | None, Field(description="links between leaves and spines")] = None
    core_rate: Annotated[Rate | None, Field(description="links between spines and cores")] = None
    properties: Annotated[LinkProperties, Field(description="properties of the hosts' links")] = PLAIN
    uplink_properties: LinkProperties | None = _properties("between leaves and spines")
    core_properties: LinkProperties | None = _properties("between spines and cores")


class Servers(BuiltNetwork):
    """A network of servers with several hosts (GPUs) each, which a switch inside the server joins.

    Attributes:
        pods: The number of pods.
        servers_per_leaf: The number of servers below each leaf.
        hosts_per_server: The number of hosts in each server.
    """

    builder = "servers"

    pods: int = 1
    leaves: Annotated[int, Field(description="leaves of a pod")] = 2
    spines: Annotated[int, Field(description="spines of a pod")] = 2
    cores: Annotated[int, Field(description="cores of the network, a multiple of spines")] = 0
    servers_per_leaf: int = 2
    hosts_per_server: int = 4
    nics_per_server: Annotated[
        int, Field(description="network cards, each to a different leaf; leaves is a multiple of it")
    ] = 1
    planes: Annotated[
        int, Field(description="separate networks from the leaves up; nics_per_server is a multiple of it")
    ] = 1
    rate: Annotated[Rate | None, Field(description="links inside servers")] = None
    nic_rate: Annotated[Rate | None, Field(description="links between servers and leaves")] = None
    uplink_rate: Annotated[Rate | None, Field(description="links between leaves and spines")] = None
    core_rate: Annotated[Rate | None, Field(description="links between spines and cores")] = None
    properties: Annotated[LinkProperties, Field(description="properties of the hosts' links")] = PLAIN
    nic_properties: LinkProperties | None = _properties("between servers and leaves")
    uplink_properties: LinkProperties | None = _properties("between leaves and spines")
    core_properties: LinkProperties | None = _properties("between spines and cores")


class TopologySettings(Table):
    """The network: one of the tables leaf_spine, fat_tree and servers, or every switch, host and link spelled out.

    Attributes:
        leaf_spine: A network of two tiers.
        fat_tree: A network of three tiers.
        servers: A network of servers with several hosts each.
        name: The name of a network that is spelled out.
        switches: Every switch of a network that is spelled out.
        hosts: Every host of a network that is spelled out.
        links: Every link of a network that is spelled out.
    """

    leaf_spine: LeafSpine | None = None
    fat_tree: FatTree | None = None
    servers: Servers | None = None
    name: str = "as spelled out"
    switches: tuple[Switch, ...] = ()
    hosts: tuple[Host, ...] = ()
    links: tuple[Link, ...] = ()
    overrides: Annotated[
        tuple[Override, ...], Field(description="single links that differ, by the names of their ends")
    ] = ()
    reconfiguration: Annotated[
        Seconds | None,
        Field(description="virtual: the only switch is an optical one, which sets up a circuit in this time"),
    ] = None
    offload: Annotated[
        bool, Field(description="live: let frames carry many UDP datagrams, if the kernel can")
    ] = True

    @cached_property
    def network(self) -> Topology:
        """Return the network that is described."""
        return override(self.unchanged, self.overrides)

    @property
    def unchanged(self) -> Topology:
        """Return the network without overrides."""
        for table in self._tables.values():
            return table.build(self.offload)
        return topology_from(self.model_dump(exclude={*BUILDERS, "overrides", "reconfiguration"}))

    @property
    def table(self) -> str | None:
        """Return the name of the table that is given; None if the network is spelled out."""
        return next(iter(self._tables), None)

    @property
    def _tables(self) -> dict[str, BuiltNetwork]:
        """Return the tables that are given."""
        return {name: table for name in BUILDERS if (table := getattr(self, name)) is not None}

    @model_validator(mode="after")
    def _builds(self) -> Self:
        if len(self._tables) + bool(self.switches) != 1:
            raise ValueError(f"give one of {', '.join(BUILDERS)}, or switches, hosts and links")
        above = "".join(f"{name}." for name in self._tables)
        try:
            assert self.unchanged
        except TopologyError as error:
            raise ValueError("\n".join(above + line for line in str(error).splitlines())) from None
        try:
            assert self.network
        except TopologyError as error:
            raise ValueError(str(error)) from None
        return self
