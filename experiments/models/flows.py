"""The UDP flows between hosts: which paths their hashes choose at each switch, and how many of them share each link."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from fanin.controller.plan import Plan, SwitchPlan, TableEntry
from fanin.controller.planner import planner_of
from fanin.experiments.models.paths import shares
from fanin.experiments.scenario.settings import Settings
from fanin.topologies.model import Host
from fanin.workers.host_based.participant import Group
from fanin.workers.host_based.transport import FIRST_PEER_PORT

_UDP = 17
_TABLES = "ingress.forwarding."
_NEGLIGIBLE = 1e-9


class NoFlowError(ValueError):
    """A point without flows that each take a single path; the message explains why."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow of data from one host to another, with its UDP ports."""

    source: Host
    destination: Host
    source_port: int
    destination_port: int

    @property
    def five_tuple(self) -> bytes:
        """Return the bytes that switches hash (p4src/forwarding.p4)."""
        ports = self.source_port.to_bytes(2, "big") + self.destination_port.to_bytes(2, "big")
        return self.source.ip.packed + self.destination.ip.packed + bytes([_UDP]) + ports


@dataclass(frozen=True, slots=True)
class Hop:
    """The port through which a switch sends a flow.

    Attributes:
        switch: The switch.
        port: Its port.
        neighbour: The node at the far end.
        paths: Number of paths among which it chose.
        hash: The hash by which it chose; None if it had no choice.
    """

    switch: str
    port: int
    neighbour: str
    paths: int = 1
    hash: int | None = None


def flows(settings: Settings) -> list[Flow]:
    """Return the flows of a point in the order of ranks.

    Raises:
        NoFlowError: If it has none, or its UDP ports are unknown before it runs.
    """
    algorithm = settings.algorithm
    if algorithm == "in-network":
        raise NoFlowError("in-network aggregation uses the links of its tree, whatever `paths` is")
    if settings.transport == "tcp" and settings.world == "live":
        raise NoFlowError(
            "the kernel chooses TCP's ports when it connects; set transport = 'selective-repeat'"
        )
    hosts = [settings.network.host(name) for name in settings.members]
    group = Group(0, len(hosts), algorithm, flows=settings.flows_per_pair)
    return [
        Flow(
            hosts[rank],
            hosts[peer],
            FIRST_PEER_PORT + group.port(peer, flow),
            FIRST_PEER_PORT + group.port(rank, flow),
        )
        for rank, others in enumerate(shares(algorithm, len(hosts), settings.shards))
        for peer in others
        for flow in range(settings.flows_per_pair)
    ]


def ways(settings: Settings) -> list[tuple[Flow, list[Hop]]]:
    """Return each flow with the hops of its packets, according to the switches' tables.

    Raises:
        NoFlowError: See flows(); also if every packet takes a different path.
    """
    if settings.controller:
        raise NoFlowError("the user's own controller plans the routes, in its own tables")
    if settings.paths not in ("ecmp", "single"):
        raise NoFlowError(f"with paths = {settings.paths!r} a path is chosen for each packet, not for a flow")
    plan = planner_of(None, settings.paths).plan_forwarding(settings.network)
    return [(flow, list(_hops(settings, plan, flow))) for flow in flows(settings)]


def carried(settings: Settings) -> Iterator[tuple[Flow, Mapping[tuple[str, str], float]]]:
    """Yield each flow with the share of it that each direction of a link carries, without links from hosts.

    If a path is chosen for each packet, all paths of a flow are taken to carry the same.

    Raises:
        NoFlowError: See flows().
    """
    if settings.controller or settings.paths in ("ecmp", "single"):
        for flow, hops in ways(settings):
            yield flow, {(hop.switch, hop.neighbour): 1.0 for hop in hops}
        return
    network = settings.network
    plan = planner_of(None, "ecmp").plan_forwarding(network)
    for flow in flows(settings):
        shares: defaultdict[tuple[str, str], float] = defaultdict(float)
        at = {flow.source.leaf: 1.0}
        while at:  # one hop further: all paths between two hosts have the same number of hops
            ahead: defaultdict[str, float] = defaultdict(float)
            for node, share in at.items():
                ports = _ports(plan[node], flow.destination.ip)
                for port in ports:
                    neighbour = network.neighbours(node)[port]
                    shares[node, neighbour] += share / len(ports)
                    if neighbour != flow.destination.name:
                        ahead[neighbour] += share / len(ports)
            at = ahead
        yield flow, shares


def loads(found: Sequence[tuple[Flow, Sequence[Hop]]]) -> Counter[tuple[str, str]]:
    """Return how many flows each direction of each link carries, without links from hosts."""
    return Counter((hop.switch, hop.neighbour) for _, hops in found for hop in hops)


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of flows over the paths among which a switch chooses.

    Attributes:
        switch: The switch.
        flows: Number of flows.
        paths: Number of paths.
        most: Number of flows on the fullest path.
    """

    switch: str
    flows: int
    paths: int
    most: int

    @property
    def even(self) -> int:
        """Return the number of flows on the fullest path if they were spread evenly."""
        return -(-self.flows // self.paths)

    @property
    def expected(self) -> float:
        """Return the mean number of flows on the fullest path if each flow's path were drawn at random."""
        return expected_most(self.flows, self.paths)


def spreads(found: Sequence[tuple[Flow, Sequence[Hop]]]) -> list[Spread]:
    """Return the spread of each switch that had to choose, by name.

    Of several groups of paths, the largest one counts.
    """
    taken: dict[str, Counter[str]] = {}
    paths: dict[str, int] = {}
    for hop in (hop for _, hops in found for hop in hops if hop.hash is not None):
        taken.setdefault(hop.switch, Counter())[hop.neighbour] += 1
        paths[hop.switch] = max(hop.paths, paths.get(hop.switch, 0))
    return [
        Spread(switch, counts.total(), paths[switch], max(counts.values()))
        for switch, counts in sorted(taken.items())
    ]


def expected_most(flows: int, paths: int) -> float:
    """Return the mean number of flows on the fullest of `paths`, if each flow draws its path at random.

    The numbers on n paths are n independent Poisson variables of any mean, given their sum: P(most <= k) is a
    coefficient of the n-th power of one such distribution, cut off behind k.
    """
    if not flows:
        return 0.0
    numbers = np.arange(flows + 1)
    logs = numbers * np.log(flows / paths) - np.cumsum(np.log(np.maximum(numbers, 1))) - flows / paths
    one = np.exp(logs)
    whole = _of_sum(one, paths, flows)
    least = -(-flows // paths)
    mean = float(least)
    for most in range(least, flows):
        beyond = 1.0 - _of_sum(one[: most + 1], paths, flows) / whole
        if beyond < _NEGLIGIBLE:
            break
        mean += beyond
    return mean


def _of_sum(distribution: NDArray[np.float64], times: int, value: int) -> float:
    """Return the probability that `times` independent variables with this distribution have the sum `value`."""
    length = times * (len(distribution) - 1) + 1
    return float(np.fft.irfft(np.fft.rfft(distribution, length) ** times, length)[value])


def _hops(settings: Settings, plan: Plan, flow: Flow) -> Iterator[Hop]:
    network, node = settings.network, flow.source.leaf
    while node != flow.destination.name:
        neighbours = network.neighbours(node)
        ports = _ports(plan[node], flow.destination.ip)
        if len(ports) == 1:
            port = ports[0]
            yield Hop(node, port, neighbours[port])
        else:
            value = crc32(flow.five_tuple)
            port = ports[value % len(ports)]
            yield Hop(node, port, neighbours[port], len(set(ports)), value)
        node = neighbours[port]


def _ports(plan: SwitchPlan, destination: IPv4Address) -> list[int]:
    """Return the ports among which a switch chooses by a hash of the flow, as often as they are in its table."""
    route = _route(plan, destination)
    if "base" not in route.params:
        return [_number(route.params, "port")]
    base, count = _number(route.params, "base"), _number(route.params, "count")
    return [_path_port(plan, base + index) for index in range(count)]


def _route(part: SwitchPlan, address: IPv4Address) -> TableEntry:
    """Return the entry with the longest prefix for an address."""
    fitting = [
        (prefix.prefixlen, entry)
        for entry in part.entries
        if entry.table == f"{_TABLES}ipv4_lpm"
        and isinstance(prefix := entry.match["hdr.ipv4.destination"], IPv4Network)
        and address in prefix
    ]
    return max(fitting, key=lambda one: one[0])[1]


def _path_port(part: SwitchPlan, index: int) -> int:
    (entry,) = (
        entry
        for entry in part.entries
        if entry.table == f"{_TABLES}ecmp_nexthop" and entry.match["meta.nexthop"] == index
    )
    return _number(entry.params, "port")


def _number(params: Mapping[str, object], name: str) -> int:
    value = params[name]
    assert isinstance(value, int)
    return value
