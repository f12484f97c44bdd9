"""The same all-reduces live and in virtual time, and what the closed form says: do the two worlds agree?"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from controller.plan import plan_loss
from experiments.live.run import RunSpec, host_traffic, open_network
from experiments.live.work import Pace, Vectors
from experiments.results.summary import machine
from experiments.scenario.compilers import CompiledProgram
from experiments.scenario.targets import EMBEDDED
from experiments.virtual.fabric import Cluster, ClusterSpec, install
from experiments.virtual.stations import HEADERS
from p4switch.engine.engine import Engine
from topologies.mininet_net import MininetNetwork
from topologies.model import Topology, leaf_spine
from topologies.virtual import HostModel, LinkModel
from workers import wire
from workers.recovery import Recovery

TOLERANCE = 0.1
# Which packets are lost differs, and the last ones of an all-reduce cost a timeout.
TOLERANCE_WITH_LOSS = 0.15

# What a packet needs on a live link besides its bits, through a virtual Ethernet pair and a switch in a process; and
# how long a worker's process takes to have its turn. Small against the times compared.
LINK_DELAY, TURN = 50e-6, 50e-6

# Two cores sustain eight workers on such links with ease.
RATE = 20_000_000
VECTORS = Vectors(elements=200_000, repetitions=5)
SEED = 1


@dataclass(frozen=True, slots=True)
class Point:
    """A leaf-spine network (hosts on each leaf), the probability of loss for each packet on each link, and the work."""

    spines: int
    leaves: int
    hosts: int
    loss: float = 0.0
    vectors: Vectors = VECTORS

    @property
    def topology(self) -> Topology:
        """Its network."""
        return leaf_spine(self.spines, self.leaves, self.hosts, rate=RATE)

    @property
    def pace(self) -> Pace:
        """How workers send.

        A frame of many segments comes in one piece, of which virtual time knows nothing: they are few. Where nothing
        is lost, nothing may be sent again because some process has waited long for its turn.
        """
        pace = Pace(window=64, segments=8)
        return pace if self.loss else replace(pace, initial_rto=1.0, min_rto=0.5)


POINTS = (
    *(Point(0, 1, 2), Point(0, 1, 4), Point(1, 2, 2), Point(0, 1, 8), Point(2, 2, 4)),
    *(Point(0, 1, 2, loss=0.01), Point(1, 2, 2, loss=0.001), Point(1, 2, 2, loss=0.01)),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one all-reduce: seconds (median); a worker's frames and their bytes, both ways; all retransmissions."""

    seconds: float
    wire_packets: float
    wire_bytes: float
    retransmissions: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One point in both worlds, and the seconds that the closed form gives it, which knows of no loss."""

    topology: str
    workers: int
    loss: float
    elements: int
    live: Measured
    virtual: Measured
    closed_form: float

    @property
    def deviation(self) -> float:
        """Of virtual time from live time, as a share of the latter."""
        return self.virtual.seconds / self.live.seconds - 1

    @property
    def agrees(self) -> bool:
        """Within the tolerance in time; without loss, exactly in packets and bytes."""
        if self.loss:
            return abs(self.deviation) <= TOLERANCE_WITH_LOSS
        live, virtual = self.live, self.virtual
        same = (live.wire_packets, live.wire_bytes) == (virtual.wire_packets, virtual.wire_bytes)
        return same and abs(self.deviation) <= TOLERANCE


def run_live(point: Point, program: CompiledProgram, logs: Path) -> Measured:
    """On a network of namespaces; RunError, NetworkError, ControllerError as a demo's run."""
    topology = point.topology
    target = replace(EMBEDDED, on_slow_links=point.pace)
    spec = RunSpec("validation", "in-network", point.vectors, loss=point.loss, seed=SEED)
    with (
        tempfile.TemporaryDirectory(prefix="validation-") as folder,
        MininetNetwork(topology, target.launcher, logs) as network,
    ):

        async def run() -> Measured:
            config = program.device_config
            async with open_network(network, program.p4info, config, Path(folder), target) as live:
                before = await live.counts()
                done = await live.run(spec, lambda _step, _awaited: None)
                packets = host_traffic(topology, before, await live.counts()).packets
            return Measured(
                done.seconds.median,
                packets / done.workers / done.all_reduces,
                done.wire_bytes_per_worker,
                done.retransmissions / done.all_reduces,
            )

        return asyncio.run(run())


def run_virtual(point: Point, switch: Engine) -> Measured:
    """The same work: before each vector one element, as a barrier. Losses are drawn by the program, as live."""
    topology, pace, work = point.topology, point.pace, point.vectors
    workers = len(topology.hosts)
    draws = [np.random.default_rng((work.seed, rank)) for rank in range(workers)]
    barrier = [np.zeros(1, np.float32)] * workers
    inputs = []
    for _ in range(work.repetitions):
        vectors = [draw.standard_normal(work.elements, dtype=np.float32) for draw in draws]
        inputs += [barrier, vectors]
    spec = ClusterSpec(
        topology,
        window=pace.window,
        links=LinkModel(LINK_DELAY, overhead=0),
        host=HostModel(TURN),
        recovery=Recovery(initial_rto=pace.initial_rto, min_rto=pace.min_rto),
    )
    cluster = Cluster(spec, switch, inputs)
    for name, part in plan_loss(topology, point.loss, SEED).items():
        install(cluster.engines[name], part.items)
    if not cluster.run(limit=600.0):
        raise RuntimeError(f"{topology.name}: not finished after 600 s of virtual time")
    began = np.max([station.began[1::2] for station in cluster.stations], axis=0)
    ended = np.max([station.ended[1::2] for station in cluster.stations], axis=0)
    return Measured(
        float(np.median(ended - began)),
        cluster.host_packets() / workers / work.repetitions,
        cluster.host_bytes() / workers / work.repetitions,
        sum(s.worker.statistics.retransmissions for s in cluster.stations) / work.repetitions,
    )


def closed_form(point: Point) -> float:
    """Seconds that it takes without loss: a round trip, and the bytes of one worker's packets on its link or, if that
    is longer, the turns of the window.

    Source: SwitchML (NSDI'21), section 3; a window without values goes first, then all blocks.
    """
    small, large = (8 * (HEADERS + size) / RATE for size in sorted(wire.VALUES))
    blocks = -(-point.vectors.elements // 256)
    window = min(point.pace.window, blocks)
    links = 2 if point.leaves == 1 else 4
    round_trip = links * (large + LINK_DELAY) + TURN
    turns = (blocks + window) / window
    return round_trip + max(window * small + blocks * large, turns * round_trip)


def compare(
    program: CompiledProgram, switch: Engine, logs: Path, progress: Callable[[Comparison], None]
) -> list[Comparison]:
    """Every point, live and virtual."""
    found = []
    for point in POINTS:
        comparison = Comparison(
            point.topology.name,
            len(point.topology.hosts),
            point.loss,
            point.vectors.elements,
            run_live(point, program, logs),
            run_virtual(point, switch),
            closed_form(point),
        )
        found.append(comparison)
        progress(comparison)
    return found


def write(comparisons: Sequence[Comparison], folder: Path) -> None:
    """summary.json into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    points = [asdict(c) | {"deviation": c.deviation, "agrees": c.agrees} for c in comparisons]
    document = {"points": points, "link_bits_per_second": RATE, "machine": machine()}
    (folder / "summary.json").write_text(json.dumps(document, indent=2) + "\n")
