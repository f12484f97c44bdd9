"""A switch with the tables of one job, and the packets of its members: the vocabulary of these tests."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import ActionCall, Entry, EntryKey, Exact, Lpm, Replica

SWITCH_MAC, SWITCH_IP = "02:00:00:00:00:01", "10.0.0.254"
PARENT_MAC, PARENT_IP, PARENT_PORT = "02:00:00:00:00:02", "10.255.0.1", 9
UDP_PORT = 0xBEE0
GROUP = 7
BASE, SLOTS = 16, 8
ROUTES = "ingress.forwarding.ipv4_lpm"

UPDATE, RESULT = 0, 1
SIZES = {64: 1, 256: 3, 128: 5, 512: 7}  # the last two: integers of 16 bits


def mac(text: str) -> int:
    return int(text.replace(":", ""), 16)


def ipv4(text: str) -> int:
    return int.from_bytes(bytes(map(int, text.split("."))), "big")


@dataclass(frozen=True)
class Message:
    """The content of a SwitchML packet."""

    values: tuple[int, ...]
    type: int = UPDATE
    saturated: int = 0
    size: int | None = None  # None: as the number of values says
    lease: int = 1
    chunk: int = 1
    version: int = 0
    slot: int = BASE
    exponents: tuple[int, int] = (0, 0)  # the second: not_quantizable (0x80)
    call: int = 0

    def encode(self) -> bytes:
        size = SIZES[len(self.values)] if self.size is None else self.size
        head = (self.type << 4) | (self.saturated << 3) | size
        pool_index = self.version << 15 | self.slot
        return struct.pack(">BBIH", head, self.lease, self.chunk, pool_index) + struct.pack(
            f">bBI{len(self.values)}{'ih'[size > 3]}", *self.exponents, self.call, *self.values
        )

    @classmethod
    def decode(cls, data: bytes) -> Message:
        head, lease, chunk, pool_index = struct.unpack_from(">BBIH", data)
        *exponents, call = struct.unpack_from(">bBI", data, 8)
        letter = "ih"[head >> 2 & 1]
        values = struct.unpack_from(f">{(len(data) - 14) // struct.calcsize(letter)}{letter}", data, 14)
        return cls(
            values,
            head >> 4,
            head >> 3 & 1,
            head & 7,
            lease,
            chunk,
            pool_index >> 15,
            pool_index & 0x7FFF,
            (exponents[0], exponents[1]),
            call,
        )


@dataclass(frozen=True)
class Child:
    """A member of the job below this switch."""

    number: int

    @property
    def port(self) -> int:
        return self.number

    @property
    def ip(self) -> str:
        return f"10.0.0.{self.number}"

    @property
    def mac(self) -> str:
        return f"02:00:00:00:01:{self.number:02x}"

    def frame(self, message: Message | bytes, checksum: int | None = None) -> bytes:
        """A frame with a UDP checksum: the right one if none is given."""
        payload = message if isinstance(message, bytes) else message.encode()
        return bytes(
            Ether(src=self.mac, dst=SWITCH_MAC)
            / IP(src=self.ip, dst=SWITCH_IP)
            / UDP(sport=UDP_PORT, dport=UDP_PORT, chksum=checksum)
            / Raw(payload)
        )


def parent_frame(message: Message, checksum: int | None = None) -> bytes:
    """A frame from the parent, its UDP checksum as in Child.frame."""
    return bytes(
        Ether(src=PARENT_MAC, dst=SWITCH_MAC)
        / IP(src=PARENT_IP, dst=SWITCH_IP)
        / UDP(sport=UDP_PORT, dport=UDP_PORT, chksum=checksum)
        / Raw(message.encode())
    )


def block(*values: int, count: int = 64) -> tuple[int, ...]:
    """`values` repeated until there are `count`."""
    return tuple(values[i % len(values)] for i in range(count))


class SwitchUnderTest:
    """The engine with a job's tables."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.children: list[Child] = []

    def insert(self, table: str, keys: Sequence[int], action: str, *args: int) -> None:
        """An entry of exact keys."""
        key = EntryKey(tuple(Exact(value) for value in keys))
        self.engine.table(table).insert(Entry(key, ActionCall(f"{table.rpartition('.')[0]}.{action}", args)))

    def route(self, prefix: str, length: int, action: str, *args: int) -> None:
        """A route of ingress.forwarding.ipv4_lpm."""
        key = EntryKey((Lpm(ipv4(prefix), length),))
        call = ActionCall(f"ingress.forwarding.{action}", args)
        self.engine.table(ROUTES).insert(Entry(key, call))

    def join(
        self,
        children: int,
        *,
        root: bool = True,
        lease: int = 1,
        chunks: range = range(2**32),
        checksums: bool = True,
    ) -> list[Child]:
        """Admit a job of `children` members with numbers from 1; below the root the parent is on PARENT_PORT."""
        claim = (BASE, SLOTS, chunks[0], chunks[-1], int(checksums))
        self.children = [Child(number) for number in range(1, children + 1)]
        full = (1 << children) - 1
        for child in self.children:
            self.insert(
                "ingress.aggregation.admission",
                (child.port, ipv4(child.ip), ipv4(SWITCH_IP), UDP_PORT, lease),
                "admit_child",
                *(child.number, 1 << (child.number - 1), full, *claim, int(root), GROUP, PARENT_PORT),
            )
            self._receiver(lease, child.number, child.mac, child.ip)
        if not root:
            self.insert(
                "ingress.aggregation.admission",
                (PARENT_PORT, ipv4(PARENT_IP), ipv4(SWITCH_IP), UDP_PORT, lease),
                "admit_parent",
                *(*claim, GROUP),
            )
            self._receiver(lease, 0, PARENT_MAC, PARENT_IP)
        if not self.engine.table(ROUTES).entries():
            self.route(SWITCH_IP, 32, "own_address")
        if GROUP not in self.engine.multicast.all():
            self.engine.multicast.insert(
                GROUP, tuple(Replica(child.port, child.number) for child in self.children)
            )
        return self.children

    def _receiver(self, lease: int, member: int, receiver_mac: str, receiver_ip: str) -> None:
        self.insert(
            "egress.receivers",
            (lease, member),
            "send_to",
            *(mac(SWITCH_MAC), ipv4(SWITCH_IP), UDP_PORT, mac(receiver_mac), ipv4(receiver_ip), UDP_PORT),
        )

    def lose_registers(self) -> None:
        """Put the switch in the state after a restart: its tables are installed, and its memory is lost."""
        for name, register in self.engine.program.registers.items():
            for cell in range(2 * BASE, 2 * (BASE + SLOTS)) if register.size > 1 else [0]:
                self.engine.register(name).write(cell, 0)

    def leave(self, lease: int) -> None:
        """Withdraw every member of a lease."""
        for table, place in (("ingress.aggregation.admission", -1), ("egress.receivers", 0)):
            for entry in self.engine.table(table).entries():
                if entry.key.match[place] == Exact(lease):
                    self.engine.table(table).delete(entry.key)
        self.engine.multicast.delete(GROUP)

    def send(self, child: Child, message: Message | bytes) -> list[tuple[int, Message]]:
        """A child's update through the switch: (port, message) of each packet that leaves."""
        return [
            (port, decode(frame)) for port, frame in self.engine.process(child.port, child.frame(message))
        ]

    def send_from_parent(self, message: Message) -> list[tuple[int, Message]]:
        """Send the parent's message and return what comes of it, as `send` does."""
        return [(port, decode(out)) for port, out in self.engine.process(PARENT_PORT, parent_frame(message))]

    def drops(self) -> dict[str, int]:
        """Packets dropped for each reason that occurred."""
        return self._counts("ingress.drops", "REASON")

    def events(self) -> dict[str, int]:
        """Return what aggregation did, each kind that occurred."""
        return self._counts("ingress.aggregation.events", "EVENT")

    def _counts(self, counter: str, prefix: str) -> dict[str, int]:
        text = (Path(__file__).parents[2] / "p4src" / "reasons.p4").read_text()
        names = {int(value): name for name, value in re.findall(rf"{prefix}_(\w+) = (\d+);", text)}
        values = self.engine.counter(counter).read_all()
        return {names[index]: value.packets for index, value in enumerate(values) if value.packets}


def decode(frame: bytes) -> Message:
    """The message in a frame, whose checksums must be right."""
    packet: Packet = Ether(frame)
    given, udp = packet[IP].chksum, packet[UDP].chksum
    del packet[IP].chksum
    if udp:
        del packet[UDP].chksum
    right = Ether(bytes(packet))
    assert right[IP].chksum == given, "IPv4 header checksum"
    assert right[UDP].chksum == udp, "UDP checksum"
    assert packet[IP].len == len(frame) - 14
    return Message.decode(bytes(packet[UDP].payload))


def saturating_sum(vectors: Sequence[Sequence[int]]) -> tuple[int, ...]:
    total = np.sum(np.array(vectors, dtype=np.int64), axis=0)
    return tuple(int(value) for value in np.clip(total, -(2**31), 2**31 - 1))
