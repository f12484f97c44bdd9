"""Superframes and their segments."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import checksum

ETHERNET = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")  # else scapy would go and ask the network


UDP_CHECKSUM, TCP_CHECKSUM = 6, 16


@dataclass(frozen=True)
class Segment:
    """A packet, and where its partial checksum is (None: it has none)."""

    data: bytes
    checksum: int | None


def partial(packet: Packet) -> Segment:
    """The packet as a kernel hands it to a device that will fill in the checksum: with the pseudo-header's sum."""
    packet = Ether(bytes(packet))
    network = packet.getlayer(IPv6) or packet[IP]
    transport = packet.getlayer(TCP) or packet[UDP]
    data = bytearray(bytes(packet))
    length = len(bytes(transport))
    addresses = bytes(network)[8:40] if isinstance(network, IPv6) else bytes(network)[12:20]
    number = 6 if isinstance(transport, TCP) else 17
    place = len(data) - length + (TCP_CHECKSUM if number == 6 else UDP_CHECKSUM)
    total = ~checksum(addresses + struct.pack(">HH", number, length)) & 0xFFFF
    data[place : place + 2] = total.to_bytes(2, "big")
    return Segment(bytes(data), place)


def payload(length: int) -> Raw:
    return Raw(bytes((7 * n + n // 251) & 0xFF for n in range(length)))
