"""Functions that build networks of the usual shapes from a few numbers, or any network from plain data."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from ipaddress import IPv4Address
from typing import Any, NamedTuple

from pydantic import ValidationError

from fanin.topologies.link import PLAIN, LinkProperties
from fanin.topologies.model import (
    FASTEST,
    FIRST_GRPC_PORT,
    LAST_PORT,
    SLOWEST,
    Endpoint,
    Host,
    Link,
    Role,
    Switch,
    Topology,
    TopologyError,
)


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
    """Build a leaf-spine network; `spines=0, leaves=1` is a single switch.

    Leaf l has the address 10.l.0.254, and its i-th host 10.l.0.i on port i of the leaf. Spine s has 10.0.0.s; a leaf's
    ports to spines follow those to hosts, and leaf l is on port l of each spine. A MAC address is 02:00 followed by the
    IPv4 address.

    Args:
        spines: Number of spines.
        leaves: Number of leaves.
        hosts_per_leaf: Number of hosts below each leaf.
        rate: Rate of the hosts' links in bits/s. None: unlimited.
        uplink_rate: Rate of the links between leaves and spines in bits/s. None: like `rate`.
        properties: Delay, loss and other properties of the hosts' links.
        uplink_properties: Properties of the links between leaves and spines. None: like `properties`.
        offload: See Topology.

    Raises:
        TopologyError: If a number is out of range.
    """
    _check_range("leaves", leaves, 1, LAST_PORT)
    _check_range("spines", spines, 0 if leaves == 1 else 1, LAST_PORT - 1)
    _check_range("hosts_per_leaf", hosts_per_leaf, 1, min(253, LAST_PORT - spines))
    access, uplink = _cables(("", rate, properties), ("uplink_", uplink_rate, uplink_properties))
    parts = _Parts()
    racks = [parts.add_switch("leaf", f"10.{leaf}.0.254") for leaf in range(1, leaves + 1)]
    above = [parts.add_switch("spine", f"10.0.0.{spine}") for spine in range(1, spines + 1)]
    for leaf in racks:
        parts.add_hosts(leaf, hosts_per_leaf, access)
        parts.join(leaf, above, uplink)
    return parts.topology(f"leaf-spine-{spines}x{leaves}x{hosts_per_leaf}", offload)


def fat_tree(
    k: int = 4,
    pods: int | None = None,
    leaves: int | None = None,
    spines: int | None = None,
    cores: int | None = None,
    hosts_per_leaf: int | None = None,
    rate: int | None = None,
    uplink_rate: int | None = None,
    core_rate: int | None = None,
    properties: LinkProperties | Mapping[str, Any] = PLAIN,
    uplink_properties: LinkProperties | Mapping[str, Any] | None = None,
    core_properties: LinkProperties | Mapping[str, Any] | None = None,
    offload: bool = True,
) -> Topology:
    """Build a fat tree of three tiers (Al-Fares, SIGCOMM 2008).

    Switches with k ports make k pods of k/2 leaves and k/2 spines each, k/2 hosts below each leaf, and (k/2)^2 cores;
    every other number that is given replaces the one derived from k. Within a pod each leaf has a link to every spine.
    The first spine of each pod has links to the first of the cores, the second spine to the next, as many each, and so
    on.

    Addresses: see `servers`. A switch's first ports lead to hosts or to the tier below, the following ones up, in the
    order of the names.

    Args:
        k: Ports of a switch, an even number.
        pods: Number of pods.
        leaves: Number of leaves in a pod.
        spines: Number of spines in a pod.
        cores: Number of cores in the network, a multiple of `spines`.
        hosts_per_leaf: Number of hosts below each leaf.
        rate: Rate of the hosts' links in bits/s. None: unlimited.
        uplink_rate: Rate of the links between leaves and spines in bits/s. None: like the links below.
        core_rate: Rate of the links between spines and cores in bits/s. None: like the links below.
        properties: Properties of the hosts' links.
        uplink_properties: Properties of the links between leaves and spines. None: like the links below.
        core_properties: Properties of the links between spines and cores. None: like the links below.
        offload: See Topology.

    Raises:
        TopologyError: If a number is out of range.
    """
    _check_range("k", k, 2, 30)
    if k % 2:
        raise TopologyError(f"k: is {k}, must be even: half of a switch's ports lead up")
    half = k // 2
    spines = half if spines is None else spines
    return _pods(
        "fat-tree",
        pods=k if pods is None else pods,
        leaves=half if leaves is None else leaves,
        spines=spines,
        cores=spines * half if cores is None else cores,
        servers_per_leaf=0,
        hosts=half if hosts_per_leaf is None else hosts_per_leaf,
        cables=_cables(
            ("", rate, properties),
            ("uplink_", uplink_rate, uplink_properties),
            ("core_", core_rate, core_properties),
        ),
        offload=offload,
    )


def servers(
    pods: int = 1,
    leaves: int = 2,
    spines: int = 2,
    cores: int = 0,
    servers_per_leaf: int = 2,
    hosts_per_server: int = 4,
    nics_per_server: int = 1,
    planes: int = 1,
    rate: int | None = None,
    nic_rate: int | None = None,
    uplink_rate: int | None = None,
    core_rate: int | None = None,
    properties: LinkProperties | Mapping[str, Any] = PLAIN,
    nic_properties: LinkProperties | Mapping[str, Any] | None = None,
    uplink_properties: LinkProperties | Mapping[str, Any] | None = None,
    core_properties: LinkProperties | Mapping[str, Any] | None = None,
    offload: bool = True,
) -> Topology:
    """Build a network of servers with a switch inside, whose hosts are GPUs, below leaves, spines and cores.

    Pods and cores are joined as in `fat_tree`. The r-th switch with hosts of pod p has the address 10.p.r.254, and its
    i-th host 10.p.r.i on port i. The pod's other switches have addresses from 10.p.0.1 on, first leaves, then spines;
    core c has 10.0.0.c. A MAC address is 02:00 followed by the IPv4 address.

    Args:
        pods: Number of pods.
        leaves: Number of leaves in a pod.
        spines: Number of spines in a pod.
        cores: Number of cores in the network, a multiple of `spines`; a single pod may have 0.
        servers_per_leaf: Number of servers below each leaf.
        hosts_per_server: Number of hosts (GPUs) in each server.
        nics_per_server: Number of network cards of a server, each of which leads to a different leaf (rails). As many
            leaves share the same servers; `leaves` must be a multiple of this number.
        planes: Number of networks without links between them, from the leaves up. A server's cards and a pod's spines
            are dealt out to the planes in turn.
        rate: Rate of the hosts' links inside servers in bits/s. None: unlimited.
        nic_rate: Rate of the links from servers to leaves in bits/s. None: like the links below.
        uplink_rate: Rate of the links from leaves to spines in bits/s. None: like the links below.
        core_rate: Rate of the links from spines to cores in bits/s. None: like the links below.
        properties: Properties of the hosts' links.
        nic_properties: Properties of the links from servers to leaves. None: like the links below.
        uplink_properties: Properties of the links from leaves to spines. None: like the links below.
        core_properties: Properties of the links from spines to cores. None: like the links below.
        offload: See Topology.

    Raises:
        TopologyError: If a number is out of range.
    """
    _check_range("servers_per_leaf", servers_per_leaf, 1, LAST_PORT)
    _check_range("nics_per_server", nics_per_server, 1, LAST_PORT)
    if isinstance(leaves, int) and leaves % nics_per_server:
        raise TopologyError(
            f"leaves: is {leaves}, must be a multiple of nics_per_server, {nics_per_server}, a leaf for each card"
        )
    _check_range("planes", planes, 1, LAST_PORT)
    for key, value in (("nics_per_server", nics_per_server), ("spines", spines)):
        if isinstance(value, int) and value % planes:
            raise TopologyError(f"{key}: is {value}, must be a multiple of planes, {planes}")
    return _pods(
        "servers",
        pods=pods,
        leaves=leaves,
        spines=spines,
        cores=cores,
        servers_per_leaf=servers_per_leaf,
        nics=nics_per_server,
        planes=planes,
        hosts=hosts_per_server,
        cables=_cables(
            ("", rate, properties),
            ("nic_", nic_rate, nic_properties),
            ("uplink_", uplink_rate, uplink_properties),
            ("core_", core_rate, core_properties),
        ),
        offload=offload,
    )


MOST_SWITCHES = 2**16 - FIRST_GRPC_PORT

BUILDERS: Mapping[str, Callable[..., Topology]] = {  # the tables of a topology file
    "leaf_spine": leaf_spine,
    "fat_tree": fat_tree,
    "servers": servers,
}


def topology_from(data: Mapping[str, Any]) -> Topology:
    """Build a network from plain data: every part spelled out, or one of BUILDERS with the arguments of that function.

    Raises:
        TopologyError: If something is wrong; the message names each key at fault.
    """
    for name, build in BUILDERS.items():
        if name not in data:
            continue
        for other in ("switches", "hosts", "links", *BUILDERS):
            if other in data and other != name:
                raise TopologyError(
                    f"{other}: cannot be combined with {name}, which describes the whole network; leave out one"
                )
        known = tuple(signature(build).parameters)
        for key in data[name]:
            if key not in known:
                raise TopologyError(f"{name}.{key}: unknown key; there are {', '.join(known)}")
        return build(**data[name])
    try:
        return Topology.model_validate(data)
    except ValidationError as error:
        raise TopologyError("\n".join(map(_explain, error.errors()))) from None


class _Cable(NamedTuple):
    """The rate and properties of the links between two tiers."""

    rate: int | None
    properties: LinkProperties


def _cables(*tiers: tuple[str, int | None, LinkProperties | Mapping[str, Any] | None]) -> list[_Cable]:
    """Return the cable of each tier, from the hosts up.

    Each argument has the prefix of the tier's keys, its rate and its properties; None means like the tier below.
    """
    cables, below = [], _Cable(None, PLAIN)
    for key, rate, properties in tiers:
        if rate is not None:
            _check_range(f"{key}rate", rate, SLOWEST, FASTEST)
            below = below._replace(rate=rate)
        if properties is not None:
            below = below._replace(properties=_properties(f"{key}properties", properties))
        cables.append(below)
    return cables


class _Parts:
    """A network under construction: switches are numbered by role, hosts by rank, ports in the order of their links."""

    def __init__(self) -> None:
        self._switches: list[Switch] = []
        self._hosts: list[Host] = []
        self._links: list[Link] = []
        self._numbers: Counter[str] = Counter()  # the last switch of each role, the last port of each switch

    def add_switch(self, role: Role, ip: str) -> Switch:
        device_id = len(self._switches) + 1
        switch = Switch(
            name=f"{role}{self._next(role)}",
            role=role,
            device_id=device_id,
            ip=IPv4Address(ip),
            mac=_mac(IPv4Address(ip)),
            grpc_port=FIRST_GRPC_PORT + device_id - 1,
        )
        self._switches.append(switch)
        return switch

    def add_hosts(self, leaf: Switch, count: int, cable: _Cable) -> None:
        """Add hosts below `leaf`, with the addresses of its /24 network from 1 on."""
        for position in range(1, count + 1):
            rank = len(self._hosts)
            ip = IPv4Address(leaf.ip.packed[:3] + bytes([position]))
            host = Host(
                name=f"h{rank + 1}",
                rank=rank,
                ip=ip,
                prefix_length=24,
                mac=_mac(ip),
                gateway=leaf.ip,
                leaf=leaf.name,
            )
            self._hosts.append(host)
            self._link(Endpoint(node=host.name, port=0), leaf, cable)

    def join(self, lower: Switch, uppers: Iterable[Switch], cable: _Cable) -> None:
        """Add a link to each of the upper switches."""
        for upper in uppers:
            self._link(Endpoint(node=lower.name, port=self._next(lower.name)), upper, cable)

    def topology(self, name: str, offload: bool) -> Topology:
        return topology_from(
            {
                "name": name,
                "switches": self._switches,
                "hosts": self._hosts,
                "links": self._links,
                "offload": offload,
            }
        )

    def _link(self, lower: Endpoint, upper: Switch, cable: _Cable) -> None:
        end = Endpoint(node=upper.name, port=self._next(upper.name))
        self._links.append(Link(a=lower, b=end, rate_bits_per_second=cable.rate, properties=cable.properties))

    def _next(self, of: str) -> int:
        self._numbers[of] += 1
        return self._numbers[of]


def _pods(
    name: str,
    *,
    pods: int,
    leaves: int,
    spines: int,
    cores: int,
    servers_per_leaf: int,
    hosts: int,
    nics: int = 1,
    planes: int = 1,
    cables: list[_Cable],
    offload: bool,
) -> Topology:
    """Build the network of pods for fat_tree() and servers(), which explain the arguments.

    With servers_per_leaf=0, hosts attach to leaves.
    """
    hosts_key = "hosts_per_server" if servers_per_leaf else "hosts_per_leaf"
    _check_range("pods", pods, 1, LAST_PORT)
    # Racks of a pod have 10.p.1.0 to 10.p.254.0, its other switches 10.p.0.1 to 10.p.0.254.
    _check_range("leaves", leaves, 1, LAST_PORT // max(1, servers_per_leaf) * nics)
    fewest, most = int(pods * leaves > 1), LAST_PORT - (leaves if servers_per_leaf else 1)
    _check_range("spines", spines, fewest, most)
    _check_range("cores", cores, 0 if pods == 1 else spines, LAST_PORT)
    if cores and (not spines or cores % spines):
        raise TopologyError(
            f"cores: is {cores}, must be a multiple of spines, {spines}, which share them evenly"
        )
    of_each = cores // spines if cores else 0  # cores above a spine
    if leaves + of_each > LAST_PORT:
        raise TopologyError(f"leaves: a spine would have {leaves + of_each} links; it has {LAST_PORT} ports")
    _check_range(hosts_key, hosts, 1, min(253, LAST_PORT - (nics if servers_per_leaf else spines)))
    if servers_per_leaf + spines > LAST_PORT:
        raise TopologyError(
            f"servers_per_leaf: a leaf would have {servers_per_leaf + spines} links; it has {LAST_PORT} ports"
        )
    switches = pods * (leaves // nics * servers_per_leaf + leaves + spines) + cores
    if switches > MOST_SWITCHES:
        raise TopologyError(
            f"switches: there would be {switches}; use at most {MOST_SWITCHES}, as each has a TCP port of its own"
        )

    parts, every_pod = _Parts(), range(1, pods + 1)
    inner = [
        [
            parts.add_switch("server", f"10.{pod}.{rack + 1}.254")
            for rack in range(leaves // nics * servers_per_leaf)
        ]
        for pod in every_pod
    ]
    leaf_ip = "10.{}.0.{}" if servers_per_leaf else "10.{}.{}.254"
    racks = [
        [parts.add_switch("leaf", leaf_ip.format(pod, leaf + 1)) for leaf in range(leaves)]
        for pod in every_pod
    ]
    first = leaves + 1 if servers_per_leaf else 1
    above = [
        [parts.add_switch("spine", f"10.{pod}.0.{first + spine}") for spine in range(spines)]
        for pod in every_pod
    ]
    top = [parts.add_switch("core", f"10.0.0.{core + 1}") for core in range(cores)]
    access, *rest = cables
    for i in range(pods):
        for number, server in enumerate(inner[i]):
            parts.add_hosts(server, hosts, access)
            rail = number // servers_per_leaf * nics
            parts.join(server, racks[i][rail : rail + nics], rest[0])
        for number, leaf in enumerate(racks[i]):
            if not servers_per_leaf:
                parts.add_hosts(leaf, hosts, access)
            parts.join(leaf, above[i][number % planes :: planes], rest[-2])
        for number, spine in enumerate(above[i]):
            parts.join(spine, top[number * of_each : (number + 1) * of_each], rest[-1])
    inside = [servers_per_leaf, *(n for n in (nics, planes) if n > 1)] if servers_per_leaf else []
    sizes = [pods, leaves, spines, cores, *inside, hosts]
    return parts.topology(f"{name}-{'x'.join(map(str, sizes))}", offload)


def _mac(ip: IPv4Address) -> str:
    return "02:00:" + ip.packed.hex(":")  # locally administered, unicast


def _properties(key: str, value: LinkProperties | Mapping[str, Any]) -> LinkProperties:
    try:
        return LinkProperties.model_validate(value)
    except ValidationError as error:
        raise TopologyError("\n".join(_explain(one, key) for one in error.errors())) from None


def _check_range(key: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or not low <= value <= high:
        raise TopologyError(f"{key}: is {value!r}, must be a whole number from {low} to {high}")


def _explain(error: Any, *above: str) -> str:
    parts = [*above, *error["loc"]]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")
    table = parts[-2] if len(parts) > 1 else None
    match error["type"]:
        case "missing":
            return f"{place}: missing; add it"
        case "extra_forbidden" if str(table).endswith("properties"):
            return f"{place}: unknown link property; there are {', '.join(LinkProperties.model_fields)}"
        case "value_error" if isinstance(error["input"], Mapping):  # a table's message begins with a key
            return f"{place}.{error['ctx']['error']}".lstrip(".")
        case "value_error":
            return f"{place}: is {error['input']!r}; {error['ctx']['error']}"
        case _:
            return f"{place}: {error['msg']} (is {error['input']!r})"
