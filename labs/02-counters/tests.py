"""Tests of the switch that counts."""

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet

from fanin.classroom.bench import Bench, lab_test
from fanin.classroom.switch_under_test import SwitchUnderTest

LIMIT, MARK = 10, 0x20


def _packet(host: int, tos: int = 0, size: int = 10) -> Packet:
    ip = IP(src=f"10.0.0.{host}", dst="10.0.1.1", tos=tos)
    return Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / ip / UDP(sport=1, dport=2) / bytes(size)


def _arp() -> Packet:
    return Ether(src="02:00:00:00:00:01", dst="ff:ff:ff:ff:ff:ff") / ARP(pdst="10.0.1.1", psrc="10.0.0.1")


def _send(switch: SwitchUnderTest, host: int, count: int, already: int = 0) -> None:
    """Send so many packets of a host, and expect that those beyond the limit are marked."""
    for number in range(already + 1, already + count + 1):
        packet = _packet(host)
        switch.send(1, packet, f"10.0.0.{host} sends its packet {number}")
        switch.expect((2, _packet(host, MARK) if number > LIMIT else packet))


@lab_test("Packets are counted at the port where they arrive")
def counts_ports(bench: Bench) -> None:
    switch = bench.switch("meter.p4")
    for port, packet, text in (
        (1, _packet(1), "h1 sends"),
        (2, _packet(2), "h2 sends"),
        (1, _arp(), "h1 asks"),
    ):
        switch.send(port, packet, text)
        switch.expect((3 - port, packet))
    bench.step("the control plane reads the counter port_in")
    for port, packets, size in ((1, 2, len(_packet(1)) + len(_arp())), (2, 1, len(_packet(2))), (3, 0, 0)):
        found = switch.counter("port_in", port)
        switch.check(
            found == (packets, size),
            f"port {port}: expected {packets} packets and {size} bytes, the counter has {found[0]} and {found[1]}",
        )


@lab_test("Each host has a count of its own in the register")
def counts_hosts(bench: Bench) -> None:
    switch = bench.switch("meter.p4")
    for host, count in ((1, 3), (7, 2)):
        _send(switch, host, count)
    bench.step("the control plane reads the register packets_of")
    cells = switch.register("packets_of")
    for host, count in ((1, 3), (7, 2), (2, 0)):
        switch.check(cells[host] == count, f"packets_of[{host}] is {cells[host]}, expected {count}")


@lab_test("Other traffic passes, and is not counted for a host")
def other_traffic(bench: Bench) -> None:
    switch = bench.switch("meter.p4")
    switch.send(2, _arp(), "h2 sends an ARP request")
    switch.expect((1, _arp()))
    bench.step("the control plane reads the register packets_of")
    switch.check(
        not any(switch.register("packets_of")), "a packet without an IPv4 header was counted for a host"
    )


@lab_test("The packets of a host beyond the tenth are marked", points=2)
def marks(bench: Bench) -> None:
    switch = bench.switch("meter.p4")
    _send(switch, 5, LIMIT + 2)
    _send(switch, 6, 1)


@lab_test("A count stops at 255, and does not begin again", points=2)
def saturates(bench: Bench) -> None:
    switch = bench.switch("meter.p4")
    bench.step("10.0.0.9 sends 300 packets")
    for number in range(1, 301):
        switch.send(1, _packet(9), f"packet {number}")
        bench.story.steps.pop()
        switch.expect((2, _packet(9, MARK) if number > LIMIT else _packet(9)))
    bench.step("the control plane reads the register packets_of")
    cells = switch.register("packets_of")
    switch.check(cells[9] == 255, f"packets_of[9] is {cells[9]}, expected 255")


@lab_test("Hosts that send at random", points=2, hidden=True)
def random_hosts(bench: Bench) -> None:
    switch = bench.switch("meter.p4")
    first = bench.random.randrange(1, 16)
    counts = dict.fromkeys((first, first + 16, first + 128, bench.random.randrange(160, 255)), 0)
    for _ in range(60):
        host = bench.random.choice([*counts])
        _send(switch, host, 1, counts[host])
        counts[host] += 1
