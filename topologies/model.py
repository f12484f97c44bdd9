"""A network as plain data: switches, hosts and links, checked when they are made."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from inspect import signature
from ipaddress import IPv4Address, IPv4Interface
from itertools import chain
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from topologies.link import PLAIN, LinkProperties

FIRST_GRPC_PORT = 9559  # P4Runtime's, assigned by IANA
LAST_PORT = 254  # 255 is the CPU port, 511 the drop port
SLOWEST, FASTEST = 10_000, 10**12  # bits/s
INTERFACE_NAME_LENGTH = 15  # Linux: IFNAMSIZ - 1

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=10)]
Mac = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$")]
Port = Annotated[int, Field(ge=0, le=LAST_PORT)]


class TopologyError(ValueError):
    """An invalid topology: the message names the key at fault and the fix, a line for each."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Switch(_Frozen):
    """A switch: a leaf has hosts below it, a spine joins the leaves.

    `ip` is its own address: a leaf's hosts send their updates there, and results come from there.
    """

    name: Name
    role: Literal["leaf", "spine"]
    device_id: Annotated[int, Field(ge=1, lt=2**64)]
    ip: IPv4Address
    mac: Mac
    grpc_port: Annotated[int, Field(ge=1, le=65535)]


class Host(_Frozen):
    """A host below `leaf`, whose address is its gateway. Ranks count from 0 over the whole network."""

    name: Name
    rank: Annotated[int, Field(ge=0)]
    ip: IPv4Address
    prefix_length: Annotated[int, Field(ge=1, le=32)]
    mac: Mac
    gateway: IPv4Address
    leaf: Name


class Endpoint(_Frozen):
    """A port of a node: 0 at a host, from 1 at a switch."""

    node: Name
    port: Port

    @property
    def interface(self) -> str:
        """The name of the Linux interface that is this port."""
        return f"{self.node}-eth{self.port}"


class Link(_Frozen):
    """A full-duplex link; `rate_bits_per_second` (None: unlimited) and `properties` hold for each direction."""

    a: Endpoint
    b: Endpoint
    rate_bits_per_second: Annotated[int, Field(ge=SLOWEST, le=FASTEST)] | None = None
    properties: LinkProperties = PLAIN

    def end(self, node: str) -> Endpoint:
        """The end at `node`."""
        return self.a if self.a.node == node else self.b

    def far_end(self, node: str) -> Endpoint:
        """The end that is not at `node`."""
        return self.b if self.a.node == node else self.a


class Topology(_Frozen):
    """A leaf-spine network: each host hangs on one leaf, each leaf on every spine.

    offload: whether UDP datagrams may cross it many in a frame (segmentation offload) where it is built for real.

    Raises:
        pydantic.ValidationError: when a part is malformed or the parts do not fit together; `topology_from`
            turns it into a TopologyError.
    """

    name: str
    switches: tuple[Switch, ...]
    hosts: tuple[Host, ...]
    links: tuple[Link, ...]
    offload: bool = True

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems = list(chain(_duplicates(self), _misplaced_hosts(self), _bad_links(self)))
        if not problems:  # only then can the links be followed
            problems = list(_missing_links(self))
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @cached_property
    def leaves(self) -> tuple[Switch, ...]:
        """The leaves, in the order of `switches`."""
        return tuple(switch for switch in self.switches if switch.role == "leaf")

    @cached_property
    def spines(self) -> tuple[Switch, ...]:
        """The spines, in the order of `switches`."""
        return tuple(switch for switch in self.switches if switch.role == "spine")

    @cached_property
    def ranked_hosts(self) -> tuple[Host, ...]:
        """All hosts in the order of their ranks."""
        return tuple(sorted(self.hosts, key=lambda host: host.rank))

    @cached_property
    def _switch_by_name(self) -> dict[str, Switch]:
        return {switch.name: switch for switch in self.switches}

    @cached_property
    def _host_by_name(self) -> dict[str, Host]:
        return {host.name: host for host in self.hosts}

    @cached_property
    def _links_of(self) -> dict[str, tuple[Link, ...]]:
        links: defaultdict[str, list[Link]] = defaultdict(list)
        for link in self.links:
            links[link.a.node].append(link)
            links[link.b.node].append(link)
        return {node: tuple(sorted(of, key=lambda link: link.end(node).port)) for node, of in links.items()}

    def switch(self, name: str) -> Switch:
        """The switch called `name`.

        Raises:
            TopologyError: there is none.
        """
        return _look_up(self._switch_by_name, name, "switch")

    def host(self, name: str) -> Host:
        """The host called `name`.

        Raises:
            TopologyError: there is none.
        """
        return _look_up(self._host_by_name, name, "host")

    def hosts_of(self, leaf: str) -> tuple[Host, ...]:
        """The hosts below `leaf`, in the order of their ranks."""
        return tuple(host for host in self.ranked_hosts if host.leaf == leaf)

    def links_of(self, node: str) -> tuple[Link, ...]:
        """The links of a host or a switch, in the order of its ports."""
        return self._links_of.get(node, ())

    def port_towards(self, node: str, neighbour: str) -> int:
        """The port of `node` that leads to `neighbour`.

        Raises:
            TopologyError: they have no link.
        """
        for link in self.links_of(node):
            if link.far_end(node).node == neighbour:
                return link.end(node).port
        raise TopologyError(f"{node} and {neighbour} have no link")

    def with_properties(self, **changes: Any) -> "Topology":
        """The same network, all of whose links have these properties, and the others as before.

        Raises:
            pydantic.ValidationError: properties that no link can have.
        """
        links = tuple(
            link.model_copy(update={"properties": LinkProperties(**dict(link.properties) | changes)})
            for link in self.links
        )
        return Topology(
            name=self.name, switches=self.switches, hosts=self.hosts, links=links, offload=self.offload
        )

    def neighbours(self, node: str) -> dict[int, str]:
        """What is at the far end of each port of `node`."""
        return {link.end(node).port: link.far_end(node).node for link in self.links_of(node)}

    def interfaces(self, node: str) -> dict[int, str]:
        """The interface of each port of `node`."""
        return {end.port: end.interface for end in (link.end(node) for link in self.links_of(node))}


def leaf_spine(
    spines: int = 2,
    leaves: int = 2,
    hosts_per_leaf: int = 4,
    rate: int | None = None,
    uplink_rate: int | None = None,
    properties: LinkProperties | Mapping[str, Any] = PLAIN,
    uplink_properties: LinkProperties | Mapping[str, Any] | None = None,
    offload: bool = True,
) -> Topology:
    """A leaf-spine network with everything derived; `spines=0, leaves=1` is one switch.

    Leaf l has 10.l.0.254, its i-th host 10.l.0.i on its port i. Spine s has 10.0.0.s; at each leaf its port
    follows the hosts', and leaf l is on its port l. A MAC address is 02:00 and then the IPv4 address.

    Args:
        rate: of the hosts' links, bits/s; None leaves them unlimited.
        uplink_rate: of the links between leaves and spines; None: as `rate`.
        properties: of the hosts' links: delay, loss and the like.
        uplink_properties: of the links between leaves and spines; None: as `properties`.
        offload: see Topology.

    Raises:
        TopologyError: a number that is out of range.
    """
    _check_range("leaves", leaves, 1, LAST_PORT)
    _check_range("spines", spines, 0 if leaves == 1 else 1, LAST_PORT - 1)
    _check_range("hosts_per_leaf", hosts_per_leaf, 1, min(253, LAST_PORT - spines))
    for key, value in (("rate", rate), ("uplink_rate", uplink_rate)):
        if value is not None:
            _check_range(key, value, SLOWEST, FASTEST)

    def switch(role: Literal["leaf", "spine"], number: int, device_id: int, ip: IPv4Address) -> Switch:
        return Switch(
            name=f"{role}{number}",
            role=role,
            device_id=device_id,
            ip=ip,
            mac=_mac(ip),
            grpc_port=FIRST_GRPC_PORT + device_id - 1,
        )

    near = _properties("properties", properties)
    far = near if uplink_properties is None else _properties("uplink_properties", uplink_properties)

    leaf_range, spine_range = range(1, leaves + 1), range(1, spines + 1)
    leaf_switches = [switch("leaf", leaf, leaf, IPv4Address(f"10.{leaf}.0.254")) for leaf in leaf_range]
    spine_switches = [switch("spine", s, leaves + s, IPv4Address(f"10.0.0.{s}")) for s in spine_range]
    hosts: list[Host] = []
    links: list[Link] = []
    for number, leaf in enumerate(leaf_switches, start=1):
        for position in range(1, hosts_per_leaf + 1):
            rank = len(hosts)
            ip = IPv4Address(f"10.{number}.0.{position}")
            host = Host(
                name=f"h{rank + 1}",
                rank=rank,
                ip=ip,
                prefix_length=24,
                mac=_mac(ip),
                gateway=leaf.ip,
                leaf=leaf.name,
            )
            hosts.append(host)
            links.append(_link(host.name, 0, leaf.name, position, rate, near))
        for s, spine in enumerate(spine_switches, start=1):
            links.append(_link(leaf.name, hosts_per_leaf + s, spine.name, number, uplink_rate or rate, far))
    return topology_from(
        {
            "name": f"leaf-spine-{spines}x{leaves}x{hosts_per_leaf}",
            "switches": leaf_switches + spine_switches,
            "hosts": hosts,
            "links": links,
            "offload": offload,
        }
    )


def topology_from(data: Mapping[str, Any]) -> Topology:
    """A network from plain data: every part spelled out, or `leaf_spine` with that function's arguments.

    Raises:
        TopologyError: naming each key at fault.
    """
    if "leaf_spine" in data:
        arguments = data["leaf_spine"]
        known = tuple(signature(leaf_spine).parameters)
        for key in arguments:
            if key not in known:
                raise TopologyError(f"leaf_spine.{key}: not known; there are {', '.join(known)}")
        return leaf_spine(**arguments)
    try:
        return Topology.model_validate(data)
    except ValidationError as error:
        raise TopologyError("\n".join(map(_explain, error.errors()))) from None


_Node = TypeVar("_Node", Switch, Host)


def _mac(ip: IPv4Address) -> str:
    return "02:00:" + ip.packed.hex(":")  # locally administered, unicast


def _link(
    node_a: str, port_a: int, node_b: str, port_b: int, rate: int | None, properties: LinkProperties
) -> Link:
    ends = Endpoint(node=node_a, port=port_a), Endpoint(node=node_b, port=port_b)
    return Link(a=ends[0], b=ends[1], rate_bits_per_second=rate, properties=properties)


def _properties(key: str, value: LinkProperties | Mapping[str, Any]) -> LinkProperties:
    try:
        return LinkProperties.model_validate(value)
    except ValidationError as error:
        raise TopologyError("\n".join(_explain(one, key) for one in error.errors())) from None


def _check_range(key: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or not low <= value <= high:
        raise TopologyError(f"{key}: is {value!r}, must be a whole number from {low} to {high}")


def _look_up(found: Mapping[str, _Node], name: str, kind: str) -> _Node:
    try:
        return found[name]
    except KeyError:
        raise TopologyError(f"no {kind} is called {name!r}; there are {', '.join(found)}") from None


def _explain(error: Any, *above: str) -> str:
    parts = [*above, *error["loc"]]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")
    table = parts[-2] if len(parts) > 1 else None
    match error["type"]:
        case "missing":
            return f"{place}: missing; add it"
        case "extra_forbidden" if table in ("properties", "uplink_properties"):
            return f"{place}: unknown link property; there are {', '.join(LinkProperties.model_fields)}"
        case "value_error" if isinstance(error["input"], Mapping):  # of a table: it begins with a key
            return f"{place}.{error['ctx']['error']}".lstrip(".")
        case "value_error":
            return f"{place}: is {error['input']!r}; {error['ctx']['error']}"
        case _:
            return f"{place}: {error['msg']} (is {error['input']!r})"


def _duplicates(topology: Topology) -> Iterable[str]:
    nodes: list[tuple[str, Switch | Host]] = [
        *((f"switches[{i}]", switch) for i, switch in enumerate(topology.switches)),
        *((f"hosts[{i}]", host) for i, host in enumerate(topology.hosts)),
    ]
    for key in ("name", "ip", "mac", "device_id", "grpc_port", "rank"):
        first: dict[object, str] = {}
        for place, node in nodes:
            value = getattr(node, key, None)
            if value is not None and first.setdefault(value, place) != place:
                yield f"{place}.{key}: {value} is taken by {first[value]} already; give each its own"
    for rank, host in enumerate(sorted(topology.hosts, key=lambda host: host.rank)):
        if host.rank > rank:
            yield f"hosts: no host has rank {rank}; ranks count from 0 without a gap"
            return


def _misplaced_hosts(topology: Topology) -> Iterable[str]:
    leaves = {leaf.name: leaf for leaf in topology.leaves}
    for i, host in enumerate(topology.hosts):
        if host.leaf not in leaves:
            yield f"hosts[{i}].leaf: no leaf is called {host.leaf!r}; there are {', '.join(leaves) or 'none'}"
        elif host.gateway != leaves[host.leaf].ip:
            yield f"hosts[{i}].gateway: is {host.gateway}, must be {host.leaf}'s {leaves[host.leaf].ip}"
        elif host.gateway not in (network := IPv4Interface((host.ip, host.prefix_length)).network):
            yield f"hosts[{i}].prefix_length: {network} lacks the gateway {host.gateway}; shorten it"


def _bad_links(topology: Topology) -> Iterable[str]:
    roles: dict[str, str] = {switch.name: switch.role for switch in topology.switches}
    roles |= {host.name: "host" for host in topology.hosts}
    taken: dict[Endpoint, str] = {}
    for i, link in enumerate(topology.links):
        for key, end in (("a", link.a), ("b", link.b)):
            place = f"links[{i}].{key}"
            if end.node not in roles:
                yield f"{place}.node: no switch or host is called {end.node!r}"
                continue
            if (roles[end.node] == "host") != (end.port == 0):
                yield f"{place}.port: is {end.port}; a host has port 0 only, a switch's ports count from 1"
            if taken.setdefault(end, place) != place:
                yield f"{place}: port {end.port} of {end.node} is taken by {taken[end]} already"
            if len(end.interface) > INTERFACE_NAME_LENGTH:
                yield f"{place}.node: {end.interface} is too long for Linux; shorten the name"
        joined = {roles.get(link.a.node), roles.get(link.b.node)}
        if None not in joined and joined not in ({"host", "leaf"}, {"leaf", "spine"}):
            yield f"links[{i}]: joins {link.a.node} and {link.b.node}; links are host–leaf or leaf–spine"


def _missing_links(topology: Topology) -> Iterable[str]:
    neighbours: defaultdict[str, list[str]] = defaultdict(list)
    for link in topology.links:
        neighbours[link.a.node].append(link.b.node)
        neighbours[link.b.node].append(link.a.node)
    for i, host in enumerate(topology.hosts):
        if neighbours[host.name] != [host.leaf]:
            yield f"hosts[{i}]: {host.name} needs one link, to its leaf {host.leaf}"
    if len(topology.leaves) > 1 and not topology.spines:
        yield "switches: several leaves need a spine between them"
    for leaf in topology.leaves:
        for spine in topology.spines:
            if neighbours[leaf.name].count(spine.name) != 1:
                yield f"links: {leaf.name} and {spine.name} need one link; each leaf has one to every spine"
