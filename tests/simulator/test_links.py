"""Links in virtual time: when packets arrive, which are lost, and how many are marked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from fanin.p4switch.engine.links import LinkProperties as SwitchLink
from fanin.simulator import VirtualNetwork
from fanin.simulator.corruption import complete_checksums
from fanin.simulator.segments import segments
from fanin.simulator.units import SECOND
from fanin.topologies.link import ETHERNET_OVERHEAD, Burst, LinkModel, LinkProperties
from fanin.topologies.shapes import leaf_spine
from tests.p4switch.runtime.link_model import Packet, model
from tests.simulator.one_switch import FEED, Arrived, OneSwitch
from tests.simulator.two_leaves import Frame, Sender

GIGABIT = 10**9
BYTE = 8 * SECOND // GIGABIT  # picoseconds


def ipv4_frame(length: int = 100, ecn: int = 0) -> NDArray[np.uint8]:
    header = bytearray(bytes.fromhex("45000054 12344000 40110000 0a000001 0a000002"))
    header[1] = ecn
    checksum = -sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, 20, 2)) % 0xFFFF
    header[10:12] = checksum.to_bytes(2, "big")
    frame = bytes(12) + b"\x08\x00" + bytes(header)
    return np.frombuffer(frame.ljust(length, b"\0"), np.uint8)


class Nothing:
    """A switch that sends nothing."""

    def process(self, port: int, packet: bytes, now: int) -> list[tuple[int, bytes]]:  # noqa: ARG002
        return []


class OneLink:
    """A link of 1 Gb/s (unless told) from a switch, and what is sent over it."""

    def __init__(self, model: LinkModel, rate: int | None = GIGABIT, seed: int = 1) -> None:
        self._switch = OneSwitch([rate], [model], seed=seed)
        self.network = self._switch.network

    def send(self, times: list[int], length: int = 100, ecn: int = 0) -> Arrived:
        """Packets of `length` bytes; what arrives, in order of arrival."""
        frames = np.tile(ipv4_frame(length, ecn), (len(times), 1))
        frames[:, 0], frames[:, 1] = np.divmod(np.arange(len(times)) % 65536, 256)
        arrived = self._switch.send(times, list(frames))
        assert self.network.in_flight == 0
        return arrived

    def cut(self, begin: int, end: int) -> None:
        self.network.cut("leaf1", "h2", (begin + FEED) / SECOND, (end + FEED) / SECOND)

    def numbers(self, arrived: Arrived) -> list[int]:
        """Which of the packets of a `send` they are."""
        rows = arrived.rows.astype(int)
        return (rows[:, 0] * 256 + rows[:, 1]).tolist()

    def arrivals(self, times: list[int], length: int = 100) -> list[int]:
        return self.send(times, length).times.tolist()


def test_a_packet_takes_its_time_on_the_wire_and_the_delay() -> None:
    link = OneLink(LinkModel(delay=5e-6))
    assert link.arrivals([0]) == [(100 + ETHERNET_OVERHEAD) * BYTE + 5_000_000]


def test_packets_wait_for_one_another() -> None:
    link = OneLink(LinkModel(delay=1e-6))
    each = (100 + ETHERNET_OVERHEAD) * BYTE
    assert link.arrivals([0, 0, 0, each]) == [n * each + 1_000_000 for n in (1, 2, 3, 4)]


def test_a_queue_that_takes_longer_to_send_than_can_be_counted_has_no_end() -> None:
    link = OneLink(LinkModel(delay=1e-6, queue_bytes=10**15, ecn_bytes=10**14), rate=10_000)
    assert len(link.arrivals([0, 0])) == 2


def test_an_unlimited_link_has_delay_only() -> None:
    link = OneLink(LinkModel(delay=1e-6), rate=None)
    assert link.arrivals([0, 0, 7]) == [1_000_000, 1_000_000, 1_000_007]


def test_a_rate_that_does_not_divide_a_picosecond_is_kept() -> None:
    link = OneLink(LinkModel(delay=1e-6), rate=3 * 10**11)
    last = link.arrivals([0] * 3000)[-1] - 1_000_000
    assert last == pytest.approx(3000 * 124 * 8 / 3e11 * SECOND, rel=1e-3)


def test_what_finds_no_room_is_dropped() -> None:
    link = OneLink(LinkModel(delay=1e-6, queue_bytes=3 * 124))
    assert link.numbers(link.send([0] * 10 + [124 * BYTE])) == [0, 1, 2, 10], "there is room again"
    assert link.network.faults["queue drop"] == 7


def test_a_host_waits_where_a_switch_would_drop() -> None:
    topology = leaf_spine(0, 1, 2, rate=GIGABIT, properties=LinkProperties(queue_bytes=200))
    sender = Sender([Frame(0, 1, 2, 100)] * 10)
    network = VirtualNetwork(topology, {"leaf1": Nothing()}, {"h1": sender})
    network.wake("h1", 0.0)
    network.run()
    assert network.hops == 10


@pytest.mark.parametrize(("ecn", "marked"), [(0, 0), (1, 6), (2, 6), (3, 0)])
def test_what_finds_a_long_queue_is_marked_if_it_can_be(ecn: int, marked: int) -> None:
    link = OneLink(LinkModel(ecn_bytes=3 * 124))
    arrived = link.send([0] * 10, ecn=ecn)
    rows = arrived.rows
    assert link.network.faults["ECN mark"] == marked
    assert np.count_nonzero(rows[:, 15] == 3) == (10 if ecn == 3 else marked)
    words = rows[:, 14:34].copy().view(">u2").sum(axis=1, dtype=np.int64)
    assert ((words & 0xFFFF) + (words >> 16) == 0xFFFF).all(), "the header checksum stays right"


def test_between_two_lengths_of_the_queue_packets_are_marked_more_and_more_often() -> None:
    share, packets = 0.5, 4000
    model = LinkModel(
        overhead=0, ecn_bytes=1000 * 100, ecn_max_bytes=3000 * 100, ecn_probability=share, delay=1e-6
    )
    link = OneLink(model)
    arrived = link.send([0] * packets, ecn=1)  # the n-th finds n before it
    marked = arrived.rows[:, 15] == 3
    assert not marked[:1001].any()
    assert marked[3001:].all()
    for first in range(1000, 3000, 500):
        expected = share * (first + 250 - 1000) / 2000
        assert marked[first : first + 500].mean() == pytest.approx(expected, abs=0.07)
    assert link.network.links.counts.marks[0] == link.network.faults["ECN mark"] == marked.sum()


def test_jitter_delays_each_packet_by_itself_and_lets_none_overtake() -> None:
    gap = 10**6
    model = LinkModel(delay=1e-6, jitter=5e-6)
    link, steady = OneLink(model, rate=None), OneLink(LinkModel(delay=1e-6), rate=None)
    times = list(range(0, 1000 * gap, gap))
    arrived = link.send(times)
    assert link.numbers(arrived) == [*range(1000)]
    late = arrived.times - steady.send(times).times
    assert late.min() >= 0
    assert late.max() < 5_000_000
    # A packet waits for those before it: the mean is above that of one by itself.
    assert 2_500_000 < late.mean() < 5_000_000
    assert len(np.unique(late)) > 300


def test_jitter_far_apart_is_uniform() -> None:
    link = OneLink(LinkModel(delay=1e-6, jitter=5e-6), rate=None)
    times = np.arange(0, 2000 * 10**7, 10**7)
    late = link.send(times.tolist()).times - times - 1_000_000
    counts, _ = np.histogram(late, 5, (0, 5_000_000))
    assert counts.sum() == 2000
    assert (np.abs(counts - 400) < 80).all()


def test_what_is_reordered_overtakes_in_spite_of_jitter() -> None:
    model = LinkModel(jitter=1e-6, reordering=0.5, displacement=1e-3)
    link = OneLink(model, rate=None)
    arrived = link.send(list(range(100)))
    assert link.numbers(arrived) != sorted(link.numbers(arrived))


def test_loss_is_as_frequent_as_it_says() -> None:
    link = OneLink(LinkModel(loss=0.01), rate=None)
    arrived = len(link.arrivals([0] * 20_000))
    assert 0.008 < 1 - arrived / 20_000 < 0.012
    assert arrived == 20_000 - link.network.faults["loss"]


def test_a_corrupted_frame_arrives_with_one_bit_flipped() -> None:
    link = OneLink(LinkModel(corruption=0.3), rate=None)
    count, length = 20_000, 40  # too short for a UDP checksum
    arrived = link.send([0] * count, length)
    sent = np.tile(ipv4_frame(length), (count, 1))
    sent[:, 0], sent[:, 1] = np.divmod(np.arange(count), 256)
    flipped = np.unpackbits(arrived.rows[:, :length] ^ sent, axis=1)
    corrupted = flipped.any(axis=1)
    assert corrupted.sum() == link.network.faults["corruption"] == pytest.approx(0.3 * count, rel=0.05)
    assert (flipped.sum(axis=1) <= 1).all()
    by_bit = flipped.sum(axis=0)
    expected = corrupted.sum() / (8 * length)
    assert np.abs(by_bit - expected).max() < 5 * np.sqrt(expected)


def test_a_corrupted_datagram_has_the_checksum_that_a_network_card_would_have_written() -> None:
    udp = bytes(Ether() / IP(dst="10.0.0.2") / UDP(sport=1, dport=2, chksum=0) / bytes(range(59)))
    frame = np.frombuffer(udp, np.uint8)[np.newaxis].copy()
    arrived = OneSwitch([None], [LinkModel(corruption=1.0)]).send([0] * 500, [frame[0]] * 500)
    complete_checksums(frame, np.array([len(udp)]))
    flipped = np.unpackbits(arrived.rows[:, : len(udp)] ^ frame, axis=1)
    assert (flipped.sum(axis=1) == 1).all()
    assert (flipped.sum(axis=0) > 0).sum() > 250


def test_the_fate_of_a_frame_is_that_which_a_live_switch_draws() -> None:
    """Numbers of purposes, the bit's place; runtime/ports/link.c follows tests/p4switch/runtime/link_model.py."""
    link, count, length = OneLink(LinkModel(corruption=0.3), rate=None), 1000, 40
    arrived = link.send([0] * count, length)
    sent = np.tile(ipv4_frame(length), (count, 1))
    sent[:, 0], sent[:, 1] = np.divmod(np.arange(count), 256)
    flipped = np.unpackbits(arrived.rows[:, :length] ^ sent, axis=1)
    properties = SwitchLink(corruption=0.3, seed=1)
    fate = model(properties, 0, [Packet(0, length)] * count)
    assert fate.corrupted == {int(n): int(bit) for n, bit in zip(*np.nonzero(flipped), strict=True)}


@pytest.mark.few(0)
def test_bursts_last_as_long_as_they_say() -> None:
    link = OneLink(LinkModel(burst=Burst(begin=0.01, end=0.2)), rate=None)
    count = 50_000
    lost = np.ones(count, np.bool_)
    lost[link.numbers(link.send([0] * count))] = False
    lengths = [part.stop - part.start for part in segments(lost) if lost[part.start]]
    assert np.mean(lengths) == pytest.approx(5, rel=0.15)
    assert np.mean(lost) == pytest.approx(0.01 / 0.21, rel=0.15)
    assert LinkModel(burst=Burst(begin=0.01, end=0.2)).mean_loss == pytest.approx(0.01 / 0.21)


def test_a_copy_of_a_packet_comes_later_and_is_the_same() -> None:
    link = OneLink(LinkModel(duplication=1.0, displacement=1e-3))
    arrived = link.send([0])
    assert len(arrived.times) == 2
    assert 0 < arrived.times[1] - arrived.times[0] < SECOND // 1000
    first, second = arrived.rows
    assert (first == second).all()


def test_a_reordered_packet_is_overtaken() -> None:
    link = OneLink(LinkModel(reordering=0.5, displacement=1e-3), rate=None)
    arrived = link.send(list(range(100)))
    assert link.numbers(arrived) != sorted(link.numbers(arrived))
    assert sorted(link.numbers(arrived)) == list(range(100))


def test_one_kind_of_fault_does_not_move_another() -> None:
    def lost(model: LinkModel) -> set[int]:
        link = OneLink(model)
        arrived = link.send([0] * 500)
        return set(range(500)) - set(link.numbers(arrived))

    assert lost(LinkModel(loss=0.1)) == lost(
        LinkModel(loss=0.1, duplication=0.3, reordering=0.2, displacement=1e-3)
    )


def test_draws_are_what_they_were() -> None:
    """On every machine, and in every version: else a seed would no longer replay its scenario."""
    link = OneLink(LinkModel(loss=0.5), seed=7)
    assert link.numbers(link.send([0] * 20)) == LEFT


LEFT = [0, 3, 4, 7, 8, 9, 13, 14, 15, 17, 19]


def test_a_link_without_a_delay_has_one_in_virtual_time() -> None:
    assert OneLink(LinkModel(), rate=None).arrivals([0]) == [1_000_000]
    assert OneLink(LinkModel(delay=0), rate=None).arrivals([0]) == [1_000_000]


def test_without_overhead_a_frame_counts_its_own_bytes() -> None:
    assert OneLink(LinkModel(overhead=0)).arrivals([0]) == [100 * BYTE + 1_000_000]


def one_by_one(
    sent: list[tuple[int, int, int]], rates: list[int | None], models: list[LinkModel]
) -> dict[int, int]:
    """(link, time, length) of packets in their order: the time at which each arrives, by its number."""
    free_at = [0] * len(rates)
    arrivals = {}
    for number, (link, time, length) in sorted(enumerate(sent), key=lambda item: item[1][1]):
        rate, model = rates[link], models[link]
        duration = (
            0 if rate is None else (length + ETHERNET_OVERHEAD) * round(8 * SECOND * 2**20 / rate) >> 20
        )
        begin = max(time, free_at[link])
        if model.queue_bytes is not None and rate is not None:
            room = model.queue_bytes * round(8 * SECOND * 2**20 / rate) >> 20
            if begin - time + duration > room:
                continue
        free_at[link] = begin + duration
        arrivals[number] = begin + duration + round(model.virtual_delay * SECOND)
    return arrivals


packets_on_links = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 20_000_000), st.integers(60, 1514)), min_size=1, max_size=60
)


@given(sent=packets_on_links)
def test_windows_give_what_packets_one_by_one_do(sent: list[tuple[int, int, int]]) -> None:
    rates = [None, 10**8, 10**9, 4 * 10**11]
    models = [LinkModel(), LinkModel(queue_bytes=4000), LinkModel(queue_bytes=2000), LinkModel(delay=3e-6)]
    frames = [np.full(length, number, np.uint8) for number, (_, _, length) in enumerate(sent)]
    links, times, _ = zip(*sent, strict=True)
    arrived = OneSwitch(rates, models).send(times, frames, links)
    found = dict(zip(arrived.rows[:, 0].tolist(), arrived.times.tolist(), strict=True))
    assert found == one_by_one(sent, rates, models)
    assert arrived.links.tolist() == [sent[number][0] for number in arrived.rows[:, 0].tolist()]


def test_a_link_counts_what_it_did_to_packets() -> None:
    link = OneLink(LinkModel(delay=1e-6, overhead=0, queue_bytes=250, ecn_bytes=50))
    arrived = link.send([0, 0, 0, 500 * BYTE], ecn=1)
    counts = link.network.links.counts
    assert len(arrived.times) == 3
    assert counts.busy[0] == 3 * 100 * BYTE
    assert counts.waited[0] == 100 * BYTE
    assert counts.longest_queue[0] == 200
    assert (counts.queue_drops[0], counts.marks[0], counts.lost[0]) == (1, 1, 0)


def test_a_link_counts_what_it_lost() -> None:
    link = OneLink(LinkModel(loss=0.2, burst=Burst(begin=0.1, end=0.5)))
    arrived = link.send(list(range(0, 1000 * BYTE, BYTE)))
    assert 0 < len(arrived.times) == 1000 - int(link.network.links.counts.lost[0])


def test_what_is_on_a_link_while_it_is_down_is_lost() -> None:
    each = (100 + ETHERNET_OVERHEAD) * BYTE
    link = OneLink(LinkModel(delay=1e-6))
    link.cut(3 * each, 5 * each)
    # One has arrived, and one begins to be sent when it is up again; three behind one another are on it in between.
    arrived = link.send([0, 2 * each, 3 * each, 4 * each, 5 * each])
    assert link.numbers(arrived) == [0, 4]
    assert (link.network.links.counts.lost[0], link.network.faults["loss"]) == (3, 3)


def test_what_waits_longer_than_a_link_is_down_arrives() -> None:
    each = (100 + ETHERNET_OVERHEAD) * BYTE
    link = OneLink(LinkModel(delay=1e-6))
    link.cut(0, each + 1)
    assert link.numbers(link.send([0] * 4 + [5 * each])) == [2, 3, 4]


def test_a_link_that_is_down_and_jitters_has_nothing_to_delay() -> None:
    link = OneLink(LinkModel(delay=1e-6, jitter=1e-6))
    link.cut(0, SECOND)
    assert link.arrivals([0, 0]) == []
