"""What is not aggregation: routing, equal-cost paths, ARP, and the reasons of drops."""

from __future__ import annotations

from collections import Counter

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Raw

from tests.p4src.switch_under_test import SwitchUnderTest, ipv4, mac

GATEWAY, SENDER, NEXT = "02:00:00:00:00:01", "02:00:00:00:01:01", "02:00:00:00:01:02"


@pytest.fixture
def router(switch: SwitchUnderTest) -> SwitchUnderTest:
    """Host 10.0.0.2 on port 2; everything else over two spines on ports 3 and 4."""
    switch.route("10.0.0.2", 32, "forward", mac(NEXT), 2)
    switch.route("0.0.0.0", 0, "ecmp", 8, 2)
    for index, port in ((8, 3), (9, 4)):
        switch.insert("ingress.forwarding.ecmp_nexthop", (index,), "forward", mac(NEXT), port)
    switch.insert("ingress.forwarding.arp_responder", (ipv4("10.0.0.254"),), "answer", mac(GATEWAY))
    return switch


def packet(destination: str = "10.0.0.2", **fields: int) -> Packet:
    return Ether(src=SENDER, dst=GATEWAY) / IP(src="10.0.0.1", dst=destination, **fields)


def test_a_packet_is_routed_to_its_host(router: SwitchUnderTest) -> None:
    sent = packet(ttl=9) / TCP(sport=1, dport=2) / b"some data"
    ((port, frame),) = router.engine.process(1, bytes(sent))
    expected = Ether(src=GATEWAY, dst=NEXT) / IP(src="10.0.0.1", dst="10.0.0.2", ttl=8) / sent[TCP]
    assert port == 2
    assert frame == bytes(expected)


def test_ping_and_fragments_pass(router: SwitchUnderTest) -> None:
    for sent in (packet() / ICMP(), packet(frag=3, proto=17) / Raw(b"\xff" * 8)):
        assert [port for port, _ in router.engine.process(1, bytes(sent))] == [2]


def test_a_flow_keeps_its_path_and_flows_spread(router: SwitchUnderTest) -> None:
    def path(source_port: int) -> int:
        ((port, _),) = router.engine.process(
            1, bytes(packet("10.1.0.1") / TCP(sport=source_port, dport=5001))
        )
        return port

    ports = Counter(path(source_port) for source_port in range(2000, 2200))
    assert ports[3] + ports[4] == 200
    assert min(ports.values()) > 60
    assert len({path(4321) for _ in range(10)}) == 1


def test_arp_for_the_gateway_is_answered(router: SwitchUnderTest) -> None:
    request = Ether(src=SENDER, dst="ff:ff:ff:ff:ff:ff") / ARP(
        op=1, hwsrc=SENDER, psrc="10.0.0.1", pdst="10.0.0.254", hwdst="00:00:00:00:00:00"
    )
    ((port, frame),) = router.engine.process(1, bytes(request))
    reply = Ether(frame)
    assert port == 1
    assert (reply.src, reply.dst) == (GATEWAY, SENDER)
    assert (reply.op, reply.hwsrc, reply.psrc) == (2, GATEWAY, "10.0.0.254")
    assert (reply.hwdst, reply.pdst) == (SENDER, "10.0.0.1")


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (packet(ttl=1) / UDP(), "TTL"),
        (packet(version=5) / UDP(), "MALFORMED"),
        (packet(ihl=6, options=[]) / UDP(), "MALFORMED"),
        (packet(chksum=1) / UDP(), "BAD_CHECKSUM"),
        (Ether(src=SENDER, dst=GATEWAY) / IPv6(), "NOT_IP"),
        (Ether(src=SENDER, dst=GATEWAY) / ARP(op=1, pdst="10.9.9.9"), "NOT_IP"),
        (Ether(src=SENDER, dst=GATEWAY) / ARP(op=2, pdst="10.0.0.254"), "NOT_IP"),
        (Ether(src=SENDER, dst=GATEWAY, type=0x0800) / b"short", "TRUNCATED"),
    ],
)
def test_each_drop_has_its_reason(router: SwitchUnderTest, sent: Packet, reason: str) -> None:
    assert router.engine.process(1, bytes(sent)) == []
    assert router.drops() == {reason: 1}


def test_no_route(switch: SwitchUnderTest) -> None:
    assert switch.engine.process(1, bytes(packet() / UDP())) == []
    assert switch.drops() == {"NO_ROUTE": 1}


def test_ports_count_packets_and_bytes(router: SwitchUnderTest) -> None:
    sent = bytes(packet() / UDP() / bytes(100))
    for _ in range(3):
        router.engine.process(1, sent)
    received = router.engine.counter("ingress.port_in").read(1)
    passed_on = router.engine.counter("egress.port_out").read(2)
    assert (received.packets, received.bytes) == (3, 3 * len(sent))
    assert (passed_on.packets, passed_on.bytes) == (3, 3 * len(sent))
