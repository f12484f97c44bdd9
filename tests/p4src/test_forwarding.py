"""The rest of the program: routing, equal-cost paths, ARP, and the reasons of drops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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


def spread(
    switch: SwitchUnderTest, action: str, byte_times: Sequence[int], packets: int = 400
) -> Counter[int]:
    """How many packets of one flow, all sent in one microsecond, leave by each of the ports from 1 on."""
    switch.route("0.0.0.0", 0, action, 8, len(byte_times))
    for number, byte_time in enumerate(byte_times):
        values = (mac(NEXT), 1 + number)
        key = (8 + number,)
        if action == "adaptive":
            switch.insert("ingress.forwarding.ecmp_nexthop", key, "forward_and_count", *values, byte_time)
        else:
            switch.insert("ingress.forwarding.ecmp_nexthop", key, "forward", *values)
    sent = bytes(packet("10.1.0.1") / UDP(sport=20_000, dport=20_001) / bytes(1000))
    return Counter(port for _ in range(packets) for port, _ in switch.engine.process(9, sent, 1))


@pytest.mark.parametrize("paths", [2, 3, 4, 7])
def test_packets_of_a_sprayed_flow_take_all_paths_evenly(switch: SwitchUnderTest, paths: int) -> None:
    taken = spread(switch, "spray", [0] * paths)
    assert sorted(taken) == list(range(1, 1 + paths))
    assert max(taken.values()) < 1.3 * 400 / paths
    assert min(taken.values()) > 0.7 * 400 / paths


BYTE_TIME = 8_000_000 * 2**32 // 100_000_000_000  # at 100 Gb/s


@pytest.mark.parametrize("paths", [2, 3, 4, 16])
def test_adaptive_routing_keeps_the_queues_of_equal_links_equal(switch: SwitchUnderTest, paths: int) -> None:
    taken = spread(switch, "adaptive", [BYTE_TIME] * paths)
    assert sum(taken.values()) == 400
    assert max(taken.values()) - min(taken[port] for port in range(1, 1 + paths)) <= 4


def test_adaptive_routing_gives_a_link_of_a_quarter_of_the_rate_a_quarter_of_the_packets(
    switch: SwitchUnderTest,
) -> None:
    taken = spread(switch, "adaptive", [BYTE_TIME, BYTE_TIME, 4 * BYTE_TIME])
    assert 35 <= taken[3] <= 53  # 400 / 9 = 44
    assert abs(taken[1] - taken[2]) <= 4


def test_what_a_link_has_sent_no_longer_counts(switch: SwitchUnderTest) -> None:
    assert spread(switch, "adaptive", [BYTE_TIME, BYTE_TIME, 4 * BYTE_TIME], 40)[3]
    sent = bytes(packet("10.1.0.1") / UDP(sport=20_000, dport=20_001) / bytes(1000))
    # So long after one another that every queue is empty: no link is better than another.
    taken = Counter(
        port for number in range(400) for port, _ in switch.engine.process(9, sent, 1_000 * (1 + number))
    )
    assert min(taken[port] for port in (1, 2, 3)) > 80


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
