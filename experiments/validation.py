"""The same all-reduces live and in virtual time, and what the bytes alone say: do the two worlds agree?"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from experiments.compilers import CompiledProgram
from experiments.live import RunSpec, open_network
from experiments.results import Run, machine
from experiments.targets import EMBEDDED
from experiments.virtual import HEADERS, Cluster, ClusterSpec
from experiments.work import Pace, Vectors
from p4switch.engine import Engine
from topologies.mininet_net import MininetNetwork
from topologies.model import Topology, leaf_spine
from topologies.virtual import HostModel, LinkModel
from workers import wire
from workers.recovery import Recovery

TOLERANCE = 0.1

# What a packet needs on a live link besides its bits, through a virtual Ethernet pair and a switch in a process; and
# how long a worker's process takes to have its turn. Small against the times compared.
LINK_DELAY, TURN = 50e-6, 50e-6

# Two cores sustain eight workers on such links with ease.
RATE = 20_000_000
# A frame of many segments waits at each hop until all of it has come, which virtual time knows nothing of.
TARGET = replace(EMBEDDED, on_slow_links=Pace(window=256, segments=8))
SHAPES = ((0, 1, 2), (0, 1, 4), (1, 2, 2), (0, 1, 8), (2, 2, 4))  # spines, leaves, hosts on each
VECTORS = Vectors(elements=200_000, repetitions=3)


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one all-reduce: seconds (median), a worker's bytes in frames, both ways; retransmissions of all workers."""

    seconds: float
    wire_bytes: float
    retransmissions: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One point in both worlds, and `theory`: seconds of the bytes of one worker's packets on its link."""

    topology: str
    workers: int
    elements: int
    live: Measured
    virtual: Measured
    theory: float

    @property
    def deviation(self) -> float:
        """Of virtual time from live time, as a share of the latter."""
        return self.virtual.seconds / self.live.seconds - 1

    @property
    def agrees(self) -> bool:
        """Within the tolerance in time; in bytes exactly, unless something was sent again."""
        again = self.live.retransmissions or self.virtual.retransmissions
        same_bytes = bool(again) or self.live.wire_bytes == self.virtual.wire_bytes
        return abs(self.deviation) <= TOLERANCE and same_bytes


def run_live(topology: Topology, program: CompiledProgram, logs: Path) -> Measured:
    """On a network of namespaces; RunError, NetworkError, ControllerError as a demo's run."""
    with (
        tempfile.TemporaryDirectory(prefix="validation-") as folder,
        MininetNetwork(topology, TARGET.launcher, logs) as network,
    ):

        async def run() -> Run:
            config = program.device_config
            async with open_network(network, program.p4info, config, Path(folder), TARGET) as live:
                return await live.run(RunSpec("validation", "in-network", VECTORS), lambda _step: None)

        done = asyncio.run(run())
    return Measured(done.seconds.median, done.wire_bytes_per_worker, done.retransmissions)


def run_virtual(topology: Topology, switch: Engine) -> Measured:
    """The same work: before each vector one element, as a barrier."""
    pace = TARGET.pace(RATE)
    workers = len(topology.hosts)
    draws = [np.random.default_rng((VECTORS.seed, rank)) for rank in range(workers)]
    barrier = [np.zeros(1, np.float32)] * workers
    inputs = []
    for _ in range(VECTORS.repetitions):
        vectors = [draw.standard_normal(VECTORS.elements, dtype=np.float32) for draw in draws]
        inputs += [barrier, vectors]
    spec = ClusterSpec(
        topology,
        window=pace.window,
        links=LinkModel(LINK_DELAY, overhead=0),
        host=HostModel(TURN),
        recovery=Recovery(initial_rto=pace.initial_rto, min_rto=pace.min_rto),
    )
    cluster = Cluster(spec, switch, inputs)
    if not cluster.run(limit=600.0):
        raise RuntimeError(f"{topology.name}: not finished after 600 s of virtual time")
    began = np.max([station.began[1::2] for station in cluster.stations], axis=0)
    ended = np.max([station.ended[1::2] for station in cluster.stations], axis=0)
    return Measured(
        float(np.median(ended - began)),
        cluster.host_bytes() / workers / VECTORS.repetitions,
        sum(station.worker.statistics.retransmissions for station in cluster.stations),
    )


def theory(window: int) -> float:
    """Seconds that the frames of one worker take on its link: a window without values, then all blocks."""
    sizes = {values: HEADERS + size for size, values in wire.VALUES.items()}
    blocks = -(-VECTORS.elements // 256)
    return 8 * (min(window, blocks) * sizes[64] + blocks * sizes[256]) / RATE


def compare(
    program: CompiledProgram, switch: Engine, logs: Path, progress: Callable[[Comparison], None]
) -> list[Comparison]:
    """Every shape, live and virtual."""
    found = []
    for spines, leaves, hosts in SHAPES:
        topology = leaf_spine(spines, leaves, hosts, rate=RATE)
        comparison = Comparison(
            topology.name,
            len(topology.hosts),
            VECTORS.elements,
            run_live(topology, program, logs),
            run_virtual(topology, switch),
            theory(TARGET.pace(RATE).window),
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
