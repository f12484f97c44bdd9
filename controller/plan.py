"""Plans: the table entries and multicast groups that each switch should hold, as data in the program's names.

The tables are those of p4src/fanin.p4, whose first comment lists them.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Literal, TypeAlias

from fanin.controller.errors import ControllerError
from fanin.controller.network import Host, Network, Switch
from fanin.controller.routes import Routes
from fanin.controller.tree import Aggregator, Job, Tree

Value: TypeAlias = int | str | IPv4Address | IPv4Network  # a str is a MAC address

# Which of several shortest paths a packet takes: the path of its flow's hash; a random one for each packet; the least
# busy of some random ones for each packet; always the first.
PathChoice = Literal["ecmp", "spray", "adaptive", "single"]

PARENT = 0  # the member to which a partial sum goes (p4src/headers.p4)


@dataclass(frozen=True, slots=True)
class TableEntry:
    """An entry of an exact or LPM table; `table` and `action` are full names, the rest as in P4Info."""

    table: str
    match: Mapping[str, Value]
    action: str
    params: Mapping[str, Value]

    def __str__(self) -> str:
        match = ", ".join(f"{key}={value}" for key, value in self.match.items())
        params = ", ".join(f"{key}={value}" for key, value in self.params.items())
        return f"{self.table}({match}) -> {self.action.rpartition('.')[2]}({params})"


@dataclass(frozen=True, slots=True)
class MulticastGroup:
    """A multicast group; `replicas` are (port, replication id)."""

    group: int
    replicas: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        return f"multicast group {self.group} -> {self.replicas}"


@dataclass(frozen=True, slots=True)
class SwitchPlan:
    """The entries and groups that one switch should hold."""

    entries: tuple[TableEntry, ...]
    groups: tuple[MulticastGroup, ...] = ()

    @property
    def items(self) -> tuple[MulticastGroup | TableEntry, ...]:
        """Return all groups and entries, in the order in which they are to be installed."""
        return (*self.groups, *self.entries)


def joined(plans: Iterable[SwitchPlan]) -> SwitchPlan:
    """Return one plan with everything in these plans for a switch."""
    every = list(plans)
    return SwitchPlan(
        tuple(entry for plan in every for entry in plan.entries),
        tuple(group for plan in every for group in plan.groups),
    )


Plan: TypeAlias = Mapping[str, SwitchPlan]  # by the switch's name


def plan_forwarding(network: Network, paths: PathChoice = "ecmp") -> Plan:
    """Return the entries for IPv4 routing and ARP.

    Packets go down to hosts below, and up over all shortest paths at equal cost. Each leaf answers ARP requests for its
    own address; hosts send everything to it, and so make no other requests. Packets addressed to a switch end there,
    unless they are updates that it adds up. Packets that come back with the switch's own address as source are forged,
    and dropped.

    Args:
        network: The network.
        paths: How one of several shortest paths is chosen.
    """
    routes = Routes(network)
    racks = {leaf.name: _racks(network.hosts_of(leaf.name)) for leaf in network.leaves}
    nodes = {switch.name: switch for switch in network.switches}
    return {
        switch.name: SwitchPlan(
            (
                *_Forwarding(network, nodes, routes, racks, switch, paths).entries(),
                _route(IPv4Network(switch.ip), "own_address", {}),
                _entry("ingress.forwarding.switches", {"hdr.ipv4.source": switch.ip}, "forged", {}),
            )
        )
        for switch in network.switches
    }


def plan_aggregation(network: Network, tree: Tree) -> Plan:
    """Return all entries and groups of a lease: who is admitted to which slots, where results and partial sums go."""
    nodes: dict[str, Host | Switch] = {switch.name: switch for switch in network.switches}
    nodes |= {host.name: host for leaf in network.leaves for host in network.hosts_of(leaf.name)}
    return {part.switch: _Part(network, nodes, tree.job, part).plan() for part in tree.aggregators}


def plan_loss(network: Network, probability: float, seed: int) -> Plan:
    """Return entries that make each link lose each packet, or copy of it, at random.

    Packets from a host are lost on their way into the leaf, all others on their way out of the switch that sends them.

    Args:
        network: The network.
        probability: The probability of a loss on one link.
        seed: The seed. Each direction of each link has its own seed, derived from this one.

    Raises:
        ControllerError: If the probability is not in [0, 1).
    """
    if not 0 <= probability < 1:
        raise ControllerError(f"loss: is {probability}, must be at least 0 and less than 1")
    threshold = min(round(probability * 2**32), 2**32 - 1)

    def draw(switch: Switch, port: int, control: str) -> TableEntry:
        derived = hashlib.blake2b(f"{seed} {switch.name} {port} {control}".encode(), digest_size=4).digest()
        params = {"seed": int.from_bytes(derived), "threshold": threshold}
        return _entry(f"{control}.links", {"port": port}, "draw", params)

    plan = {}
    for switch in network.switches:
        host_ports = [network.port_towards(switch.name, host.name) for host in network.hosts_of(switch.name)]
        entries = [draw(switch, port, "ingress.loss_in") for port in host_ports]
        entries += [draw(switch, port, "egress.loss_out") for port in network.interfaces(switch.name)]
        plan[switch.name] = SwitchPlan(tuple(entries))
    return plan


class _Forwarding:
    """The entries of one switch for hosts, its own and those below other switches.

    Args:
        network: The network.
        nodes: Its switches, by name.
        routes: Its paths.
        racks: The prefixes of the hosts of each leaf, by leaf.
        switch: The switch.
        choice: How one of several shortest paths is chosen.
    """

    def __init__(
        self,
        network: Network,
        nodes: Mapping[str, Switch],
        routes: Routes,
        racks: Mapping[str, Sequence[IPv4Network]],
        switch: Switch,
        choice: PathChoice,
    ) -> None:
        self._network, self._routes, self._racks, self._switch = network, routes, racks, switch
        self._choice, self._nodes = choice, nodes
        self._paths = 0  # paths of equal cost so far

    def entries(self) -> Iterable[TableEntry]:
        """Yield the entries: down by rack; up by default, or by rack where only some of the switches above reach it."""
        switch, up = self._switch, self._routes.up(self._switch.name)
        if switch.name in self._racks:
            target = {"hdr.arp.target": switch.ip}
            yield _entry("ingress.forwarding.arp_responder", target, "answer", {"mac": switch.mac})
        hosts = self._network.hosts_of(switch.name)
        for host in hosts:
            yield _route(IPv4Network(host.ip), "forward", self._next_hop(host))
        if up:
            # Otherwise a packet to an unused address would circle between leaf and spine.
            for rack in self._racks.get(switch.name, ()):
                yield _route(rack, "no_route", {})
        for hops, leaves in self._routes.ways_down(switch.name).items():
            racks = self._racks_of(leaves)
            if len(hops) > 1:
                yield from self._equal_paths(hops, racks, down=True)
                continue
            for rack in racks:
                yield _route(rack, "forward", self._next_hop(self._nodes[hops[0]]))
        for hops, others in self._routes.ways_up(switch.name).items():
            racks = [IPv4Network("0.0.0.0/0")] if others is None else self._racks_of(others)
            yield from self._equal_paths(hops, racks, down=False)

    def _racks_of(self, leaves: Iterable[str]) -> Sequence[IPv4Network]:
        return [rack for leaf in leaves for rack in self._racks[leaf]]

    def _equal_paths(
        self, hops: Sequence[str], racks: Iterable[IPv4Network], *, down: bool
    ) -> Iterable[TableEntry]:
        if self._choice == "single":
            hops = hops[:1]
        # A choice for each packet needs no digits of a hash: every switch draws another number.
        stride = self._routes.stride(self._switch.name, down=down) if self._choice == "ecmp" else 1
        base, count = self._paths, stride * len(hops)
        self._paths += count
        action = "ecmp" if self._choice == "single" else self._choice
        for rack in racks:
            yield _route(rack, action, {"base": base, "count": count})
        for index in range(count):
            yield self._path(base + index, hops[index // stride])

    def _path(self, index: int, neighbour: str) -> TableEntry:
        """Return the entry of one of several paths."""
        action, params = "forward", self._next_hop(self._nodes[neighbour])
        if self._choice == "adaptive":
            rate = self._network.rate_towards(self._switch.name, neighbour)
            action, params = "forward_and_count", {**params, "byte_time": _byte_time(rate)}
        return _entry("ingress.forwarding.ecmp_nexthop", {"meta.nexthop": index}, action, params)

    def _next_hop(self, neighbour: Host | Switch) -> Mapping[str, Value]:
        port = self._network.port_towards(self._switch.name, neighbour.name)
        return {"mac": neighbour.mac, "port": port}


def _byte_time(rate: int | None) -> int:
    """Return the time of a byte on a link of `rate` bits per second, in 2^-32 us; 0 if it is unlimited."""
    return 0 if rate is None else round(8_000_000 * 2**32 / rate)


def _racks(hosts: Iterable[Host]) -> Sequence[IPv4Network]:
    return sorted({IPv4Network((host.ip, host.prefix_length), strict=False) for host in hosts})


@dataclass(frozen=True, slots=True)
class _Part:
    """One switch's part in a tree. Its multicast group has the lease's number."""

    network: Network
    nodes: Mapping[str, Host | Switch]
    job: Job
    aggregator: Aggregator

    def plan(self) -> SwitchPlan:
        replicas = tuple((self._port(name), member) for member, name in self._children())
        groups = (MulticastGroup(self.job.lease, replicas),)
        # Installed in this order: nobody is admitted before results can be sent back.
        return SwitchPlan((*self._receivers(), *self._admissions()), groups)

    def _children(self) -> Iterable[tuple[int, str]]:
        return enumerate(self.aggregator.children, start=1)

    def _port(self, neighbour: str) -> int:
        return self.network.port_towards(self.aggregator.switch, neighbour)

    def _admissions(self) -> Iterable[TableEntry]:
        parent = self.aggregator.parent
        claim = {
            "base": self.job.base,
            "slots": self.job.slots,
            "first_chunk": self.job.first_chunk,
            "last_chunk": self.job.last_chunk,
            "checksums": int(self.job.checksums),
            "group": self.job.lease,
        }
        role = {
            "full": self.aggregator.full_mask,
            "root": int(parent is None),
            "uplink": 0 if parent is None else self._port(parent),
        }
        for member, name in self._children():
            identity = {"member": member, "member_bit": 1 << (member - 1)}
            yield self._admission(name, "admit_child", {**identity, **role, **claim})
        if parent is not None:
            yield self._admission(parent, "admit_parent", claim)

    def _admission(self, neighbour: str, action: str, params: Mapping[str, Value]) -> TableEntry:
        match: dict[str, Value] = {
            "standard_metadata.ingress_port": self._port(neighbour),
            "hdr.ipv4.source": self.nodes[neighbour].ip,
            "hdr.ipv4.destination": self.nodes[self.aggregator.switch].ip,
            "hdr.udp.source_port": self.job.udp_port,
            "hdr.switchml.lease": self.job.lease,
        }
        return _entry("ingress.aggregation.admission", match, action, params)

    def _receivers(self) -> Iterable[TableEntry]:
        own = self.nodes[self.aggregator.switch]
        receivers = [*self._children()]
        if self.aggregator.parent is not None:
            receivers.append((PARENT, self.aggregator.parent))
        for member, name in receivers:
            receiver = self.nodes[name]
            match: dict[str, Value] = {"hdr.switchml.lease": self.job.lease, "meta.member": member}
            addresses: dict[str, Value] = {
                "source_mac": own.mac,
                "source": own.ip,
                "source_port": self.job.udp_port,
                "destination_mac": receiver.mac,
                "destination": receiver.ip,
                "destination_port": self.job.udp_port,
            }
            yield _entry("egress.receivers", match, "send_to", addresses)


def _route(prefix: IPv4Network, action: str, params: Mapping[str, Value]) -> TableEntry:
    return _entry("ingress.forwarding.ipv4_lpm", {"hdr.ipv4.destination": prefix}, action, params)


def _entry(table: str, match: Mapping[str, Value], action: str, params: Mapping[str, Value]) -> TableEntry:
    control = table.rpartition(".")[0]
    return TableEntry(table, match, f"{control}.{action}", params)
