"""Tests of the switch that adds up one chunk of each worker."""

from collections.abc import Sequence
from typing import Any

from scapy.fields import ByteField, IntField, ShortField
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from fanin.classroom.bench import Bench, lab_test
from fanin.classroom.switch_under_test import SwitchUnderTest

TYPE, SWITCH = 0x88B6, "02:00:00:00:00:fe"


class Chunk(Packet):
    """The header of a chunk."""

    name = "chunk"
    fields_desc = [  # noqa: RUF012 - scapy's way
        ByteField("workers", 2),
        ByteField("rank", 0),
        ShortField("slot", 0),
        *(IntField(f"value{number}", 0) for number in range(4)),
    ]


def _packet(rank: int, values: Sequence[int], workers: int, slot: int = 0, *, back: bool = False) -> Packet:
    worker = f"02:00:00:00:00:{rank + 1:02x}"
    fields: dict[str, Any] = {f"value{number}": value % (1 << 32) for number, value in enumerate(values)}
    ether = Ether(src=worker, dst=worker if back else SWITCH, type=TYPE)
    return ether / Chunk(workers=workers, rank=rank, slot=slot, **fields)


def _round(switch: SwitchUnderTest, chunks: Sequence[Sequence[int]], slot: int = 0) -> None:
    """Let each worker send its chunk, the one with rank r at port r + 1, and expect the sum at the last."""
    sums = [sum(values) for values in zip(*chunks, strict=True)]
    for rank, values in enumerate(chunks):
        packet = _packet(rank, values, len(chunks), slot)
        switch.send(rank + 1, packet, f"worker {rank} of {len(chunks)} sends {[*values]} to slot {slot}")
        if rank + 1 < len(chunks):
            switch.expect()
        else:
            switch.expect((rank + 1, _packet(rank, sums, len(chunks), slot, back=True)))


@lab_test("Other traffic passes unchanged")
def other_traffic(bench: Bench) -> None:
    switch = bench.switch("aggregate.p4")
    packet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(dst="10.0.0.1") / b"no chunk"
    switch.send(1, packet, "worker 0 sends an IPv4 packet")
    switch.expect((2, packet))


@lab_test("The last of two workers gets the sum", points=2)
def two_workers(bench: Bench) -> None:
    _round(bench.switch("aggregate.p4"), [[1, 2, 3, 4], [10, 20, 30, 40]])


@lab_test("A slot can be used again", points=2)
def again(bench: Bench) -> None:
    switch = bench.switch("aggregate.p4")
    _round(switch, [[1, 2, 3, 4], [10, 20, 30, 40]])
    _round(switch, [[5, 5, 5, 5], [6, 6, 6, 6]])


@lab_test("The number of workers is the one in the header")
def more_workers(bench: Bench) -> None:
    switch = bench.switch("aggregate.p4")
    for workers in (3, 1, 4):
        _round(switch, [[rank + 1, 0, 7, 100 * rank] for rank in range(workers)])


@lab_test("Negative values, in two's complement")
def negative(bench: Bench) -> None:
    _round(bench.switch("aggregate.p4"), [[-1, -5, 5, -(1 << 31)], [3, 2, -7, (1 << 31) - 1]])


def _two_rounds(switch: SwitchUnderTest, one: int, other: int) -> None:
    """Let the rounds of two slots overlap."""
    for slot in (one, other):
        values = [slot, 10 * slot, 0, 1]
        switch.send(1, _packet(0, values, 2, slot), f"worker 0 of 2 sends {values} to slot {slot}")
        switch.expect()
    for slot in (other, one):
        switch.send(2, _packet(1, [1, 1, 1, 1], 2, slot), f"worker 1 of 2 sends [1, 1, 1, 1] to slot {slot}")
        switch.expect((2, _packet(1, [slot + 1, 10 * slot + 1, 1, 2], 2, slot, back=True)))


@lab_test("Slots do not disturb each other", points=2)
def slots(bench: Bench) -> None:
    _two_rounds(bench.switch("aggregate.p4"), 3, 4)


@lab_test("The program fits a pipeline: no multiplication, one access to each register")
def pipeline(bench: Bench) -> None:
    bench.fits_pipeline("aggregate.p4")


@lab_test("Rounds drawn at random", points=2, hidden=True)
def random_rounds(bench: Bench) -> None:
    switch = bench.switch("aggregate.p4")
    for _ in range(12):
        workers, slot = bench.random.randrange(1, 9), bench.random.randrange(16)
        _round(
            switch,
            [[bench.random.randrange(-(1 << 28), 1 << 28) for _ in range(4)] for _ in range(workers)],
            slot,
        )
    slot = bench.random.randrange(16)
    for bit in range(4):
        _two_rounds(switch, slot, slot ^ 1 << bit)
