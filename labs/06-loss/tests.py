"""Tests of aggregation with loss."""

from collections.abc import Sequence
from typing import Any

from scapy.fields import ByteField, IntField, ShortField
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from fanin.classroom.bench import Bench, lab_test
from fanin.classroom.switch_under_test import SwitchUnderTest
from fanin.topologies.shapes import leaf_spine

TYPE, SWITCH = 0x88B6, "02:00:00:00:00:fe"
Vectors = Sequence[Sequence[int]]


class Chunk(Packet):
    """The header of a chunk."""

    name = "chunk"
    fields_desc = [  # noqa: RUF012 - scapy's way
        ByteField("workers", 2),
        ByteField("rank", 0),
        ShortField("slot", 0),
        *(IntField(f"value{number}", 0) for number in range(4)),
    ]


def _packet(rank: int, values: Sequence[int], workers: int, slot: int) -> Packet:
    fields: dict[str, Any] = {f"value{number}": value % (1 << 32) for number, value in enumerate(values)}
    ether = Ether(src=f"02:00:00:00:00:{rank + 1:02x}", dst=SWITCH, type=TYPE)
    return ether / Chunk(workers=workers, rank=rank, slot=slot, **fields)


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


def _send(switch: SwitchUnderTest, rank: int, values: Sequence[int], slot: int, text: str = "sends") -> None:
    """Let a worker of two send a chunk."""
    switch.send(
        rank + 1, _packet(rank, values, 2, slot), f"worker {rank} of 2 {text} {[*values]} in slot {slot}"
    )


@lab_test("Without loss, all workers get the sum of a chunk")
def no_loss(bench: Bench) -> None:
    switch = _switch(bench, 2)
    _send(switch, 0, [1, 2, 3, 4], 5)
    switch.expect()
    _send(switch, 1, [10, 20, 30, 40], 5)
    total = _packet(1, [11, 22, 33, 44], 2, 5)
    switch.expect((1, total), (2, total))


@lab_test("A retransmission is not added a second time", points=2)
def not_twice(bench: Bench) -> None:
    switch = _switch(bench, 2)
    _send(switch, 0, [1, 2, 3, 4], 0)
    switch.expect()
    _send(switch, 0, [1, 2, 3, 4], 0, "retransmits")
    switch.expect()
    _send(switch, 1, [10, 20, 30, 40], 0)
    total = _packet(1, [11, 22, 33, 44], 2, 0)
    switch.expect((1, total), (2, total))


@lab_test("A worker that has lost the result gets it again, and only this worker", points=2)
def served_again(bench: Bench) -> None:
    switch = _switch(bench, 2)
    for rank in (1, 0):
        _send(switch, rank, [1, 2, 3, 4], 7)
    total = _packet(0, [2, 4, 6, 8], 2, 7)
    switch.expect((1, total), (2, total))
    _send(switch, 1, [1, 2, 3, 4], 7, "retransmits")
    switch.expect((2, _packet(1, [2, 4, 6, 8], 2, 7)))


@lab_test("The workers sum a vector in a network that loses nothing")
def network(bench: Bench) -> None:
    sent = _all_reduce(bench, _vectors(bench, 3, 8), "nothing is lost")
    bench.check(sent == [8, 8, 8], f"the workers sent {sent} frames, expected 8 each: one for each chunk")


@lab_test("A worker retransmits what was lost, and nothing else", points=2)
def retransmits(bench: Bench) -> None:
    sent = _all_reduce(bench, _vectors(bench, 3, 8), "the frames 2 and 5 of worker 0 are lost", lost=(2, 5))
    bench.check(
        sent == [10, 10, 10],
        f"the workers sent {sent} frames, expected 10 each: 8 chunks, and 2 of them again. All three miss two results",
    )


@lab_test("A worker ignores frames that are not for it")
def foreign_frames(bench: Bench) -> None:
    worker = bench.worker("worker.py", 0, 1, [1, 2, 3, 4])
    bench.step("a frame of another type, and one that is too short, arrive at the worker")
    for frame in (bytes(12) + b"\x08\x00" + bytes(40), bytes(12) + TYPE.to_bytes(2)):
        worker.receive(frame)
        bench.check(worker.result is None, "the worker took such a frame for a result")


@lab_test("The program fits a pipeline: no multiplication, one access to each register")
def pipeline(bench: Bench) -> None:
    bench.fits_pipeline("aggregate.p4")


@lab_test("Links that lose and duplicate frames at random", points=3, hidden=True)
def random_loss(bench: Bench) -> None:
    for loss in (0.05, 0.2):
        vectors = _vectors(bench, bench.random.randrange(2, 6), bench.random.randrange(8, 24))
        text = f"links lose {loss:.0%} of the frames and duplicate 10 %"
        _all_reduce(bench, vectors, text, loss=loss, duplication=0.1, displacement=1e-5)
