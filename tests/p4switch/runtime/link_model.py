"""A model in plain Python of an emulated link, which runtime/ports/link.c has to equal on each sequence of packets."""

from __future__ import annotations

from dataclasses import dataclass, field

from fanin.p4switch.engine.links import LinkProperties

MASK = 2**64 - 1


def mix(z: int) -> int:
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def draw(properties: LinkProperties, stream: int, number: int, purpose: int) -> float:
    golden = 0x9E3779B97F4A7C15
    key = mix(mix(properties.seed + golden & MASK) ^ mix((stream + 1) * golden & MASK))
    return float(mix(key + (number * 16 + purpose) * golden & MASK) >> 11) * 2.0**-53


@dataclass(frozen=True)
class Packet:
    gap: int  # picoseconds since the one before
    length: int


@dataclass
class Fate:
    """The model's result for a sequence: packets released, in order, as (due, number), and what else it counts.

    corrupted: by the packet's number, the bit that is flipped.
    """

    released: list[tuple[int, int]]
    lost: int = 0
    burst_lost: int = 0
    queue_dropped: int = 0
    duplicated: int = 0
    reordered: int = 0
    corrupted: dict[int, int] = field(default_factory=dict)
    highest: int = 0


def model(p: LinkProperties, stream: int, packets: list[Packet]) -> Fate:
    byte_time = int(8e12 * 2**20 / p.rate + 0.5) if p.rate else 0
    room = MASK if p.queue_bytes is None else p.queue_bytes * byte_time >> 20
    now = free_at = floor = 0
    bad = False
    fate = Fate([])
    out: list[tuple[int, int, int]] = []

    def seconds(value: float) -> int:
        return int(value / 1e-12 + 0.5)

    for number, packet in enumerate(packets):

        def drawn(purpose: int, number: int = number) -> float:
            return draw(p, stream, number, purpose)

        now += packet.gap
        if p.burst:
            bad = drawn(6) >= p.burst.end if bad else drawn(6) < p.burst.begin
        waiting = max(0, free_at - now)
        sent = waiting + ((packet.length + p.overhead) * byte_time >> 20)
        if sent > room:
            fate.queue_dropped += 1
            continue
        free_at = now + sent
        fate.highest = max(fate.highest, int(sent * 2.0**20 / byte_time) if byte_time else 0)
        if drawn(0) < p.loss:
            fate.lost += 1
            continue
        if p.burst and bad and drawn(7) < p.burst.loss:
            fate.burst_lost += 1
            continue
        if drawn(1) < p.corruption:
            fate.corrupted[number] = int(drawn(9) * 8 * packet.length)
        due = max(floor, free_at + seconds(p.delay) + seconds(drawn(8) * p.jitter))
        if drawn(3) < p.reordering:
            fate.reordered += 1
            due += seconds(drawn(4) * p.displacement)
        else:
            floor = due
        out.append((due, number, 0))
        if drawn(2) < p.duplication:
            fate.duplicated += 1
            out.append((due + seconds(drawn(5) * p.displacement), number, 1))
    fate.released = [(due, number) for due, number, _ in sorted(out)]
    return fate
