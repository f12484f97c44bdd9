"""Tests of the aggregation tree."""

import struct
from collections.abc import Sequence
from typing import Any

from scapy.fields import ByteField, IntField
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from fanin.classroom.bench import Bench, lab_test
from fanin.classroom.switch_under_test import SwitchUnderTest
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine

TYPE, UPDATE, RESULT = 0x88B6, 0, 1
SLOTS = 4
FRAME = struct.Struct("!12sHBB4i")


class Chunk(Packet):
    """The header of a chunk."""

    name = "chunk"
    fields_desc = [  # noqa: RUF012 - scapy's way
        ByteField("kind", UPDATE),
        ByteField("slot", 0),
        *(IntField(f"value{number}", 0) for number in range(4)),
    ]


def _packet(value: int, slot: int = 0, kind: int = UPDATE) -> Packet:
    fields: dict[str, Any] = {f"value{number}": value for number in range(4)}
    ether = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:fe", type=TYPE)
    return ether / Chunk(kind=kind, slot=slot, **fields)


class _Worker:
    """A worker that sends one chunk after the other, each when it has the result of the one before."""

    def __init__(self, vector: Sequence[int]) -> None:
        self._vector = vector
        self.sums: list[int] = []

    def start(self) -> list[bytes]:
        return [self._frame()]

    def receive(self, frame: bytes) -> list[bytes]:
        _, kind, marked, slot, *values = FRAME.unpack_from(frame)
        if kind != TYPE or marked != RESULT or slot != len(self.sums) // 4 % SLOTS:
            return []
        self.sums += values
        return [] if self.done() else [self._frame()]

    def timeout(self) -> list[bytes]:
        return []

    def done(self) -> bool:
        return len(self.sums) >= len(self._vector)

    def _frame(self) -> bytes:
        at = len(self.sums)
        return FRAME.pack(bytes(12), TYPE, UPDATE, at // 4 % SLOTS, *self._vector[at : at + 4])


def _links(topology: Topology) -> list[dict[str, Any]]:
    switches = {switch.name for switch in topology.switches}
    ends = [pair for link in topology.links for pair in ((link.a, link.b), (link.b, link.a))]
    return [
        {"switch": near.node, "port": near.port, "neighbour": far.node}
        for near, far in ends
        if near.node in switches
    ]


def _switches(
    bench: Bench, topology: Topology, workers: Sequence[str], root: str
) -> dict[str, SwitchUnderTest]:
    names = [switch.name for switch in topology.switches]
    bench.step(f"entries() of your controller.py is called for {', '.join(names)}; {root} is the root")
    controller = bench.python("controller.py")
    switches = {}
    for name in names:
        found = controller.call("entries", name, _links(topology), [*workers], root)
        switches[name] = bench.switch("aggregate.p4")
        switches[name].install(found, f"controller.py: entries({name!r})")
    return switches


def _all_reduce(bench: Bench, topology: Topology, workers: Sequence[str], root: str, chunks: int) -> None:
    switches = _switches(bench, topology, workers, root)
    vectors = {
        name: [bench.random.randrange(-(1 << 24), 1 << 24) for _ in range(4 * chunks)] for name in workers
    }
    bench.step(f"{', '.join(workers)} sum {chunks} chunks in virtual time")
    hosts = {name: _Worker(vectors[name]) for name in workers}
    network = bench.network(topology, switches, hosts)
    network.run()
    sums = [sum(values) for values in zip(*vectors.values(), strict=True)]
    for name, host in hosts.items():
        network.check(host.sums == sums, f"{name}: the sums begin with {host.sums[:4]}, expected {sums[:4]}")


@lab_test("A leaf sends the sum of its workers to its parent", points=2)
def leaf(bench: Bench) -> None:
    topology = leaf_spine(spines=2, leaves=2, hosts_per_leaf=2, rate=10**9)
    switch = _switches(bench, topology, [host.name for host in topology.hosts], "spine2")["leaf1"]
    parent = next(
        each["port"]
        for each in _links(topology)
        if (each["switch"], each["neighbour"]) == ("leaf1", "spine2")
    )
    switch.send(1, _packet(5), "the first worker of leaf1 sends 5 four times")
    switch.expect()
    switch.send(2, _packet(7), "the second worker of leaf1 sends 7 four times")
    switch.expect((parent, _packet(12)))


@lab_test("The root sends the result down, to every leaf", points=2)
def root(bench: Bench) -> None:
    topology = leaf_spine(spines=2, leaves=2, hosts_per_leaf=2, rate=10**9)
    switch = _switches(bench, topology, [host.name for host in topology.hosts], "spine1")["spine1"]
    switch.send(1, _packet(12), "leaf1 sends 12 four times")
    switch.expect()
    switch.send(2, _packet(30), "leaf2 sends 30 four times")
    switch.expect((1, _packet(42, kind=RESULT)), (2, _packet(42, kind=RESULT)))


@lab_test("A leaf passes a result to its workers, and only to them")
def down(bench: Bench) -> None:
    topology = leaf_spine(spines=1, leaves=2, hosts_per_leaf=3, rate=10**9)
    names = [host.name for host in topology.hosts_of("leaf1")]
    switch = _switches(bench, topology, [names[0], names[2], topology.hosts_of("leaf2")[0].name], "spine1")[
        "leaf1"
    ]
    switch.send(4, _packet(42, kind=RESULT), "spine1 sends a result to leaf1")
    switch.expect((1, _packet(42, kind=RESULT)), (3, _packet(42, kind=RESULT)))
    switch.send(2, _packet(9), "a host of leaf1 that is not in the job sends an update")
    switch.expect()


@lab_test("Four workers below two leaves sum a vector", points=2)
def tree(bench: Bench) -> None:
    topology = leaf_spine(spines=2, leaves=2, hosts_per_leaf=2, rate=10**9)
    _all_reduce(bench, topology, [host.name for host in topology.hosts], "spine1", 6)


@lab_test("Leaves without workers take no part")
def uneven(bench: Bench) -> None:
    topology = leaf_spine(spines=2, leaves=3, hosts_per_leaf=3, rate=10**9)
    one, three = topology.hosts_of("leaf1"), topology.hosts_of("leaf3")
    _all_reduce(bench, topology, [one[0].name, three[0].name, three[2].name], "spine2", 4)
    _all_reduce(bench, topology, [one[1].name], "spine1", 2)


@lab_test("The program fits a pipeline: no multiplication, one access to each register")
def pipeline(bench: Bench) -> None:
    bench.fits_pipeline("aggregate.p4")


@lab_test("Networks and jobs drawn at random", points=3, hidden=True)
def random_trees(bench: Bench) -> None:
    for _ in range(4):
        spines, leaves, hosts = (bench.random.randrange(1, 5) for _ in range(3))
        topology = leaf_spine(spines=spines, leaves=leaves, hosts_per_leaf=hosts, rate=10**9)
        names = [host.name for host in topology.hosts]
        workers = bench.random.sample(names, bench.random.randrange(1, len(names) + 1))
        _all_reduce(bench, topology, workers, f"spine{bench.random.randrange(1, spines + 1)}", 5)
