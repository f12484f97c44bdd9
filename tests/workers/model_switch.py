"""The switch of the aggregation protocol in plain Python, from its rules, sharing no code with workers.

`ModelSwitch` is one switch of a tree, root or not. `UntaggedSwitch` is SwitchML's own algorithm, without
the chunk tag: the mutant that shows the tests can fail.
"""

import struct
from collections import Counter
from dataclasses import dataclass, field, replace

UPDATE, RESULT, GIVE, TAKE, ACKNOWLEDGEMENT = range(5)
WITHOUT_VALUES = TAKE, ACKNOWLEDGEMENT
HEADER = struct.Struct(">BBIHbBI")
NOT_QUANTIZABLE = 0x80
# By the field `size`: how many integers, of how many bits.
VALUES = {1: (64, 32), 3: (256, 32), 5: (128, 16), 7: (512, 16)}

PARENT = -1  # the port towards the root; children have ports 0, 1, ...


@dataclass(frozen=True)
class Packet:
    msg_type: int
    saturated: bool
    size: int
    lease: int
    chunk: int
    version: int
    slot: int
    e0: int
    e1: int
    call: int
    values: tuple[int, ...]

    @classmethod
    def decode(cls, datagram: bytes) -> "Packet":
        first, lease, chunk, pool_index, e0, e1, call = HEADER.unpack_from(datagram)
        size = first & 7
        count, bits = VALUES[size]
        if first >> 4 in WITHOUT_VALUES:
            assert len(datagram) == HEADER.size
            values: tuple[int, ...] = (0,) * count
        else:
            assert len(datagram) == HEADER.size + count * bits // 8
            values = struct.unpack_from(f">{count}{'hi'[bits == 32]}", datagram, HEADER.size)
        return cls(
            first >> 4,
            bool(first & 8),
            size,
            lease,
            chunk,
            pool_index >> 15,
            pool_index & 0x7FFF,
            e0,
            e1,
            call,
            values,
        )

    def encode(self) -> bytes:
        first = self.msg_type << 4 | self.saturated << 3 | self.size
        index = self.version << 15 | self.slot
        header = HEADER.pack(first, self.lease, self.chunk, index, self.e0, self.e1, self.call)
        letter = "hi"[VALUES[self.size][1] == 32]
        if self.msg_type in WITHOUT_VALUES:
            return header
        return header + struct.pack(f">{len(self.values)}{letter}", *self.values)

    def plus(self, other: "Packet") -> "Packet":
        exact = [a + b for a, b in zip(self.values, other.values, strict=True)]
        limit = 2 ** (VALUES[self.size][1] - 1)
        values = tuple(max(-limit, min(limit - 1, value)) for value in exact)
        return replace(
            self,
            values=values,
            saturated=self.saturated or other.saturated or list(values) != exact,
            e0=max(self.e0, other.e0),
            e1=self.e1 | other.e1 & NOT_QUANTIZABLE,
        )


@dataclass
class Cell:
    packet: Packet
    seen: set[int]
    done: bool = False
    types: dict[int, int] = field(default_factory=dict)  # of each child's update


@dataclass
class ModelSwitch:
    """`lease` is the one admitted, with `chunks`; a leaf or a spine with `children` ports, the root where `root`."""

    children: int
    root: bool
    lease: int
    slots: range
    chunks: range = range(2**32)
    cells: dict[tuple[int, int], Cell] = field(default_factory=dict)
    drops: Counter[str] = field(default_factory=Counter)

    def receive(self, port: int, datagram: bytes) -> list[tuple[int, bytes]]:
        """Process one packet; the packets sent, with their ports."""
        packet = Packet.decode(datagram)
        if packet.lease != self.lease or packet.slot not in self.slots or packet.chunk not in self.chunks:
            return self.drop("not admitted")
        return self.result(packet) if port == PARENT else self.update(port, packet)

    def update(self, port: int, packet: Packet) -> list[tuple[int, bytes]]:
        assert packet.msg_type in (UPDATE, GIVE, TAKE)
        key = packet.slot, packet.version
        cell = self.cells.get(key)
        if (
            cell is None
            or cell.packet.lease != packet.lease
            or cell.packet.chunk not in self.chunks
            or cell.packet.chunk < packet.chunk
        ):
            self.cells[key] = cell = Cell(packet, {port})
        elif cell.packet.chunk > packet.chunk:
            return self.drop("old chunk")
        elif cell.packet.call != packet.call:
            return self.drop("mismatch")
        elif cell.packet.size != packet.size:
            return self.drop("bad size")
        elif cell.done:
            return [self.answer(cell, port, packet.msg_type)]
        elif port in cell.seen:
            if not self.root and len(cell.seen) == self.children:
                return self.up(cell)
            return self.drop("duplicate")
        else:
            cell.packet = cell.packet.plus(packet)
            cell.seen.add(port)
        cell.types[port] = packet.msg_type
        return self.complete(cell) if len(cell.seen) == self.children else []

    def complete(self, cell: Cell) -> list[tuple[int, bytes]]:
        if not self.root:
            return self.up(cell)
        cell.packet = replace(cell.packet, msg_type=RESULT)
        cell.done = True
        return self.multicast(cell)

    def up(self, cell: Cell) -> list[tuple[int, bytes]]:
        [kind, *others] = set(cell.types.values())
        return [(PARENT, replace(cell.packet, msg_type=UPDATE if others else kind).encode())]

    def result(self, packet: Packet) -> list[tuple[int, bytes]]:
        assert packet.msg_type in (RESULT, ACKNOWLEDGEMENT)
        cell = self.cells.get((packet.slot, packet.version))
        if cell is None or cell.packet.chunk != packet.chunk or cell.done:
            return self.drop("stale result")
        if cell.packet.call != packet.call:
            return self.drop("mismatch")
        cell.packet, cell.done = packet, True
        return self.multicast(cell)

    def multicast(self, cell: Cell) -> list[tuple[int, bytes]]:
        return [self.answer(cell, port, cell.types.get(port, UPDATE)) for port in range(self.children)]

    def answer(self, cell: Cell, port: int, asked: int) -> tuple[int, bytes]:
        """The cell's result for a child that sent this type of update."""
        return port, replace(
            cell.packet, msg_type=ACKNOWLEDGEMENT if asked == GIVE else cell.packet.msg_type
        ).encode()

    def drop(self, reason: str) -> list[tuple[int, bytes]]:
        self.drops[reason] += 1
        return []


class UntaggedSwitch(ModelSwitch):
    """SwitchML (NSDI'21), algorithm 3: a root that knows a chunk only by its slot and version."""

    def update(self, port: int, packet: Packet) -> list[tuple[int, bytes]]:
        key = packet.slot, packet.version
        cell = self.cells.setdefault(key, Cell(packet, set()))
        if port in cell.seen:
            return [(port, replace(cell.packet, chunk=packet.chunk).encode())] if cell.done else []
        other = self.cells.get((packet.slot, 1 - packet.version))
        if other:
            other.seen.discard(port)
        if cell.done or not cell.seen:
            self.cells[key] = cell = Cell(packet, cell.seen if not cell.done else set())
        else:
            cell.packet = replace(cell.packet.plus(packet), chunk=packet.chunk)
        cell.seen.add(port)
        return self.complete(cell) if len(cell.seen) == self.children else []
