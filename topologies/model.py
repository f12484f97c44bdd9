"""A network as plain data: switches, hosts and links, checked when they are made."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import cached_property
from ipaddress import IPv4Address
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from fanin.native.text import nearest
from fanin.topologies.checks import problems
from fanin.topologies.errors import NetworkError
from fanin.topologies.link import PLAIN, LinkProperties

FIRST_GRPC_PORT = 9559  # P4Runtime's, assigned by IANA
LAST_PORT = 254  # 255 is the CPU port, 511 the drop port
# The loopback port of a switch, where a protocol needs one: where packets leave for it, and where they come back.
LOOPBACK_OUT, LOOPBACK_IN = LAST_PORT, LAST_PORT - 1
INTERFACE_NAME_LENGTH = 15  # Linux: IFNAMSIZ - 1
SLOWEST, FASTEST = 10_000, 2 * 10**13  # bits/s; a GPU has 1.8 TB/s of NVLink

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=10)]
Mac = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$")]
Port = Annotated[int, Field(ge=0, le=LAST_PORT)]
Role = Literal["server", "leaf", "spine", "core"]  # the tiers, from the hosts up


class TopologyError(ValueError):
    """An invalid topology; each line of the message names a key, what is wrong with it, and how to fix it."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Switch(_Frozen):
    """A switch of the network.

    Attributes:
        name: Its name, which is unique in the network.
        role: Its tier. A "server" is the switch inside a machine with several hosts (GPUs).
        device_id: Its P4Runtime device id.
        ip: The switch's own address. Hosts send their updates to the address of the switch above them, and results come
            from there.
        mac: Its Ethernet address.
        grpc_port: The TCP port of its P4Runtime server in a live network.
    """

    name: Name
    role: Role
    device_id: Annotated[int, Field(ge=1, lt=2**64)]
    ip: IPv4Address
    mac: Mac
    grpc_port: Annotated[int, Field(ge=1, le=65535)]


class Host(_Frozen):
    """A host below a switch of the lowest tier.

    Attributes:
        name: Its name, which is unique in the network.
        rank: The number of the host, from 0 over the whole network.
        ip: Its IPv4 address.
        prefix_length: The length of its subnet's prefix in bits.
        mac: Its Ethernet address.
        gateway: The address of `leaf`.
        leaf: The name of the switch that the host attaches to.
    """

    name: Name
    rank: Annotated[int, Field(ge=0)]
    ip: IPv4Address
    prefix_length: Annotated[int, Field(ge=1, le=32)]
    mac: Mac
    gateway: IPv4Address
    leaf: Name


class Endpoint(_Frozen):
    """A port of a node.

    Attributes:
        node: The name of the switch or host.
        port: The number of the port: 0 at a host, from 1 at a switch.
    """

    node: Name
    port: Port

    @property
    def interface(self) -> str:
        """Return the name of the Linux interface that is this port in a live network.

        Raises:
            NetworkError: If Linux has no room for it.
        """
        name = f"{self.node}-eth{self.port}"
        if len(name) > INTERFACE_NAME_LENGTH:
            raise NetworkError(f"{name} is too long for an interface of Linux; shorten the name {self.node}")
        return name


class Link(_Frozen):
    """A full-duplex link.

    Attributes:
        a: One end.
        b: The other end.
        rate_bits_per_second: The rate of each direction; left out or None, it is unlimited.
        properties: What the link does to packets in each direction.
    """

    a: Endpoint
    b: Endpoint
    rate_bits_per_second: Annotated[int, Field(ge=SLOWEST, le=FASTEST)] | None = None
    properties: LinkProperties = PLAIN

    def end(self, node: str) -> Endpoint:
        """Return the end at `node`."""
        return self.a if self.a.node == node else self.b

    def far_end(self, node: str) -> Endpoint:
        """Return the end that is not at `node`."""
        return self.b if self.a.node == node else self.a


class Topology(_Frozen):
    """A network of tiers: each host attaches to a switch of the lowest tier, and links join neighbouring tiers.

    The links must let each host reach every other one by going first up and then down.

    Attributes:
        offload: In a live network, let frames carry many UDP datagrams (segmentation offload).

    Raises:
        pydantic.ValidationError: If a part is malformed or the parts do not fit together; `topology_from` turns it into
            a TopologyError.
    """

    name: str
    switches: tuple[Switch, ...]
    hosts: tuple[Host, ...]
    links: tuple[Link, ...]
    offload: bool = True

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if found := problems(self):
            raise ValueError("\n".join(found))
        return self

    @cached_property
    def tiers(self) -> tuple[tuple[Switch, ...], ...]:
        """Return the switches of each tier that exists, from the hosts up, in the order of `switches`."""
        tiers = (tuple(switch for switch in self.switches if switch.role == role) for role in get_args(Role))
        return tuple(tier for tier in tiers if tier)

    @property
    def leaves(self) -> tuple[Switch, ...]:
        """Return the lowest tier, to which hosts attach; this is the tier of servers where servers have switches."""
        return self.tiers[0] if self.tiers else ()

    @cached_property
    def ranked_hosts(self) -> tuple[Host, ...]:
        """Return all hosts in the order of their ranks."""
        return tuple(sorted(self.hosts, key=lambda host: host.rank))

    @cached_property
    def _switch_by_name(self) -> dict[str, Switch]:
        return {switch.name: switch for switch in self.switches}

    @cached_property
    def _host_by_name(self) -> dict[str, Host]:
        return {host.name: host for host in self.hosts}

    @cached_property
    def _hosts_of(self) -> dict[str, tuple[Host, ...]]:
        below: dict[str, list[Host]] = defaultdict(list)
        for host in self.ranked_hosts:
            below[host.leaf].append(host)
        return {leaf: tuple(hosts) for leaf, hosts in below.items()}

    @cached_property
    def _links_of(self) -> dict[str, tuple[Link, ...]]:
        links: defaultdict[str, list[Link]] = defaultdict(list)
        for link in self.links:
            links[link.a.node].append(link)
            links[link.b.node].append(link)
        return {node: tuple(sorted(of, key=lambda link: link.end(node).port)) for node, of in links.items()}

    def switch(self, name: str) -> Switch:
        """Return the switch called `name`.

        Raises:
            TopologyError: If there is none.
        """
        return _look_up(self._switch_by_name, name, "switch")

    def host(self, name: str) -> Host:
        """Return the host called `name`.

        Raises:
            TopologyError: If there is none.
        """
        return _look_up(self._host_by_name, name, "host")

    def hosts_of(self, leaf: str) -> tuple[Host, ...]:
        """Return the hosts below `leaf`, in the order of their ranks."""
        return self._hosts_of.get(leaf, ())

    def links_of(self, node: str) -> tuple[Link, ...]:
        """Return the links of a host or a switch, in the order of its ports."""
        return self._links_of.get(node, ())

    def port_towards(self, node: str, neighbour: str) -> int:
        """Return the port of `node` that leads to `neighbour`.

        Raises:
            TopologyError: If they have no link.
        """
        return self.link_between(node, neighbour).end(node).port

    def rate_towards(self, node: str, neighbour: str) -> int | None:
        """Return the rate of the link from `node` to `neighbour` in bits/s; None means unlimited.

        Raises:
            TopologyError: If they have no link.
        """
        return self.link_between(node, neighbour).rate_bits_per_second

    @property
    def slowest_rate(self) -> int | None:
        """Return the lowest rate of all links in bits/s; None means that all are unlimited."""
        rates = (link.rate_bits_per_second for link in self.links)
        return min((rate for rate in rates if rate is not None), default=None)

    def link_between(self, node: str, neighbour: str) -> Link:
        """Return the link of two nodes.

        Raises:
            TopologyError: If they have none.
        """
        for link in self.links_of(node):
            if link.far_end(node).node == neighbour:
                return link
        raise TopologyError(f"{node} and {neighbour} have no link")

    def with_properties(self, **changes: Any) -> "Topology":
        """Return the same network with these properties on all links; other properties stay as they are.

        Raises:
            pydantic.ValidationError: If no link can have such properties.
        """
        changed = {
            given: LinkProperties(**dict(given) | changes)
            for given in {link.properties for link in self.links}
        }
        return self._with_links(
            tuple(link.model_copy(update={"properties": changed[link.properties]}) for link in self.links)
        )

    def without(self, links: Collection[Link]) -> "Topology":
        """Return the network without these links, even if some hosts can then not reach one another."""
        return self._with_links(tuple(link for link in self.links if link not in links))

    def _with_links(self, links: tuple[Link, ...]) -> "Topology":
        """Return the same nodes, which have been checked already, with these links."""
        return Topology.model_construct(
            name=self.name, switches=self.switches, hosts=self.hosts, links=links, offload=self.offload
        )

    def neighbours(self, node: str) -> dict[int, str]:
        """Return the node at the far end of each port of `node`."""
        return {link.end(node).port: link.far_end(node).node for link in self.links_of(node)}

    def interfaces(self, node: str) -> dict[int, str]:
        """Return the name of the Linux interface of each port of `node`."""
        return {end.port: end.interface for end in (link.end(node) for link in self.links_of(node))}


_Node = TypeVar("_Node", Switch, Host)


def _look_up(found: Mapping[str, _Node], name: str, kind: str) -> _Node:
    try:
        return found[name]
    except KeyError:
        near = nearest(name, found.keys(), f"this network has {', '.join(found)}")
        raise TopologyError(f"{name}: no such {kind}{near}") from None
