"""Tests of aggregation that reacts to congestion marks."""

from collections.abc import Sequence
from typing import Any

from scapy.fields import ByteField, IntField
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from fanin.classroom.bench import Bench, lab_test
from fanin.classroom.switch_under_test import SwitchUnderTest
from fanin.topologies.shapes import leaf_spine

UDP_PORT, SWITCH_MAC, SWITCH_IP = 5005, "02:00:00:00:00:fe", "10.0.0.254"
SLOTS, VALUES, WORKERS = 32, 4, 2
NOT_CAPABLE, CAPABLE, CONGESTED = 0, 2, 3
GAIN = 1 / 16
TOLERANCE = 1e-9


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


class Window:
    """The window that a worker has to have."""

    def __init__(self) -> None:
        self.size, self.share, self.round = 2.0, 1.0, 2
        self.answered = self.marked = 0

    def result(self, marked: bool) -> None:
        """Take a result that is new."""
        self.answered += 1
        self.marked += marked
        if self.answered < self.round:
            return
        self.share += GAIN * (self.marked / self.answered - self.share)
        smaller = max(self.size * (1 - self.share / 2), 1.0)
        self.size = smaller if self.marked else min(self.size + 1, SLOTS)
        self.round, self.answered, self.marked = int(self.size), 0, 0


def _packet(rank: int, chunk: int, value: int, ecn: int = CAPABLE) -> Packet:
    fields: dict[str, Any] = {f"value{number}": value for number in range(VALUES)}
    fields |= {"slot": chunk % SLOTS, "version": chunk // SLOTS % 2, "chunk": chunk}
    ether = Ether(src=f"02:00:00:00:00:{rank + 1:02x}", dst=SWITCH_MAC)
    ip = IP(src=f"10.0.0.{rank + 1}", dst=SWITCH_IP, tos=ecn, id=0)
    return ether / ip / UDP(sport=UDP_PORT, dport=UDP_PORT, chksum=0) / Chunk(rank=rank, **fields)


def _send(switch: SwitchUnderTest, rank: int, value: int, chunk: int, ecn: int = CAPABLE) -> None:
    mark = " and a mark" if ecn == CONGESTED else " that is not ECN-capable" if ecn == NOT_CAPABLE else ""
    text = f"worker {rank} sends {value} four times in chunk {chunk}{mark}"
    switch.send(1, _packet(rank, chunk, value, ecn), text)


def _marks(switch: SwitchUnderTest, chunk: int, first: int, last: int, expected: int) -> None:
    """Let both workers send a chunk, and expect a result with these ECN bits."""
    _send(switch, 0, 10, chunk, first)
    switch.expect()
    _send(switch, 1, 1, chunk, last)
    switch.expect((1, _packet(1, chunk, 11, expected)))


def _all_reduce(
    bench: Bench, workers: int, chunks: int, text: str, seconds: float, most_copies: int, **uplink: float
) -> None:
    """Sum vectors over a leaf whose uplink is slow.

    Args:
        bench: The workbench.
        workers: How many workers there are.
        chunks: The length of their vectors.
        text: What the network does, for the story.
        seconds: The virtual time that it may take.
        most_copies: How many frames each worker may retransmit.
        uplink: Properties of the uplink.
    """
    bench.step(f"{workers} workers sum {chunks} chunks; {text}")
    leaf, spine = bench.switch("aggregate.p4"), bench.switch("aggregate.p4")
    up = workers + 1
    actions = [(port, "up", {"port": up}) for port in range(1, up)] + [(up, "down", {})]
    entries = [
        {
            "table": "MyIngress.leaf",
            "match": {"standard.ingress_port": port},
            "action": f"MyIngress.{action}",
            "params": params,
        }
        for port, action, params in actions
    ]
    leaf.install({"entries": entries, "groups": {1: [[port, 0] for port in range(1, up)]}})
    topology = leaf_spine(1, 1, workers, rate=10**9, uplink_rate=10**8, uplink_properties=uplink)
    vectors = [
        [bench.random.randrange(-(1 << 24), 1 << 24) for _ in range(VALUES * chunks)] for _ in range(workers)
    ]
    hosts = {
        host.name: bench.worker("worker.py", rank, workers, [*vectors[rank]])
        for rank, host in enumerate(topology.hosts)
    }
    switches = dict(zip((switch.name for switch in topology.switches), (leaf, spine), strict=True))
    network = bench.network(topology, switches, hosts)
    network.run(seconds)
    sums = [sum(values) for values in zip(*vectors, strict=True)]
    for rank, host in enumerate(hosts.values()):
        network.check(host.result == sums, f"worker {rank} has a wrong result")
    copies = [len(station.sent) - chunks for station in network.stations.values()]
    bench.check(
        max(copies) <= most_copies or not network.timed,
        f"the workers retransmitted {copies} frames, and at most {most_copies} each are allowed; "
        "the queue of the uplink was full",
    )


@lab_test("Without marks the switch sums, and the result has none")
def sums(bench: Bench) -> None:
    switch = bench.switch("aggregate.p4")
    for chunk in (0, 1, 32, 64):
        _marks(switch, chunk, CAPABLE, CAPABLE, CAPABLE)


@lab_test("A mark on any update of a chunk is in the result", points=2)
def any_mark(bench: Bench) -> None:
    switch = bench.switch("aggregate.p4")
    _marks(switch, 1, CAPABLE, CONGESTED, CONGESTED)
    _marks(switch, 2, CONGESTED, CONGESTED, CONGESTED)
    _marks(switch, 3, CONGESTED, CAPABLE, CONGESTED)


@lab_test("The next chunk in the same cell has no mark, nor have other chunks")
def forgotten(bench: Bench) -> None:
    switch = bench.switch("aggregate.p4")
    _marks(switch, 3, CONGESTED, CAPABLE, CONGESTED)
    for chunk in (4, 35, 67):
        _marks(switch, chunk, CAPABLE, CAPABLE, CAPABLE)


@lab_test("A copy that asks for a result gets the mark, too")
def copy(bench: Bench) -> None:
    switch = bench.switch("aggregate.p4")
    _marks(switch, 5, CONGESTED, CAPABLE, CONGESTED)
    _send(switch, 1, 1, 5)
    switch.expect((1, _packet(1, 5, 11, CONGESTED)))
    _marks(switch, 69, CAPABLE, CAPABLE, CAPABLE)
    _send(switch, 0, 10, 5, CONGESTED)
    switch.expect()
    _send(switch, 0, 10, 69)
    switch.expect((1, _packet(0, 69, 11)))


@lab_test("A packet of a sender that is not ECN-capable never gets a mark")
def not_capable(bench: Bench) -> None:
    switch = bench.switch("aggregate.p4")
    _marks(switch, 6, CONGESTED, NOT_CAPABLE, NOT_CAPABLE)


@lab_test("The worker's frames say that it is ECN-capable")
def capable(bench: Bench) -> None:
    worker = bench.python("worker.py")
    worker.new("Worker", 0, WORKERS, [7] * (2 * VALUES))
    bench.step("a worker with a vector of 2 chunks starts")
    frames = worker.call("start")
    bench.check(len(frames) == 2, f"it sent {len(frames)} frames, expected 2")
    for chunk, frame in enumerate(frames):
        ecn = frame[15] & 3
        bench.check(ecn == CAPABLE, f"the ECN bits are {ecn}, expected {CAPABLE}")
        bench.check(frame == bytes(_packet(0, chunk, 7)), "the ECN bits are right, but other bytes changed")


def _follow(bench: Bench, results: Sequence[bool], chunks: int) -> None:
    """Answer a worker's chunks one by one, and compare its window with what it has to be."""
    worker, window = bench.python("worker.py"), Window()
    worker.new("Worker", 0, WORKERS, [0] * (chunks * VALUES))
    bench.step(f"a worker with a vector of {chunks} chunks starts")
    waiting = [Chunk(frame[42:]).chunk for frame in worker.call("start")]
    bench.check(waiting == [0, 1], f"it sent the chunks {waiting}, expected [0, 1]: the window begins at 2")
    for number, marked in enumerate(results):
        chunk = waiting.pop(0)
        left = len(waiting)
        mark = "with" if marked else "without"
        bench.step(f"result {number + 1} arrives, of chunk {chunk}, {mark} a mark")
        frame = bytes(_packet(0, chunk, 0, CONGESTED if marked else CAPABLE))
        waiting += [Chunk(sent[42:]).chunk for sent in worker.call("receive", frame)]
        window.result(marked)
        if number % 5 == 0:
            again = worker.call("receive", frame)
            bench.check(again == [], "the same result arrives once more, and the worker must ignore it")
        for name, expected in (("share", window.share), ("window", window.size)):
            found = worker.call(name)
            bench.check(abs(found - expected) < TOLERANCE, f"{name} is {found:.6g}, expected {expected:.6g}")
        expected = max(left, min(int(window.size), chunks - number - 1))
        bench.check(
            len(waiting) == expected,
            f"{len(waiting)} chunks are in flight, expected {expected}: the window is {window.size:.3g}",
        )


@lab_test("Without marks the window grows by one in each round trip, up to the number of slots", points=2)
def grows(bench: Bench) -> None:
    _follow(bench, [False] * 600, 640)


@lab_test("With marks the window shrinks by half of their smoothed share", points=2)
def shrinks(bench: Bench) -> None:
    results = [False] * 40 + [True, False, False] * 6 + [True] * 30 + [False] * 20
    _follow(bench, results, 160)


@lab_test(
    "A slow uplink with a short queue that marks: hardly anything is lost, and the link is busy", points=3
)
def network(bench: Bench) -> None:
    text = "the uplink has a queue of 4,000 bytes and marks from 1,000 bytes on"
    _all_reduce(bench, 4, 250, text, 0.009, 5, queue_bytes=4000, ecn_bytes=1000)


@lab_test("The program fits a pipeline: no multiplication, one access to each register")
def pipeline(bench: Bench) -> None:
    bench.fits_pipeline("aggregate.p4")


@lab_test("Marks and networks drawn at random", points=3, hidden=True)
def at_random(bench: Bench) -> None:
    for likely in (0.02, 0.1, 0.5):
        _follow(bench, [bench.random.random() < likely for _ in range(200)], 240)
    for workers in (3, 6):
        text = "the uplink loses frames, too"
        _all_reduce(bench, workers, 100, text, 0.2, 60, queue_bytes=5000, ecn_bytes=1500, loss=0.01)
