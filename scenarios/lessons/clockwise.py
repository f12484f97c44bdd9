"""Routes of a network that is a ring: whatever is not for its own hosts a switch hands to the next one."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network

from fanin.controller import plan
from fanin.controller.network import Network
from fanin.controller.plan import Plan, SwitchPlan, TableEntry

RING = ("leaf1", "spine1", "leaf2", "spine2", "leaf3", "spine3")  # and leaf1 again
ROUTES, FORWARD = "ingress.forwarding.ipv4_lpm", "ingress.forwarding.forward"
EVERYWHERE = IPv4Network("0.0.0.0/0")


def plan_forwarding(network: Network) -> Plan:
    """Return fanin's own plan with other routes to other leaves."""
    after = dict(zip(RING, (*RING[1:], RING[0]), strict=True))
    ours = plan.plan_forwarding(network)
    return {name: _changed(part, _onwards(network, name, after[name])) for name, part in ours.items()}


def _changed(part: SwitchPlan, onwards: TableEntry) -> SwitchPlan:
    kept = tuple(entry for entry in part.entries if not _leads_to_others(entry))
    return replace(part, entries=(*kept, onwards))


def _leads_to_others(entry: TableEntry) -> bool:
    """Return whether an entry leads to other leaves: neither to a single address nor to nowhere."""
    prefix = entry.match.get("hdr.ipv4.destination")
    return isinstance(prefix, IPv4Network) and prefix.prefixlen < 32 and not entry.action.endswith("no_route")


def _onwards(network: Network, switch: str, neighbour: str) -> TableEntry:
    mac = next(other.mac for other in network.switches if other.name == neighbour)
    port = network.port_towards(switch, neighbour)
    return TableEntry(ROUTES, {"hdr.ipv4.destination": EVERYWHERE}, FORWARD, {"mac": mac, "port": port})
