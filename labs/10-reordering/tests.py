"""Tests of aggregation in a network that reorders packets."""

import struct
from collections.abc import Sequence
from typing import Any

from scapy.fields import ByteField, IntField
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from fanin.classroom.bench import Bench, lab_test
from fanin.classroom.switch_under_test import SwitchUnderTest
from fanin.topologies.shapes import leaf_spine

TYPE, SWITCH = 0x88B6, "02:00:00:00:00:fe"
SLOTS, VALUES, WORKERS = 4, 4, 2
MOST_ARRIVALS = 8
FRAME = struct.Struct("!14sBBBBI4i")
Arrivals = Sequence[tuple[int, int]]  # ranks and chunks


class Chunk(Packet):
    """The header of a chunk."""

    name = "chunk"
    fields_desc = [  # noqa: RUF012 - scapy's way
        ByteField("workers", WORKERS),
        ByteField("rank", 0),
        ByteField("slot", 0),
        ByteField("version", 0),
        IntField("chunk", 0),
        *(IntField(f"value{number}", 0) for number in range(VALUES)),
    ]


class Untagged:
    """The switch of lab 7, for two workers and one value: it knows slots and versions, but no chunks."""

    def __init__(self) -> None:
        self._bits = set[tuple[int, int, int]]()  # rank, slot, version
        self._counts = [0] * (2 * SLOTS)
        self._sums = [0] * (2 * SLOTS)

    def update(self, rank: int, chunk: int, value: int) -> int | None:
        """Take a worker's packet, and return the sum that the switch sends, or None."""
        slot, version = chunk % SLOTS, chunk // SLOTS % 2
        cell = 2 * slot + version
        seen = (rank, slot, version) in self._bits
        self._bits.add((rank, slot, version))
        self._bits.discard((rank, slot, 1 - version))
        if not seen:
            first = self._counts[cell] in (0, WORKERS)
            self._counts[cell] = 1 if first else self._counts[cell] + 1
            self._sums[cell] = value if first else self._sums[cell] + value
        return self._sums[cell] if self._counts[cell] == WORKERS else None


class Worker:
    """A worker with a window, as lab 7 has it."""

    def __init__(self, rank: int, vectors: Sequence[Sequence[int]]) -> None:
        self._rank, self._workers, self._vector = rank, len(vectors), vectors[rank]
        self._chunks = len(self._vector) // VALUES
        self._in_flight = set(range(min(SLOTS, self._chunks)))
        self.sums: dict[int, list[int]] = {}

    def start(self) -> list[bytes]:
        """Send a chunk in each slot."""
        return self.timeout()

    def receive(self, frame: bytes) -> list[bytes]:
        """Keep a result, and send the next chunk of its slot."""
        _, _, _, _, _, chunk, *values = FRAME.unpack_from(frame)
        if chunk not in self._in_flight:
            return []
        self._in_flight.remove(chunk)
        self.sums[chunk] = values
        if chunk + SLOTS >= self._chunks:
            return []
        self._in_flight.add(chunk + SLOTS)
        return [self._frame(chunk + SLOTS)]

    def timeout(self) -> list[bytes]:
        """Send what is in flight."""
        return [self._frame(chunk) for chunk in sorted(self._in_flight)]

    def done(self) -> bool:
        """Return whether all sums are there."""
        return len(self.sums) == self._chunks

    def _frame(self, chunk: int) -> bytes:
        ether = bytes(Ether(src=f"02:00:00:00:00:{self._rank + 1:02x}", dst=SWITCH, type=TYPE))
        place = (self._workers, self._rank, chunk % SLOTS, chunk // SLOTS % 2, chunk)
        return FRAME.pack(ether, *place, *self._vector[chunk * VALUES : (chunk + 1) * VALUES])


def _value(rank: int, chunk: int) -> int:
    return (100 if rank else 1) * (chunk + 1)


def _total(chunk: int) -> int:
    return sum(_value(rank, chunk) for rank in range(WORKERS))


def _packet(rank: int, chunk: int, value: int) -> Packet:
    fields: dict[str, Any] = {f"value{number}": value for number in range(VALUES)}
    ether = Ether(src=f"02:00:00:00:00:{rank + 1:02x}", dst=SWITCH, type=TYPE)
    return ether / Chunk(rank=rank, slot=chunk % SLOTS, version=chunk // SLOTS % 2, chunk=chunk, **fields)


def _switch(bench: Bench, workers: int = WORKERS) -> SwitchUnderTest:
    switch = bench.switch("aggregate.p4")
    switch.install({"groups": {1: [[port, 0] for port in range(1, workers + 1)]}})
    return switch


def _run(bench: Bench, arrivals: Arrivals) -> None:
    """Let packets arrive at the student's switch, and compare what leaves with what the README asks for."""
    switch = _switch(bench)
    came: set[tuple[int, int]] = set()
    newest: dict[tuple[int, int], int] = {}  # the newest chunk of each slot and version
    for rank, chunk in arrivals:
        where = f"chunk {chunk}, which is slot {chunk % SLOTS}, version {chunk // SLOTS % 2}"
        copy = (rank, chunk) in came
        came.add((rank, chunk))
        cell = (chunk % SLOTS, chunk // SLOTS % 2)
        late = chunk < newest.get(cell, 0)
        newest[cell] = max(chunk, newest.get(cell, 0))
        what = "a late copy" if late else "a copy" if copy else "the packet"
        switch.send(
            rank + 1, _packet(rank, chunk, _value(rank, chunk)), f"{what} of worker {rank} with {where}"
        )
        total = _packet(rank, chunk, _total(chunk))
        if late or any((other, chunk) not in came for other in range(WORKERS)):
            switch.expect()
        elif copy:
            switch.expect((rank + 1, total))
        else:
            switch.expect(*((port, total) for port in range(1, WORKERS + 1)))


def _all_reduce(bench: Bench, workers: int, chunks: int, text: str, **links: float) -> None:
    bench.step(f"{workers} workers sum {chunks} chunks; {text}")
    vectors = [
        [bench.random.randrange(-(1 << 24), 1 << 24) for _ in range(VALUES * chunks)] for _ in range(workers)
    ]
    topology = leaf_spine(0, 1, workers, rate=10**9, properties=links)
    hosts = {host.name: Worker(rank, vectors) for rank, host in enumerate(topology.hosts)}
    network = bench.network(topology, {topology.switches[0].name: _switch(bench, workers)}, hosts)
    network.run(2.0)
    for rank, host in enumerate(hosts.values()):
        for chunk in range(chunks):
            place = slice(chunk * VALUES, (chunk + 1) * VALUES)
            exact = [sum(values) for values in zip(*(vector[place] for vector in vectors), strict=True)]
            network.check(
                host.sums[chunk] == exact,
                f"worker {rank} has {host.sums[chunk]} as the sum of chunk {chunk}, expected {exact}",
            )


@lab_test("Your order of arrivals makes the switch of lab 7 send a wrong sum", points=2)
def breaks(bench: Bench) -> None:
    arrivals = [(rank, chunk) for rank, chunk in bench.python("attack.py").call("arrivals")]
    bench.step(f"arrivals() returns {len(arrivals)} packets")
    bench.check(len(arrivals) <= MOST_ARRIVALS, f"at most {MOST_ARRIVALS} are allowed")
    switch, came, wrong = Untagged(), set[tuple[int, int]](), False
    for rank, chunk in arrivals:
        bench.step(f"worker {rank}'s packet with chunk {chunk} arrives at the switch of lab 7")
        bench.check(rank in range(WORKERS), f"there is no worker {rank!r}")
        bench.check(chunk in range(1 << 16), f"there is no chunk {chunk!r}")
        before = chunk - SLOTS
        bench.check(
            before < 0 or all((other, before) in came for other in range(WORKERS)),
            f"worker {rank} cannot have sent it: it needs the result of chunk {before} first, "
            "and not all packets of that chunk have arrived",
        )
        came.add((rank, chunk))
        total = switch.update(rank, chunk, _value(rank, chunk))
        wrong |= total not in (None, _total(chunk))
    bench.check(wrong, "every sum that this switch has sent is right")


@lab_test("Without late packets your switch works as in lab 7")
def in_order(bench: Bench) -> None:
    _run(bench, [(0, 0), (1, 0), (0, 1), (0, 4), (1, 1), (1, 4), (0, 8), (1, 8), (1, 12), (0, 12)])


@lab_test("A worker that missed a result gets it")
def result_is_kept(bench: Bench) -> None:
    _run(bench, [(0, 2), (0, 2), (1, 2), (1, 6), (0, 2), (1, 6), (0, 6), (1, 10), (0, 6), (0, 10)])


@lab_test("A late packet is not added to a newer chunk", points=2)
def newer_chunk(bench: Bench) -> None:
    _run(bench, [(0, 0), (1, 0), (0, 4), (1, 4), (0, 8), (1, 0), (1, 8), (0, 0), (0, 8), (1, 8)])


@lab_test("A late packet does not disturb the other version of its slot", points=2)
def other_version(bench: Bench) -> None:
    _run(bench, [(0, 3), (1, 3), (0, 7), (0, 3), (0, 7), (1, 3), (1, 7), (1, 7)])


@lab_test("Your order of arrivals does your switch no harm")
def attacked(bench: Bench) -> None:
    arrivals = [(rank, chunk) for rank, chunk in bench.python("attack.py").call("arrivals")]
    bench.check(len(set(arrivals)) < len(arrivals), "arrivals() has no copy of a packet; do TODO 1 first")
    _run(bench, arrivals)


@lab_test("A network in which one packet in five is late by up to 10 ms", points=2)
def network(bench: Bench) -> None:
    _all_reduce(bench, 3, 40, "packets overtake each other", reordering=0.2, displacement=0.01)


@lab_test("The program fits a pipeline: no multiplication, one access to each register")
def pipeline(bench: Bench) -> None:
    bench.fits_pipeline("aggregate.p4")


@lab_test(
    "Orders of arrivals drawn at random, and links that lose, duplicate and reorder", points=3, hidden=True
)
def random_orders(bench: Bench) -> None:
    for _ in range(20):
        arrivals: list[tuple[int, int]] = []
        while len(arrivals) < 30:
            possible = [
                (rank, chunk)
                for chunk in range(24)
                for rank in range(WORKERS)
                if chunk < SLOTS or all((other, chunk - SLOTS) in arrivals for other in range(WORKERS))
            ]
            new = [each for each in possible if each not in arrivals]
            arrivals.append(bench.random.choice(new if bench.random.random() < 0.6 else arrivals or new))
        _run(bench, arrivals)
    for lateness in (0.002, 0.01, 0.03):
        links = {"reordering": 0.2, "displacement": lateness, "duplication": 0.05, "loss": 0.05}
        _all_reduce(
            bench, bench.random.randrange(2, 5), 24, f"packets are late by up to {lateness} s", **links
        )
