"""Tests of the switch that adds itself to probes."""

from collections.abc import Sequence
from typing import Any

from scapy.fields import BitField, ByteField, ShortField
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from fanin.classroom.bench import Bench, lab_test

TYPE, VERSION, MOST, ME = 0x88B5, 1, 8, 42
Hop = tuple[int, int]


class Probe(Packet):
    """The header of a probe."""

    name = "probe"
    fields_desc = [  # noqa: RUF012 - scapy's way
        BitField("version", VERSION, 4),
        BitField("reserved", 0, 3),
        BitField("full", 0, 1),
        ByteField("hops", 0),
    ]


class HopRecord(Packet):
    """The record of one hop."""

    name = "hop"
    fields_desc = [ShortField("switch_id", 0), ShortField("port", 0)]  # noqa: RUF012


def _probe(path: Sequence[Hop], payload: bytes = b"end", **fields: int) -> Packet:
    ether = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02", type=TYPE)
    described: dict[str, Any] = {"hops": len(path), **fields}
    packet = ether / Probe(**described)
    for switch, port in path:
        packet = packet / HopRecord(switch_id=switch, port=port)
    return packet / payload


@lab_test("Other traffic passes unchanged")
def other_traffic(bench: Bench) -> None:
    switch = bench.switch("probe.p4")
    packet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(dst="10.0.0.1") / b"no probe"
    switch.send(1, packet, "h1 sends an IPv4 packet")
    switch.expect((2, packet))


@lab_test("The first switch adds its hop to an empty probe", points=2)
def first_hop(bench: Bench) -> None:
    switch = bench.switch("probe.p4")
    switch.send(1, _probe([]), "h1 sends an empty probe")
    switch.expect((2, _probe([(ME, 1)])))
    switch.send(2, _probe([]), "h2 sends an empty probe")
    switch.expect((1, _probe([(ME, 2)])))


@lab_test("A later switch adds its hop in front of the others", points=2)
def later_hop(bench: Bench) -> None:
    switch = bench.switch("probe.p4")
    before = [(7, 3), (9, 4)]
    switch.send(1, _probe(before), "a probe arrives that has been at the switches 9 and 7")
    switch.expect((2, _probe([(ME, 1), *before])))


@lab_test("A probe that is full is marked, and gets no further hop")
def full(bench: Bench) -> None:
    switch = bench.switch("probe.p4")
    hops = [(number, 1) for number in range(MOST)]
    switch.send(1, _probe(hops[1:]), "a probe with room for one hop arrives")
    switch.expect((2, _probe([(ME, 1), *hops[1:]])))
    switch.send(1, _probe(hops), "a probe with 8 hops arrives")
    switch.expect((2, _probe(hops, full=1)))


@lab_test("Probes of another version, and malformed ones, are dropped")
def malformed(bench: Bench) -> None:
    switch = bench.switch("probe.p4")
    switch.send(1, _probe([], version=2), "a probe of version 2 arrives")
    switch.expect()
    switch.send(1, _probe([(1, 1)], hops=9), "a probe arrives that claims 9 hops")
    switch.expect()
    switch.send(1, _probe([(1, 1)], b"", hops=3), "a probe arrives that claims 3 hops and has one")
    switch.expect()


@lab_test("Probes drawn at random", points=2, hidden=True)
def random_probes(bench: Bench) -> None:
    switch = bench.switch("probe.p4")
    for _ in range(20):
        count, port = bench.random.randrange(MOST), bench.random.randrange(1, 3)
        hops = [(bench.random.randrange(1 << 16), bench.random.randrange(1 << 9)) for _ in range(count)]
        payload = bench.random.randbytes(bench.random.randrange(1, 40))
        switch.send(port, _probe(hops, payload), f"a probe with {count} hops arrives")
        switch.expect((3 - port, _probe([(ME, port), *hops], payload)))
