"""Checks that the parts of a network fit together; each finding is a line with the key at fault and the fix."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network
from itertools import chain, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fanin.topologies.model import Endpoint, Host, Switch, Topology


def problems(topology: Topology) -> list[str]:
    """Return all that is wrong with the network.

    Links between tiers and paths between hosts are checked only if each part is right by itself.
    """
    found = list(chain(_duplicates(topology), _misplaced_hosts(topology), _bad_links(topology)))
    return found or list(chain(_overlapping_racks(topology), _missing_links(topology)))


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
    role = topology.leaves[0].role if topology.leaves else "leaf"
    for i, host in enumerate(topology.hosts):
        if host.leaf not in leaves:
            yield f"hosts[{i}].leaf: no {role} is called {host.leaf!r}; there are {', '.join(leaves) or 'none'}"
        elif host.gateway != leaves[host.leaf].ip:
            yield f"hosts[{i}].gateway: is {host.gateway}, must be {host.leaf}'s {leaves[host.leaf].ip}"
        elif host.gateway not in (network := _rack(host)):
            yield f"hosts[{i}].prefix_length: {network} lacks the gateway {host.gateway}; shorten it"


def _bad_links(topology: Topology) -> Iterable[str]:
    tier = {switch.name: number for number, tier in enumerate(topology.tiers) for switch in tier}
    tier |= {host.name: -1 for host in topology.hosts}
    taken: dict[Endpoint, str] = {}
    for i, link in enumerate(topology.links):
        for key, end in (("a", link.a), ("b", link.b)):
            place = f"links[{i}].{key}"
            if end.node not in tier:
                yield f"{place}.node: no switch or host is called {end.node!r}"
                continue
            if (tier[end.node] < 0) != (end.port == 0):
                yield f"{place}.port: is {end.port}; a host has port 0 only, a switch's ports count from 1"
            if taken.setdefault(end, place) != place:
                yield f"{place}: port {end.port} of {end.node} is taken by {taken[end]} already"
        known = link.a.node in tier and link.b.node in tier
        if known and abs(tier[link.a.node] - tier[link.b.node]) != 1:
            kinds = pairwise(["host", *(tier[0].role for tier in topology.tiers)])
            joined = " or ".join(f"{lower}–{upper}" for lower, upper in kinds)
            yield f"links[{i}]: joins {link.a.node} and {link.b.node}; links are {joined}"


def _overlapping_racks(topology: Topology) -> Iterable[str]:
    """Find racks whose addresses overlap: routes lead to racks, so an address must not belong to two of them."""
    racks: dict[tuple[IPv4Network, str], int] = {}
    for i, host in enumerate(topology.hosts):
        racks.setdefault((_rack(host), host.leaf), i)
    widest: tuple[IPv4Network, str, int] | None = None
    for (network, leaf), i in sorted(racks.items()):
        if widest is None or not network.subnet_of(widest[0]):
            widest = network, leaf, i
        elif leaf != widest[1]:
            outer, owner, place = widest
            yield f"hosts[{place}].prefix_length: {owner}'s {outer} holds {leaf}'s {network}; lengthen it"


def _rack(host: Host) -> IPv4Network:
    # From an int, because an address is read as text otherwise, which takes much longer.
    return IPv4Network((int(host.ip), host.prefix_length), strict=False)


def _missing_links(topology: Topology) -> Iterable[str]:
    neighbours: defaultdict[str, list[str]] = defaultdict(list)
    for link in topology.links:
        neighbours[link.a.node].append(link.b.node)
        neighbours[link.b.node].append(link.a.node)
    for i, host in enumerate(topology.hosts):
        if neighbours[host.name] != [host.leaf]:
            yield f"hosts[{i}]: {host.name} needs one link, to its leaf {host.leaf}"
    if len(topology.tiers) == 1 and len(topology.leaves) > 1:
        yield "switches: several leaves need a spine between them"
    else:
        yield from _missing_ways(topology, neighbours)


def _missing_ways(topology: Topology, neighbours: Mapping[str, list[str]]) -> Iterable[str]:
    """Find switches without the links they need, where not every switch has a link to each one of the next tier."""
    for switch in topology.switches:
        for name, count in Counter(neighbours[switch.name]).items():
            if count > 1 and switch.name < name:
                yield f"links: {switch.name} and {name} have {count}; two switches have one at most"
    below: set[str] = set()
    above: dict[
        str, int
    ] = {}  # for each switch, its own bit and one for each switch that is reached going up
    for tier in topology.tiers:
        for switch in tier:
            if below and not below.intersection(neighbours[switch.name]):
                yield f"links: {switch.name} has no link down; join it to the tier below, or leave it out"
        below = {switch.name for switch in tier}
    bits = {switch.name: 1 << i for i, switch in enumerate(topology.switches)}
    for tier in reversed(topology.tiers):
        for switch in tier:
            above[switch.name] = bits[switch.name]
            for name in neighbours[switch.name]:
                above[switch.name] |= above.get(name, 0)
    # Hosts go up and then down: leaves that have no switch above both do not reach each other. Many have the same ones
    # above.
    shared = {leaf.name: above[leaf.name] & ~bits[leaf.name] for leaf in topology.leaves}
    kinds = {*shared.values()}
    apart = {one: {other for other in kinds if not one & other} for one in kinds}
    for i, leaf in enumerate(topology.leaves):
        without = apart[shared[leaf.name]]
        others = topology.leaves[i + 1 :] if without else ()
        if other := next((other for other in others if shared[other.name] in without), None):
            yield f"links: {leaf.name} and {other.name} have no switch above both; add links up to one"
