"""Frames whose bits flip: with their UDP checksum, as a network card would have written it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

from fanin.simulator.corruption import flip_bits

ROOM = 192


def flip(packets: list[bytes], draws: list[float], room: int = ROOM) -> list[bytes]:
    """The packets with a bit flipped in each, from a store's rows: behind a packet stands what an earlier one left."""
    rows = np.full((len(packets), room), 0xEE, np.uint8)
    for row, packet in zip(rows, packets, strict=True):
        row[: len(packet)] = np.frombuffer(packet, np.uint8)
    lengths = np.array([len(packet) for packet in packets])
    flipped = flip_bits(rows, lengths, np.array(draws))
    assert (flipped[np.arange(room) >= lengths[:, np.newaxis]] == 0xEE).all()
    return [bytes(row[:length]) for row, length in zip(flipped, lengths, strict=True)]


def without_bit(packet: bytes, draw: float) -> bytes:
    bit = int(draw * 8 * len(packet))
    changed = bytearray(packet)
    changed[bit // 8] ^= 0x80 >> bit % 8
    return bytes(changed)


def udp(data: bytes, checksum: int | None) -> bytes:
    return bytes(
        Ether(dst="02:00:00:00:00:01")
        / IP(dst="10.0.0.2")
        / UDP(sport=1, dport=2, chksum=checksum)
        / Raw(data)
    )


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.binary(max_size=100), st.floats(0, 1, exclude_max=True)), min_size=1, max_size=5)
)
def test_the_checksum_is_that_of_the_packet_as_it_was(cases: list[tuple[bytes, float]]) -> None:
    found = flip([udp(data, 0) for data, _ in cases], [draw for _, draw in cases])
    assert found == [without_bit(udp(data, None), draw) for data, draw in cases]


@pytest.mark.parametrize("room", [45, 46, 47])
def test_rows_may_be_of_any_length(room: int) -> None:
    """That of an acknowledgement with a bitmap, say, which may be odd."""
    assert flip([udp(b"abc", 0)], [0.5], room) == [without_bit(udp(b"abc", None), 0.5)]


def test_a_checksum_of_0_is_written_as_ffff() -> None:
    packet = bytearray(udp(bytes(2), None))
    packet[42:44] = packet[40:42]  # the sum grows by what the checksum was
    assert without_bit(flip([udp(bytes(packet[42:44]), 0)], [0.0])[0], 0.0)[40:42] == b"\xff\xff"


@pytest.mark.parametrize(
    "packet",
    [
        udp(b"1234", None),
        bytes(Ether() / IP(dst="10.0.0.2", flags="MF") / UDP(chksum=0) / Raw(b"12345678")),
        bytes(Ether() / IP(dst="10.0.0.2", frag=1) / Raw(bytes(16))),
        bytes(Ether() / IP(dst="10.0.0.2") / TCP(chksum=0)),
        bytes(Ether() / ARP()),
        b"\0",
    ],
)
def test_other_frames_are_left_as_they_are_but_for_the_bit(packet: bytes) -> None:
    assert flip([packet], [0.99]) == [without_bit(packet, 0.99)]
