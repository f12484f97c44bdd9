"""A controller: the entries of fanin, and those that say whose packets are marked.

You can define any of these functions; fanin's own replace those that are missing: plan_forwarding(network),
aggregation_tree(network, job), plan_aggregation(network, tree), plan_loss(network, probability, seed). They have no
side effects: the same arguments give the same plan, for switches that run and in virtual time.
"""

from collections.abc import Iterable

from fanin.controller import plan
from fanin.controller.network import Network
from fanin.controller.plan import Plan, SwitchPlan, TableEntry

EXPEDITED = 46  # RFC 3246


def plan_forwarding(network: Network) -> Plan:
    """Routes as ours, and marks for the first host of each leaf."""
    return {
        switch: SwitchPlan((*part.entries, *_marks(network, switch)), part.groups)
        for switch, part in plan.plan_forwarding(network).items()
    }


def _marks(network: Network, switch: str) -> Iterable[TableEntry]:
    for host in network.hosts_of(switch)[:1]:  # a spine has none
        yield TableEntry("ingress.marking", {"hdr.ipv4.source": host.ip}, "ingress.mark", {"dscp": EXPEDITED})
