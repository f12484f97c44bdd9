"""An emulated link does to each packet what a model in Python says, when it says, whatever the clock does."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from fanin.p4switch.engine.links import Burst, LinkProperties
from tests.p4switch.runtime.c_link import MICROSECOND, MILLISECOND, SECOND, CLink, numbered
from tests.p4switch.runtime.link_model import Packet, model

PROBABILITIES = st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0])
BURSTS = st.builds(
    Burst, begin=st.sampled_from([0.1, 0.5]), end=st.sampled_from([0.2, 1.0]), loss=PROBABILITIES
)
PROPERTIES = st.builds(
    LinkProperties,
    rate=st.sampled_from([None, 1e4, 1e6, 123_456_789.0, 1e9, 4e11]),
    delay=st.sampled_from([0.0, 1e-6, 1e-3]),
    jitter=st.sampled_from([0.0, 0.0, 1e-5, 1e-3]),
    queue_bytes=st.sampled_from([None, None, 0, 1500, 9000]),
    loss=PROBABILITIES,
    corruption=PROBABILITIES,
    duplication=PROBABILITIES,
    reordering=PROBABILITIES,
    displacement=st.sampled_from([0.0, 1e-5, 1e-3]),
    burst=st.none() | BURSTS,
    overhead=st.sampled_from([0, 24]),
    seed=st.integers(0, 2**53),
)
INTACT = PROPERTIES.map(lambda p: replace(p, corruption=0.0))  # then a packet's number is legible
PACKETS = st.lists(
    st.builds(Packet, gap=st.sampled_from([0, 0, 1, MICROSECOND, MILLISECOND]), length=st.integers(14, 1600)),
    max_size=60,
)


def flipped(packet: bytes, bit: int | None) -> bytes:
    """The packet with one bit, counted from its first byte's highest, flipped; None: as it is."""
    mask = 0 if bit is None else 1 << 8 * len(packet) - 1 - bit
    return (int.from_bytes(packet, "big") ^ mask).to_bytes(len(packet), "big")


@given(properties=PROPERTIES, packets=PACKETS, stream=st.integers(0, 1023))
def test_each_packet_meets_its_fate_on_time(properties: LinkProperties, packets: list[Packet], stream: int):
    link = CLink(properties, stream)
    try:
        for number, packet in enumerate(packets):
            link.run_until(link.now + packet.gap)
            link.offer(numbered(number, packet.length))
            link.release()
        link.run_until(2**62)
        fate = model(properties, stream, packets)
        assert [time for time, _ in link.released] == [time for time, _ in fate.released]
        for (data, checksum, _), (_, number) in zip(link.packets, fate.released, strict=True):
            assert data == flipped(numbered(number, packets[number].length), fate.corrupted.get(number))
            assert checksum is None
        seen = link.read()
        assert (seen.offered, seen.sent) == (len(packets), len(fate.released))
        assert (seen.lost, seen.burst_lost, seen.queue_dropped) == (
            fate.lost,
            fate.burst_lost,
            fate.queue_dropped,
        )
        assert (seen.duplicated, seen.reordered) == (fate.duplicated, fate.reordered)
        assert seen.corrupted == len(fate.corrupted)
        assert abs(seen.highest_bytes - fate.highest) <= 1  # rounded
        assert (seen.lateness_most, seen.late, seen.held) == (0, 0, 0)
    finally:
        link.close()


@pytest.mark.slow
@given(
    properties=INTACT,
    packets=PACKETS,
    lapses=st.lists(st.integers(0, 3 * MILLISECOND), min_size=60, max_size=60),
)
def test_a_late_clock_delays_packets_but_changes_neither_fate_nor_order(
    properties: LinkProperties, packets: list[Packet], lapses: list[int]
):
    """The clock is read at arrivals only, and again a while after them."""
    link = CLink(properties)
    lateness = []
    try:
        for number, packet in enumerate(packets):
            link.now += packet.gap
            link.offer(numbered(number, packet.length))
        fate = model(properties, 0, packets)
        for lapse in lapses:
            link.now += lapse
            before = len(link.released)
            link.release()
            lateness += [link.now - due for due, _ in fate.released[before : len(link.released)]]
        link.run_until(2**62)
        assert [number for _, number in link.released] == [number for _, number in fate.released]
        seen = link.read()
        assert seen.lateness_most == max(lateness, default=0)
        assert seen.late == sum(late > MILLISECOND for late in lateness)
        assert seen.lateness_sum == sum(lateness)
    finally:
        link.close()


@given(properties=INTACT.map(lambda p: replace(p, overhead=0, queue_bytes=None)), packets=PACKETS)
def test_waiting_before_egress_changes_no_fate(properties: LinkProperties, packets: list[Packet]):
    link = CLink(properties)
    try:
        for number, packet in enumerate(packets):
            link.run_until(link.now + packet.gap)
            link.wait(numbered(number, packet.length))
            link.release()
        link.run_until(2**62)
        assert link.released == model(properties, 0, packets).released
        seen = link.read()
        assert (seen.offered, seen.held, seen.queue_bytes) == (len(packets), 0, 0)
    finally:
        link.close()


# What follows from the model, said plainly


def test_without_properties_packets_pass_at_once(links: Any):
    link = links(LinkProperties())
    for number in range(3):
        link.offer(numbered(number, 100))
    assert link.released == [(0, 0), (0, 1), (0, 2)]
    assert link.next() is None


def test_rate_and_delay(links: Any):
    """1,000 bytes and 25 of overhead at 100 Mb/s take 82 us."""
    link = links(LinkProperties(rate=1e8, delay=1e-3, overhead=25))
    link.offer(numbered(0, 1000))
    link.offer(numbered(1, 1000))
    link.run_until(SECOND)
    assert link.released == [(1082 * MICROSECOND, 0), (1164 * MICROSECOND, 1)]


def test_a_queue_that_is_full_drops_the_last(links: Any):
    link = links(LinkProperties(rate=1e8, queue_bytes=2500))
    for number in range(4):
        link.offer(numbered(number, 1000))
    seen = link.read()
    assert (seen.queue_dropped, seen.queue_bytes, seen.highest_bytes, seen.held) == (2, 2000, 2000, 2)
    link.run_until(40 * MICROSECOND)  # half of the first
    assert link.read().queue_bytes == 1500
    link.offer(numbered(4, 1000))
    link.run_until(SECOND)
    assert [number for _, number in link.released] == [0, 1, 4]


def test_who_waits_before_egress_finds_the_queue_as_it_is(links: Any):
    """1,000 bytes at 100 Mb/s take 80 us; a fifth packet comes after 120 us, a sixth finds no room."""
    link = links(LinkProperties(rate=1e8, queue_bytes=4000))
    for number in range(4):
        link.wait(numbered(number, 1000))
    link.run_until(120 * MICROSECOND)
    link.wait(numbered(4, 1000))
    assert link.read().queue_bytes == 3500
    link.wait(numbered(5, 1000))
    assert link.read().queue_dropped == 1
    link.run_until(SECOND)
    ends = [80, 160, 240, 320, 400]
    assert link.released == [(end * MICROSECOND, n) for n, end in enumerate(ends)]
    assert link.waited == [
        (since * MICROSECOND, until * MICROSECOND, found, left)
        for since, until, found, left in [(0, 80, 0, 2), (0, 160, 1, 2), (0, 240, 2, 1), (120, 320, 2, 0)]
    ]


def test_the_higher_priority_is_served_first(links: Any):
    """1,000 bytes at 100 Mb/s take 80 us; what is being sent is not interrupted."""
    link = links(LinkProperties(rate=1e8))
    for number, priority in enumerate([0, 0, 3, 7, 3]):
        link.run_until(number * MICROSECOND)
        link.wait(numbered(number, 1000), priority)
    link.run_until(200 * MICROSECOND)
    link.wait(numbered(5, 1000), 5)
    link.run_until(SECOND)
    assert [number for _, number in link.released] == [0, 3, 2, 5, 4, 1]
    assert [time for time, _ in link.released] == [n * 80 * MICROSECOND for n in range(1, 7)]
    assert [found for _, _, found, _ in link.waited] == [0, 0, 0, 1, 0]  # of its own priority
    assert [left for *_, left in link.waited] == [0, 1, 0, 0, 0]


def test_each_priority_has_a_queue_of_its_own(links: Any):
    link = links(LinkProperties(rate=1e8, queue_bytes=3000))
    for number, priority in enumerate([0, 0, 0, 0, 1, 1, 1]):
        link.wait(numbered(number, 1000), priority)
    assert (link.read().queue_dropped, link.read().queue_bytes) == (2, 5000)
    link.run_until(SECOND)
    assert [number for _, number in link.released] == [0, 4, 5, 1, 2]


def test_congestion_is_marked_by_the_queue_that_a_packet_found_before_egress(links: Any):
    link = links(LinkProperties(rate=1e8, ecn_bytes=1000))
    for _ in range(4):
        link.wait(bytes(ETHERNET / ip(1)).ljust(1000, b"-"))
    link.run_until(SECOND)
    assert [IP(data[14:]).tos & 3 for data, _, _ in link.packets] == [1, 1, 3, 3]


def test_jitter_does_not_reorder(links: Any):
    link = links(LinkProperties(delay=1e-3, jitter=5e-3, seed=3))
    for number in range(200):
        link.run_until(number * 10 * MICROSECOND)
        link.offer(numbered(number, 100))
    link.run_until(SECOND)
    assert [number for _, number in link.released] == list(range(200))


def test_two_ports_of_one_seed_lose_different_packets(links: Any):
    seen = []
    for stream in (0, 0, 1):
        link = links(LinkProperties(loss=0.5, seed=7), stream)
        for number in range(100):
            link.offer(numbered(number, 60))
        seen.append([number for _, number in link.released])
    assert seen[0] == seen[1] != seen[2]


def test_switching_on_duplication_changes_no_loss(links: Any):
    kept = []
    for duplication in (0.0, 0.5):
        link = links(LinkProperties(loss=0.3, duplication=duplication, seed=1))
        for number in range(200):
            link.offer(numbered(number, 60))
            link.release()
        kept.append({number for _, number in link.released})
    assert kept[0] == kept[1]


def test_properties_hold_from_when_they_are_set(links: Any):
    link = links(LinkProperties(delay=1e-3))
    link.offer(numbered(0, 100))
    link.set(LinkProperties(delay=2e-3))
    link.offer(numbered(1, 100))
    link.run_until(SECOND)
    assert link.released == [(MILLISECOND, 0), (2 * MILLISECOND, 1)]


def test_packets_do_not_overtake_those_of_a_longer_delay_before(links: Any):
    link = links(LinkProperties(delay=2e-3))
    link.offer(numbered(0, 100))
    link.set(LinkProperties())
    link.offer(numbered(1, 100))
    link.run_until(SECOND)
    assert [number for _, number in link.released] == [0, 1]


@pytest.mark.slow
def test_hundreds_of_megabytes_are_held_and_what_is_too_much_is_counted(links: Any):
    link = links(LinkProperties(delay=1.0))
    count, size = 5000, 60_000
    for number in range(count):
        link.offer(numbered(number, size))
    seen = link.read()
    assert seen.memory_dropped + seen.held == count
    assert 200 << 20 < seen.held * size < 256 << 20
    link.run_until(2 * SECOND)
    assert [number for _, number in link.released] == list(range(seen.held))


def test_a_partial_checksum_goes_along(links: Any):
    link = links(LinkProperties(delay=1e-3, duplication=1.0))
    link.offer(numbered(0, 100), checksum=40, offset=6)
    link.offer(numbered(1, 100), checksum=50, offset=16)
    link.run_until(SECOND)
    assert [(place, offset) for _, place, offset in link.packets] == [(40, 6), (40, 6), (50, 16), (50, 16)]


def test_a_corrupted_packet_has_its_checksum_first(links: Any):
    """The sender's card would have summed up the packet as it was; and nobody is to sum it up again."""
    link = links(LinkProperties(corruption=1.0, duplication=1.0, seed=5))
    whole = bytes(ETHERNET / ip(0))
    place = 14 + 20 + 6
    partial = bytearray(whole)
    partial[place : place + 2] = pseudo_sum(whole)
    link.offer(bytes(partial), checksum=place, offset=6)
    link.run_until(SECOND)
    (first, *told), (second, *told_again) = link.packets
    assert first == second
    assert told == told_again == [None, 6]
    assert bin(int.from_bytes(first, "big") ^ int.from_bytes(whole, "big")).count("1") == 1


def pseudo_sum(frame: bytes) -> bytes:
    """That of a UDP datagram: what a kernel leaves in the place of the checksum."""
    total = sum(struct.unpack(">4H", frame[26:34])) + 17 + int.from_bytes(frame[38:40], "big")
    return ((total & 0xFFFF) + (total >> 16)).to_bytes(2, "big")


# ECN

ETHERNET = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")


def ip(ecn: int) -> Any:
    return IP(src="10.0.0.1", dst="10.0.0.2", tos=0xB8 | ecn, id=7) / UDP(sport=1, dport=2) / Raw(b"x" * 40)


def ip6(ecn: int) -> Any:
    return IPv6(src="fd00::1", dst="fd00::2", tc=0xB8 | ecn) / UDP(sport=1, dport=2) / Raw(b"x" * 40)


def crowded(link: CLink, packet: bytes) -> bytes:
    """Return what comes of a packet that finds 1,000 bytes waiting."""
    link.offer(numbered(0, 1000))
    link.offer(packet)
    link.run_until(link.now + SECOND)
    return link.packets[-1][0]


@pytest.mark.parametrize("build", [ip, ip6])
@pytest.mark.parametrize("tag", [False, True])
@pytest.mark.parametrize("ecn", range(4))
def test_congestion_is_marked_where_it_may_be(links: Any, build: Any, tag: bool, ecn: int):
    link = links(LinkProperties(rate=1e8, ecn_bytes=999))
    head = ETHERNET / Dot1Q(vlan=5) if tag else ETHERNET
    marked = ecn in (1, 2)
    assert crowded(link, bytes(head / build(ecn))) == bytes(head / build(3 if marked else ecn))
    assert link.read().marked == marked


def test_below_the_threshold_nothing_is_marked(links: Any):
    link = links(LinkProperties(rate=1e8, ecn_bytes=1000))
    packet = bytes(ETHERNET / ip(1))
    assert crowded(link, packet) == packet


@given(
    # Header checksums run over the end of 16 bits somewhere in here.
    source=st.integers(0, 2**32 - 1),
    ecn=st.sampled_from([1, 2]),
    identification=st.integers(0, 2**16 - 1),
)
def test_the_header_s_checksum_stays_right(source: int, ecn: int, identification: int):
    link = CLink(LinkProperties(rate=1e8, ecn_bytes=0))
    address = ".".join(map(str, struct.pack(">I", source)))
    packet = IP(src=address, dst="10.0.0.2", tos=ecn, id=identification) / Raw(b"payload")
    try:
        expected = IP(bytes(packet))
        expected.tos = 3
        del expected.chksum
        assert crowded(link, bytes(ETHERNET / packet)) == bytes(ETHERNET / expected)
    finally:
        link.close()


@pytest.mark.parametrize("length", [0, 1, 13, 14, 20, 33])
def test_what_is_too_short_for_ip_is_left_alone(links: Any, length: int):
    link = links(LinkProperties(rate=1e8, ecn_bytes=0))
    packet = bytes(ETHERNET / ip(1))[:length]
    assert crowded(link, packet) == packet


def test_rates_come_out_as_asked(links: Any):
    for rate in (1e6, 123e6, 1e10, 4e11):
        link = links(replace(LinkProperties(), rate=rate))
        for number in range(1000):
            link.offer(numbered(number, 1250))
        link.run_until(2**60)
        assert link.released[-1][0] == pytest.approx(1e7 / rate * SECOND, rel=1e-6)
