"""Superframes are split and joined exactly: what is joined, split again, is what went in."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q
from scapy.packet import Packet, Raw

from fanin.p4switch.codegen.names import RUNTIME
from tests.p4switch.segments import ETHERNET, TCP_CHECKSUM, UDP_CHECKSUM, Segment, partial, payload
from tests.sizes import sized

NEEDS_CHECKSUM = 1
TCPV4, TCPV6, UDP_L4, ECN = 1, 4, 5, 0x80


@dataclass(frozen=True)
class Frame:
    """A frame with its virtio header."""

    data: bytes
    flags: int = 0
    gso_type: int = 0
    header_length: int = 0
    gso_size: int = 0
    checksum_start: int = 0
    checksum_offset: int = 0

    @property
    def virtio(self) -> bytes:
        numbers = (self.header_length, self.gso_size, self.checksum_start, self.checksum_offset)
        return struct.pack("=BBHHHH", self.flags, self.gso_type, *numbers)


class Harness:
    """The C functions over whole sequences."""

    def __init__(self, library: Path) -> None:
        self.library = ctypes.CDLL(str(library))
        self.library.split_all.restype = self.library.join_all.restype = ctypes.c_uint64
        self.room = ctypes.create_string_buffer(1 << 24)

    def split(self, frame: Frame) -> list[Segment]:
        used = self.library.split_all(frame.data, len(frame.data), frame.virtio, self.room)
        segments, at = [], 0
        while at < used:
            length, place = struct.unpack_from("=Ii", self.room, at)
            segments.append(Segment(self.room[at + 8 : at + 8 + length], place))
            at += 8 + length
        return segments

    def join(self, segments: list[Segment], checksum_offset: int, *, shared: bool = False) -> list[Frame]:
        packed = b"".join(
            struct.pack("=Ii", len(s.data), -1 if s.checksum is None else s.checksum) + s.data
            for s in segments
        )
        offset = ctypes.c_uint16(checksum_offset)
        used = self.library.join_all(packed, len(segments), offset, ctypes.c_bool(shared), self.room)
        frames, at = [], 0
        while at < used:
            flags, kind, *numbers, length = struct.unpack_from("=BBHHHHI", self.room, at)
            frames.append(Frame(self.room[at + 14 : at + 14 + length], flags, kind, *numbers))
            at += 14 + length
        return frames


@pytest.fixture(scope="module")
def offload(tmp_path_factory: pytest.TempPathFactory) -> Harness:
    library = tmp_path_factory.mktemp("offload") / "offload.so"
    sources = [str(Path(__file__).with_name("offload_harness.c")), str(RUNTIME / "ports" / "offload.c")]
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    subprocess.run(["cc", *flags, "-I", str(RUNTIME), "-o", str(library), *sources], check=True)
    return Harness(library)


def superframe(packet: Packet, gso_type: int, size: int) -> Frame:
    """A packet longer than any link takes, as a kernel makes it from one send."""
    whole = partial(packet)
    offset = TCP_CHECKSUM if gso_type & 7 in (TCPV4, TCPV6) else UDP_CHECKSUM
    assert whole.checksum is not None
    return Frame(whole.data, NEEDS_CHECKSUM, gso_type, 0, size, whole.checksum - offset, offset)


@pytest.mark.slow
@settings(max_examples=sized(20, 60))
@given(
    length=st.integers(1, 65000), size=st.integers(600, 1472), first=st.integers(0, 65535), vlan=st.booleans()
)
def test_split_udp(offload: Harness, length: int, size: int, first: int, vlan: bool) -> None:
    """Each datagram has its own length, the next identification, and its own partial checksum."""
    ether = ETHERNET / Dot1Q(vlan=5) if vlan else ETHERNET
    head = ether / IP(src="10.0.0.1", dst="10.0.0.2", id=first, flags="DF")
    data = bytes(payload(length))
    frame = superframe(head / UDP(sport=1, dport=2) / Raw(data), UDP_L4, size)
    wanted = []
    for number, at in enumerate(range(0, length, size)):
        packet = head / UDP(sport=1, dport=2) / Raw(data[at : at + size])
        packet[IP].id = (first + number) & 0xFFFF
        wanted.append(partial(packet))
    assert offload.split(frame) == wanted


@pytest.mark.slow
@settings(max_examples=sized(20, 60))
@given(
    length=st.integers(1, 65000),
    size=st.integers(600, 1448),
    sequence=st.integers(0, 2**32 - 1),
    flags=st.sampled_from(["A", "PA", "FA", "FPA", "EA"]),
    congestion=st.booleans(),
)
def test_split_tcp(
    offload: Harness, length: int, size: int, sequence: int, flags: str, congestion: bool
) -> None:
    """Sequence numbers go on; PSH and FIN are on the last segment, CWR on the first."""
    options = [("Timestamp", (123, 456)), ("NOP", None), ("NOP", None)]
    ip = ETHERNET / IP(src="10.0.0.1", dst="10.0.0.2", id=65535)
    data = bytes(payload(length))

    def segment(number: int, at: int, bits: str) -> Packet:
        tcp = TCP(
            sport=1, dport=2, seq=(sequence + at) & 0xFFFFFFFF, ack=9, flags=bits, window=77, options=options
        )
        packet = ip / tcp / Raw(data[at:] if number < 0 else data[at : at + size])
        packet[IP].id = (65535 + max(0, number)) & 0xFFFF
        return packet

    kind = TCPV4 | (ECN if congestion else 0)
    frame = superframe(segment(-1, 0, flags + ("C" if congestion else "")), kind, size)
    wanted = []
    for number, at in enumerate(range(0, length, size)):
        bits = flags if at + size >= length else "".join(f for f in flags if f not in "FP")
        wanted.append(partial(segment(number, at, bits + ("C" if congestion and at == 0 else ""))))
    assert offload.split(frame) == wanted


def test_split_ipv6(offload: Harness) -> None:
    head = ETHERNET / IPv6(src="fe80::1", dst="fe80::2")
    data = bytes(payload(5000))
    for transport, kind in ((UDP(sport=1, dport=2), UDP_L4), (TCP(sport=1, dport=2, flags="A"), TCPV6)):
        wanted = []
        for at in range(0, 5000, 1200):
            packet = head / transport.copy() / Raw(data[at : at + 1200])
            if kind == TCPV6:
                packet[TCP].seq = at
            wanted.append(partial(packet))
        assert offload.split(superframe(head / transport / Raw(data), kind, 1200)) == wanted


@pytest.mark.parametrize(
    "damage",
    [
        {"gso_type": 3},
        {"gso_size": 0},
        {"flags": 0},
        {"checksum_start": 60000},
        {"checksum_start": 14},
        {"data": b"short"},
    ],
)
def test_what_cannot_be_split(offload: Harness, damage: dict[str, object]) -> None:
    """Unknown kinds and descriptions that point outside the frame give no segments."""
    good = superframe(ETHERNET / IP() / UDP() / payload(3000), UDP_L4, 1000)
    assert offload.split(Frame(**{**good.__dict__, **damage})) == []  # type: ignore[arg-type]


def test_a_tcp_header_that_ends_before_its_fixed_part(offload: Harness) -> None:
    """Its segments would be shorter than the fields that are written into each."""
    good = superframe(ETHERNET / IP() / TCP(flags="A") / payload(3000), TCPV4, 1)
    short = bytearray(good.data)
    short[good.checksum_start + 12] = 1 << 4
    assert offload.split(replace(good, data=bytes(short), checksum_offset=0)) == []


@settings(max_examples=sized(20, 60))
@given(length=st.integers(1001, 64000), size=st.integers(600, 1000), tcp=st.booleans())
def test_join_undoes_split(offload: Harness, length: int, size: int, tcp: bool) -> None:
    transport = TCP(flags="PA", seq=5) if tcp else UDP()
    frame = superframe(
        ETHERNET / IP(src="1.2.3.4", dst="5.6.7.8", id=77) / transport / payload(length),
        TCPV4 if tcp else UDP_L4,
        size,
    )
    segments = offload.split(frame)
    joined = offload.join(segments, frame.checksum_offset)
    assert joined == [Frame(**{**frame.__dict__, "header_length": 54 if tcp else 42})]


@st.composite
def packets(draw: st.DrawFn) -> list[Packet]:
    """Streams that could be joined in part: same or other sizes, ports, identifications, flags."""
    sizes = st.sampled_from([100, 100, 100, 99, 101, 1])
    made: list[Packet] = []
    number, sequence = 100, 1000
    for _ in range(draw(st.integers(1, 12))):
        size = draw(sizes)
        ip = IP(src="10.0.0.1", dst=draw(st.sampled_from(["10.0.0.2"] * 5 + ["10.0.0.3"])), id=number)
        ip.tos = draw(st.sampled_from([0] * 6 + [4]))
        number += draw(st.sampled_from([1, 1, 1, 1, 0, 2]))
        if (
            draw(st.booleans())
            if not made
            else made[0].haslayer(TCP) == draw(st.sampled_from([True] * 6 + [False]))
        ):
            flags = draw(st.sampled_from(["A"] * 6 + ["PA", "FA", "S", "R", "UA"]))
            made.append(ETHERNET / ip / TCP(seq=sequence, flags=flags) / payload(size))
            sequence += draw(st.sampled_from([size, size, size, 100]))
        else:
            made.append(ETHERNET / ip / UDP(sport=draw(st.sampled_from([53] * 5 + [54]))) / payload(size))
    return made


@pytest.mark.slow
@settings(max_examples=sized(133, 400))
@given(packets())
def test_joined_and_split_again(offload: Harness, sent: list[Packet]) -> None:
    """Whatever is joined: splitting it gives the packets that went in, byte for byte and in order.

    With payloads that another port's frames hold it is the same.
    """
    segments = [partial(p) for p in sent]
    offset = TCP_CHECKSUM if sent[0].haslayer(TCP) else UDP_CHECKSUM
    segments = [s for s, p in zip(segments, sent, strict=True) if p.haslayer(TCP) == sent[0].haslayer(TCP)]
    joined = offload.join(segments, offset)
    assert offload.join(segments, offset, shared=True) == joined
    assert split_again(offload, joined) == segments


@pytest.mark.parametrize("place", range(42))
def test_a_difference_in_any_byte_of_the_headers_stays(offload: Harness, place: int) -> None:
    """The header checksum of a packet is wrong then, if it was right before: it leaves as it came."""
    segments = [partial(ETHERNET / IP(id=n, flags="DF") / UDP() / payload(300)) for n in range(5)]
    data = bytearray(segments[2].data)
    data[place] ^= 1
    segments[2] = Segment(bytes(data), segments[2].checksum)
    joined = offload.join(segments, UDP_CHECKSUM)
    assert len(joined) == 3
    assert split_again(offload, joined) == segments


def split_again(offload: Harness, joined: list[Frame]) -> list[Segment]:
    """The segments of superframes, and the other frames as they are."""
    arrived: list[Segment] = []
    for frame in joined:
        if frame.gso_type:
            arrived += offload.split(frame)
        else:
            assert frame.flags == NEEDS_CHECKSUM
            arrived.append(Segment(frame.data, frame.checksum_start + frame.checksum_offset))
    return arrived


def test_consecutive_datagrams_become_one_frame(offload: Harness) -> None:
    made = [partial(ETHERNET / IP(id=n) / UDP() / payload(1000)) for n in range(60)]
    [frame] = offload.join(made, UDP_CHECKSUM)
    assert (frame.gso_type, frame.gso_size, len(frame.data)) == (UDP_L4, 1000, 42 + 60000)
    made = [partial(ETHERNET / IP(id=n) / UDP() / payload(100)) for n in range(130)]
    assert [len(f.data) for f in offload.join(made, UDP_CHECKSUM)] == [42 + 12800, 42 + 200]
    made = [partial(ETHERNET / IP(id=n) / UDP() / payload(1400)) for n in range(50)]
    assert [len(f.data) for f in offload.join(made, UDP_CHECKSUM)] == [42 + 46 * 1400, 42 + 4 * 1400]


def test_datagrams_without_checksum(offload: Harness) -> None:
    """They are joined too (the kernel then adds checksums), but not with those that have one."""
    made = [Segment(bytes(ETHERNET / IP(id=n) / UDP(chksum=0) / payload(500)), None) for n in range(3)]
    [frame] = offload.join(made, UDP_CHECKSUM)
    assert (frame.flags, frame.gso_type, frame.gso_size) == (NEEDS_CHECKSUM, UDP_L4, 500)
    wanted = [partial(ETHERNET / IP(id=n) / UDP() / payload(500)) for n in range(3)]
    assert offload.split(frame) == wanted
    assert offload.join(made[:1], UDP_CHECKSUM) == [Frame(made[0].data)]
    assert len(offload.join([made[0], wanted[1]], UDP_CHECKSUM)) == 2


def test_complete_checksums_are_left_alone(offload: Harness) -> None:
    """A packet with a complete checksum never becomes part of a superframe, whose checksums the kernel would make."""
    made = [Segment(bytes(ETHERNET / IP(id=n) / UDP() / payload(500)), None) for n in range(3)]
    assert offload.join(made, UDP_CHECKSUM) == [Frame(s.data) for s in made]
