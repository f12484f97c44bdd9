"""Random packets and frames: any length up to the maximum, and virtio headers that do not fit what follows them."""

from __future__ import annotations

import random
import struct

from fanin.p4switch.bmv2json.program import LONGEST_PACKET

VIRTIO = struct.Struct("=BBHHHH")  # flags, gso_type, hdr_len, gso_size, csum_start, csum_offset
NONE, TCPV4, TCPV6, UDP_L4, ECN = 0, 1, 4, 5, 0x80
MAX_SEGMENTS = 2000  # in a frame: some programs take a tenth of a millisecond per segment
VLAN, IPV4, IPV6 = b"\x81\x00\x00\x05", b"\x08\x00", b"\x86\xdd"


def random_packet(r: random.Random) -> bytes:
    """Draw a packet, mostly short and of repeated bytes, so that overlapping headers and matching keys are frequent."""
    length = r.choice([r.randrange(20), r.randrange(200), r.randrange(200), r.randrange(1600)])
    if r.random() < 0.05:
        length = r.choice([r.randrange(LONGEST_PACKET + 1), LONGEST_PACKET - r.randrange(64), LONGEST_PACKET])
    fill = r.choice([b"\x00", b"\xff", b"\x01", r.randbytes(1)])
    packet = bytearray(fill * length if r.random() < 0.4 else r.randbytes(length))
    for _ in range(r.randrange(6)):
        if packet:
            packet[r.randrange(min(len(packet), 64))] = r.choice([0, 1, 5, 0x45, 255])
    return bytes(packet)


def random_frame(r: random.Random, longest: int) -> bytes:
    """Draw a virtio header and a frame, mostly a superframe, whose payload has at most `longest` bytes."""
    if r.random() < 0.2:
        frame, network, kind = random_packet(r)[: LONGEST_PACKET - VIRTIO.size], 14, NONE
        transport = network + 20
    else:
        frame, network, transport, kind = _superframe(r, longest)
    fields = [1, kind, transport + 8, r.choice([25, 500, 1000, 1400]), transport, 6 if kind == UDP_L4 else 16]
    lies = [
        [0, r.randrange(256)],
        [NONE, TCPV4, TCPV6, UDP_L4, TCPV4 | ECN, r.randrange(256)],
        [0, 65535, r.randrange(1 << 16)],
        [0, 1, 65535, r.randrange(1 << 16)],
        [0, network, network + 20, len(frame), max(0, len(frame) - 2), r.randrange(1 << 16)],
        [0, 2, 6, 16, 50, 65535, r.randrange(1 << 16)],
    ]
    for place in r.sample(range(len(fields)), r.choice([0, 0, 1, 1, 2, 6])):
        fields[place] = r.choice(lies[place])
    frame = frame[: transport + 60 + MAX_SEGMENTS * max(1, fields[3])]
    return VIRTIO.pack(fields[0], fields[1], *(min(field, 65535) for field in fields[2:])) + frame


def _superframe(r: random.Random, longest: int) -> tuple[bytes, int, int, int]:
    """Draw Ethernet, tags, IP and UDP or TCP; return also the offsets of its IP and transport headers, and its kind."""
    tcp, ipv6 = r.random() < 0.5, r.random() < 0.25
    most = (512 - 14 - 20 - 20) // 4  # roughly the number of tags that there is room for
    tags = r.choice([0, 0, 0, 1, 2, 40, r.randrange(most), most - 8 + r.randrange(17)])
    ethernet = r.randbytes(12) + VLAN * tags + (IPV6 if ipv6 else IPV4)
    network = len(ethernet)
    options = r.choice([0, 0, 0, 4, 40])
    length = 40 if ipv6 else 20 + options
    ihl = r.choice([(20 + options) // 4] * 4 + [0, 4, 15, 15])
    ip = bytearray(length)
    ip[0] = 0x60 if ipv6 else 0x40 | ihl
    if not ipv6:
        ip[9] = 6 if tcp else 17
    data_offset = r.choice([5, 5, 5, 0, 4, 8, 15])
    options = max(0, 4 * data_offset - 20) if r.random() < 0.7 else 0
    header = (
        bytes([*r.randbytes(12), data_offset << 4, r.choice([16, 24, 255]), *bytes(6 + options)])
        if tcp
        else bytes(8)
    )
    whole = ethernet + bytes(ip) + header
    room = min(longest, LONGEST_PACKET - len(whole))
    payload = min(room, r.choice([0, 1, 60, 3000, 30000, room, r.randrange(room)]))
    frame = whole + r.randbytes(64) * (payload // 64) + bytes(payload % 64)
    kind = (TCPV6 if ipv6 else TCPV4) if tcp else UDP_L4
    return frame, network, network + length, kind
