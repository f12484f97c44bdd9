"""Tests of the switch that adds up chunks of 16 values in four passes."""

from collections.abc import Sequence
from typing import Any

from scapy.fields import ByteField, IntField, ShortField
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from fanin.classroom.bench import Bench, lab_test
from fanin.classroom.switch_under_test import SwitchUnderTest

TYPE, SWITCH = 0x88B7, "02:00:00:00:00:fe"
VALUES, QUAD = 16, 4


class Chunk(Packet):
    """The header of a chunk."""

    name = "chunk"
    fields_desc = [ByteField("workers", 2), ByteField("rank", 0), ShortField("slot", 0)]  # noqa: RUF012


class Quad(Packet):
    """Four values."""

    name = "quad"
    fields_desc = [IntField(f"value{number}", 0) for number in range(QUAD)]  # noqa: RUF012


def _packet(rank: int, values: Sequence[int], workers: int, slot: int = 0, *, back: bool = False) -> Packet:
    worker = f"02:00:00:00:00:{rank + 1:02x}"
    packet = Ether(src=worker, dst=worker if back else SWITCH, type=TYPE)
    packet = packet / Chunk(workers=workers, rank=rank, slot=slot)
    for begin in range(0, VALUES, QUAD):
        quad: dict[str, Any] = {f"value{n}": values[begin + n] % (1 << 32) for n in range(QUAD)}
        packet = packet / Quad(**quad)
    return packet


def _round(switch: SwitchUnderTest, chunks: Sequence[Sequence[int]], slot: int = 0) -> None:
    """Let each worker send its chunk, the one with rank r at port r + 1, and expect the sum at the last."""
    sums = [sum(values) for values in zip(*chunks, strict=True)]
    for rank, values in enumerate(chunks):
        _send(switch, rank, values, len(chunks), slot)
        if rank + 1 < len(chunks):
            switch.expect()
        else:
            switch.expect((rank + 1, _packet(rank, sums, len(chunks), slot, back=True)))


def _send(switch: SwitchUnderTest, rank: int, values: Sequence[int], workers: int, slot: int) -> None:
    text = f"worker {rank} of {workers} sends {values[0]}, {values[1]}, … {values[-1]} to slot {slot}"
    switch.send(rank + 1, _packet(rank, values, workers, slot), text)


def _values(bench: Bench) -> list[int]:
    return [bench.random.randrange(-(1 << 28), 1 << 28) for _ in range(VALUES)]


def _counts(switch: SwitchUnderTest, expected: int) -> None:
    for number in range(4):
        packets, _ = switch.counter("passes", number)
        switch.check(
            packets == expected,
            f"the counter passes has {packets} for pass {number}, expected {expected}",
        )


@lab_test("Other traffic passes unchanged, and in one pass")
def other_traffic(bench: Bench) -> None:
    switch = bench.switch("aggregate.p4")
    packet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(dst="10.0.0.1") / b"no chunk"
    switch.send(1, packet, "worker 0 sends an IPv4 packet")
    switch.expect((2, packet))
    _counts(switch, 0)


@lab_test("A chunk has four passes, and no more", points=2)
def four_passes(bench: Bench) -> None:
    switch = bench.switch("aggregate.p4")
    for number in range(1, 4):
        _send(switch, 0, [*range(VALUES)], 200, 0)
        bench.step(f"the control plane reads the counter passes after {number} packets")
        _counts(switch, number)


@lab_test("A worker that is alone gets its own values back", points=2)
def alone(bench: Bench) -> None:
    switch = bench.switch("aggregate.p4")
    _round(switch, [[*range(1, VALUES + 1)]])


@lab_test("The last of several workers gets the sum of all 16 values", points=3)
def several_workers(bench: Bench) -> None:
    switch = bench.switch("aggregate.p4")
    for workers in (2, 3):
        _round(switch, [[100 * rank + value for value in range(VALUES)] for rank in range(workers)])


@lab_test("A slot can be used again")
def again(bench: Bench) -> None:
    switch = bench.switch("aggregate.p4")
    for base in (1, 50, 7):
        _round(switch, [[base + value for value in range(VALUES)], [3] * VALUES], 5)


@lab_test("Slots do not disturb each other", points=2)
def slots(bench: Bench) -> None:
    switch = bench.switch("aggregate.p4")
    chunks = {slot: [1000 * slot + value for value in range(VALUES)] for slot in (0, 1, 4, 15)}
    for slot, values in chunks.items():
        _send(switch, 0, values, 2, slot)
        switch.expect()
    for slot, values in chunks.items():
        _send(switch, 1, [1] * VALUES, 2, slot)
        switch.expect((2, _packet(1, [value + 1 for value in values], 2, slot, back=True)))


@lab_test("The program fits a pipeline: no multiplication, one access to each register")
def pipeline(bench: Bench) -> None:
    bench.fits_pipeline("aggregate.p4")


@lab_test("Rounds drawn at random", points=2, hidden=True)
def random_rounds(bench: Bench) -> None:
    switch = bench.switch("aggregate.p4")
    for _ in range(10):
        workers, slot = bench.random.randrange(1, 8), bench.random.randrange(16)
        _round(switch, [_values(bench) for _ in range(workers)], slot)
