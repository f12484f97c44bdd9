"""Packets that a host sends in the name of a switch: no switch adds them, and no worker takes them for results."""

from __future__ import annotations

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from fanin.controller.telemetry import Reason
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import Cluster
from fanin.simulator.job_spec import ClusterSpec
from fanin.topologies.model import Host
from fanin.topologies.shapes import servers
from tests.p4src.switch_under_test import RESULT, UPDATE, Message, block

TOPOLOGY = servers(pods=2, leaves=1, spines=2, cores=2, servers_per_leaf=2, hosts_per_server=2)
MEMBERS, STRANGERS = TOPOLOGY.ranked_hosts[::2], TOPOLOGY.ranked_hosts[1::2]


@pytest.fixture
def cluster(switch: Engine) -> Cluster:
    """A job of one host in each server, before its first packet."""
    names = tuple(host.name for host in MEMBERS)
    return Cluster(ClusterSpec(TOPOLOGY, hosts=names), switch, [[np.zeros(1, np.float32)] * len(names)])


def deliver(cluster: Cluster, sender: Host, frame: bytes) -> list[tuple[Host, bytes]]:
    """The frames that hosts receive because `sender` sends one."""
    (link,) = TOPOLOGY.links_of(sender.name)
    moving, received = [(link.far_end(sender.name), frame)], []
    while moving:
        at, packet = moving.pop()
        if at.port == 0:
            received.append((TOPOLOGY.host(at.node), packet))
            continue
        links = {link.end(at.node).port: link.far_end(at.node) for link in TOPOLOGY.links_of(at.node)}
        sent = cluster.engines[at.node].process(at.port, packet)
        moving += [(links[port], left) for port, left in sent]
    return received


def deceived(cluster: Cluster) -> list[str]:
    """Hosts that receive something in the name of their own switch, and switches' reasons to look into a packet."""
    job = cluster.job.granted[0]
    found: list[str] = []
    for stranger in STRANGERS:
        for claimed in TOPOLOGY.switches:
            for target in (*TOPOLOGY.switches, *MEMBERS):
                for kind in (UPDATE, RESULT):
                    message = Message(block(1), kind, lease=job.lease, chunk=job.first_chunk, slot=job.base)
                    frame = (
                        Ether(src=stranger.mac, dst=TOPOLOGY.switch(stranger.leaf).mac)
                        / IP(src=str(claimed.ip), dst=str(target.ip))
                        / UDP(sport=job.udp_port, dport=job.udp_port, chksum=0)
                        / message.encode()
                    )
                    received = deliver(cluster, stranger, bytes(frame))
                    found += [host.name for host, got in received if IP(got[14:]).src == str(host.gateway)]
    found += [event.name for event, count in cluster.events().items() if count]
    harmless = {Reason.FORGED, Reason.NOT_ADMITTED, Reason.NO_ROUTE}
    return found + [
        reason.name for reason, count in cluster.drops().items() if count and reason not in harmless
    ]


def test_a_sum_in_the_name_of_a_switch_is_added_by_nobody(cluster: Cluster) -> None:
    assert deceived(cluster) == []
    assert all(cluster.drops()[reason] for reason in (Reason.FORGED, Reason.NOT_ADMITTED))


def test_without_the_entries_of_their_own_addresses_switches_pass_such_sums_on(cluster: Cluster) -> None:
    for engine in cluster.engines.values():
        table = engine.table("ingress.forwarding.switches")
        for entry in table.entries():
            table.delete(entry.key)
    assert {host.name for host in MEMBERS} <= {*deceived(cluster)}
