"""Tests of aggregation with a window and two versions of each slot."""

from collections.abc import Sequence
from typing import Any

from scapy.fields import ByteField, IntField
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from fanin.classroom.bench import Bench, lab_test
from fanin.classroom.switch_under_test import SwitchUnderTest
from fanin.topologies.shapes import leaf_spine

TYPE, SWITCH = 0x88B6, "02:00:00:00:00:fe"
Vectors = Sequence[Sequence[int]]

SLOTS = 4


class Chunk(Packet):
    """The header of a chunk."""

    name = "chunk"
    fields_desc = [  # noqa: RUF012 - scapy's way
        ByteField("workers", 2),
        ByteField("rank", 0),
        ByteField("slot", 0),
        ByteField("version", 0),
        IntField("chunk", 0),
        *(IntField(f"value{number}", 0) for number in range(4)),
    ]


def _packet(rank: int, value: int, chunk: int) -> Packet:
    """Return the packet of a worker of two, with a value four times."""
    fields: dict[str, Any] = {f"value{number}": value for number in range(4)}
    fields |= {"slot": chunk % SLOTS, "version": chunk // SLOTS % 2, "chunk": chunk}
    ether = Ether(src=f"02:00:00:00:00:{rank + 1:02x}", dst=SWITCH, type=TYPE)
    return ether / Chunk(workers=2, rank=rank, **fields)


def _switch(bench: Bench, workers: int) -> SwitchUnderTest:
    switch = bench.switch("aggregate.p4")
    switch.install({"groups": {1: [[port, 0] for port in range(1, workers + 1)]}})
    return switch


def _vectors(bench: Bench, workers: int, chunks: int) -> Vectors:
    return [[bench.random.randrange(-(1 << 24), 1 << 24) for _ in range(4 * chunks)] for _ in range(workers)]


def _all_reduce(
    bench: Bench, vectors: Vectors, text: str, *, lost: Sequence[int] = (), **links: float
) -> list[int]:
    """Sum vectors in a network of one switch, and return how many frames each worker sent.

    Args:
        bench: The workbench.
        vectors: The vector of each worker.
        text: What the network does, for the story.
        lost: Numbers of the frames of worker 0 that are lost.
        links: Properties of the links.
    """
    bench.step(f"{len(vectors)} workers sum {len(vectors[0])} numbers; {text}")
    switch = _switch(bench, len(vectors))
    topology = leaf_spine(0, 1, len(vectors), rate=10**9, properties=links)
    hosts = {
        host.name: bench.worker("worker.py", rank, len(vectors), [*vectors[rank]])
        for rank, host in enumerate(topology.hosts)
    }
    first = topology.hosts[0].name
    network = bench.network(
        topology, {topology.switches[0].name: switch}, hosts, lose={first: lambda number, _: number in lost}
    )
    network.run()
    sums = [sum(values) for values in zip(*vectors, strict=True)]
    for rank, host in enumerate(hosts.values()):
        wrong = [index for index, total in enumerate(sums) if host.result[index : index + 1] != [total]]
        if wrong:
            where = wrong[0]
            raise network.failed(
                f"worker {rank}: element {where} is {host.result[where : where + 1]}, expected [{sums[where]}]; "
                f"{len(wrong)} of {len(sums)} elements are wrong"
            )
        network.check(len(host.result) == len(sums), f"worker {rank} has {len(host.result)} elements")
    return [len(station.sent) for station in network.stations.values()]


def _send(switch: SwitchUnderTest, rank: int, value: int, chunk: int, text: str = "sends") -> None:
    where = f"chunk {chunk}, which is slot {chunk % SLOTS}, version {chunk // SLOTS % 2}"
    switch.send(rank + 1, _packet(rank, value, chunk), f"worker {rank} {text} {value} four times in {where}")


def _complete(switch: SwitchUnderTest, chunk: int, value: int) -> None:
    """Let both workers send a chunk, and expect the sum at both."""
    _send(switch, 0, value, chunk)
    switch.expect()
    _send(switch, 1, 1, chunk)
    total = _packet(1, value + 1, chunk)
    switch.expect((1, total), (2, total))


@lab_test("A slot is used in turn by version 0 and version 1", points=2)
def versions(bench: Bench) -> None:
    switch = _switch(bench, 2)
    for chunk in (0, 4, 8, 12):
        _complete(switch, chunk, 10 * chunk)


@lab_test("A retransmission is not added a second time, in either version")
def not_twice(bench: Bench) -> None:
    switch = _switch(bench, 2)
    for chunk in (1, 5, 9):
        _send(switch, 0, 10, chunk)
        _send(switch, 0, 10, chunk, "retransmits")
        switch.expect()
        _send(switch, 1, 1, chunk)
        total = _packet(1, 11, chunk)
        switch.expect((1, total), (2, total))


@lab_test("A result is kept until every worker has sent its next chunk in the slot", points=2)
def result_is_kept(bench: Bench) -> None:
    switch = _switch(bench, 2)
    _complete(switch, 2, 10)
    _send(switch, 1, 7, 6, "got the result, and sends")
    switch.expect()
    _send(switch, 0, 10, 2, "did not get it, and retransmits")
    switch.expect((1, _packet(0, 11, 2)))
    _send(switch, 0, 5, 6, "now sends")
    total = _packet(0, 12, 6)
    switch.expect((1, total), (2, total))


@lab_test("A worker has one chunk in flight in each slot")
def window(bench: Bench) -> None:
    worker = bench.python("worker.py")
    worker.new("Worker", 0, 2, [*range(4 * 6)])
    bench.step("a worker with a vector of 6 chunks starts")
    frames = worker.call("start")
    bench.check(len(frames) == SLOTS, f"it sent {len(frames)} frames, expected {SLOTS}, one for each slot")
    for chunk, expected in ((1, 1), (1, 0), (0, 1), (2, 0)):
        bench.step(f"the result of chunk {chunk} arrives")
        frames = worker.call("receive", bytes(_packet(0, 0, chunk)))
        what = "the next chunk of this slot" if expected else "nothing"
        bench.check(len(frames) == expected, f"it sent {len(frames)} frames, expected {what}")
        if frames:
            found = Chunk(frames[0][14:])
            place = (found.chunk, found.slot, found.version)
            right = (chunk + SLOTS, chunk % SLOTS, 1)
            bench.check(place == right, f"it sent (chunk, slot, version) {place}, expected {right}")


@lab_test("The workers sum a vector that is longer than the window")
def network(bench: Bench) -> None:
    sent = _all_reduce(bench, _vectors(bench, 3, 21), "nothing is lost")
    bench.check(sent == [21, 21, 21], f"the workers sent {sent} frames, expected 21 each: one for each chunk")


@lab_test("Lost frames are retransmitted, in every version", points=2)
def retransmits(bench: Bench) -> None:
    _all_reduce(bench, _vectors(bench, 3, 20), "frames of worker 0 are lost", lost=(1, 6, 7, 13))


@lab_test("The program fits a pipeline: no multiplication, one access to each register")
def pipeline(bench: Bench) -> None:
    bench.fits_pipeline("aggregate.p4")


@lab_test("Links that lose and duplicate frames at random", points=3, hidden=True)
def random_loss(bench: Bench) -> None:
    for loss in (0.02, 0.1, 0.2):
        vectors = _vectors(bench, bench.random.randrange(2, 5), bench.random.randrange(9, 30))
        _all_reduce(bench, vectors, f"links lose {loss:.0%} of the frames", loss=loss)
