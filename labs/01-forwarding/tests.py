"""Tests of the router."""

from ipaddress import IPv4Address
from typing import Any

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet

from fanin.classroom.bench import Bench, lab_test
from fanin.classroom.switch_under_test import SwitchUnderTest

ROUTER_MAC, ROUTER_IP = "02:00:0a:00:00:fe", "10.0.0.254"
H1, H2, H3 = "02:00:0a:00:00:01", "02:00:0a:01:00:02", "02:00:0a:01:02:03"
ROUTES: list[dict[str, Any]] = [
    {"prefix": "10.0.0.1", "length": 32, "mac": H1, "port": 1},
    {"prefix": "10.1.0.0", "length": 16, "mac": H2, "port": 2},
    {"prefix": "10.1.2.0", "length": 24, "mac": H3, "port": 3},
]


def _router(bench: Bench, routes: list[dict[str, Any]]) -> SwitchUnderTest:
    router = bench.switch("forwarding.p4")
    bench.step(f"entries() of your controller.py is called with {len(routes)} routes")
    router.install(bench.python("controller.py").call("entries", routes), "controller.py: entries()")
    return router


def _packet(mac: str, destination: str, ttl: int = 64) -> Packet:
    ports = UDP(sport=1000, dport=2000) / b"fanin"
    return Ether(src=mac, dst=ROUTER_MAC) / IP(src="10.0.0.1", dst=destination, ttl=ttl) / ports


def _forwarded(packet: Packet, mac: str) -> Packet:
    found = packet.copy()
    found.src, found.dst = ROUTER_MAC, mac
    found[IP].ttl -= 1
    return found


@lab_test("A packet leaves by the port of its destination, with the right addresses", points=2)
def forwards(bench: Bench) -> None:
    router = _router(bench, ROUTES)
    packet = _packet(H1, "10.1.0.2")
    router.send(1, packet, "h1 sends a packet to h2")
    router.expect((2, _forwarded(packet, H2)))


@lab_test("The longest prefix wins")
def longest_prefix(bench: Bench) -> None:
    router = _router(bench, ROUTES)
    for destination, port, mac in (("10.1.2.3", 3, H3), ("10.1.3.3", 2, H2)):
        packet = _packet(H1, destination)
        router.send(1, packet, f"h1 sends a packet to {destination}")
        router.expect((port, _forwarded(packet, mac)))


@lab_test("A packet whose time to live ends is dropped")
def time_to_live(bench: Bench) -> None:
    router = _router(bench, ROUTES)
    router.send(1, _packet(H1, "10.1.0.2", ttl=1), "h1 sends a packet that may not live for another hop")
    router.expect()
    router.send(1, _packet(H1, "10.1.0.2", ttl=0), "h1 sends a packet with a TTL of 0")
    router.expect()
    packet = _packet(H1, "10.1.0.2", ttl=2)
    router.send(1, packet, "h1 sends a packet that may live for one more hop")
    router.expect((2, _forwarded(packet, H2)))


@lab_test("A packet without a route is dropped")
def no_route(bench: Bench) -> None:
    router = _router(bench, ROUTES)
    router.send(1, _packet(H1, "192.0.2.1"), "h1 sends a packet to 192.0.2.1")
    router.expect()


def _arp(target: str) -> Packet:
    return Ether(src=H1, dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, hwsrc=H1, psrc="10.0.0.1", pdst=target)


@lab_test("The router answers ARP requests for its address", points=2)
def answers_arp(bench: Bench) -> None:
    router = _router(bench, ROUTES)
    router.send(1, _arp(ROUTER_IP), "h1 asks for the MAC address of the router")
    answer = ARP(op=2, hwsrc=ROUTER_MAC, psrc=ROUTER_IP, hwdst=H1, pdst="10.0.0.1")
    router.expect((1, Ether(src=ROUTER_MAC, dst=H1) / answer))


@lab_test("The router does not answer for other addresses, and not to answers")
def other_arp(bench: Bench) -> None:
    router = _router(bench, ROUTES)
    router.send(1, _arp("10.0.0.7"), "h1 asks for the MAC address of 10.0.0.7")
    router.expect()
    answer = _arp(ROUTER_IP)
    answer[ARP].op = 2
    router.send(1, answer, "h1 sends an ARP answer")
    router.expect()


@lab_test("Routes and packets drawn at random", points=2, hidden=True)
def random_routes(bench: Bench) -> None:
    draw = bench.random
    routes: list[dict[str, Any]] = []
    for port in range(1, 9):
        mac = f"02:00:00:00:{draw.randrange(256):02x}:{port:02x}"
        prefix = str(IPv4Address(draw.randrange(11, 200) << 24 | port << 16))
        routes.append({"prefix": prefix, "length": 16, "mac": mac, "port": port})
    router = _router(bench, routes)
    for _ in range(20):
        route = draw.choice(routes)
        destination = str(IPv4Address(int(IPv4Address(route["prefix"])) + draw.randrange(1, 65535)))
        packet = _packet(H1, destination, ttl=draw.randrange(2, 256))
        router.send(draw.randrange(1, 9), packet, f"h1 sends a packet to {destination}")
        router.expect((route["port"], _forwarded(packet, route["mac"])))
