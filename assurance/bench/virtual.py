"""Speed of virtual time: one all-reduce through racks of 32 workers, from 8 to 1,024 workers."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from fanin.experiments.models.expected_sums import QuantizedSum, QuantizedSums
from fanin.experiments.results.provenance import machine
from fanin.native.files import write_json
from fanin.simulator import VirtualNetwork
from fanin.simulator.fabric import Cluster, load_switch
from fanin.simulator.hosts.stations import Vector
from fanin.simulator.job_spec import ClusterSpec
from fanin.topologies.shapes import leaf_spine

RACK = 32
HOST_RATE, UPLINK_RATE = 100 * 10**9, 400 * 10**9
WINDOW = 512
WORKERS = (8, 64, 256, 1024)
ELEMENTS = 1 << 20  # float32: 4 MiB
ROUNDS = 3  # the fastest counts
SLAB = 1 << 14  # elements checked together: whole blocks


HEADINGS = ("cores", "packet-hops", "s", "hops/s", "hops/\nCPU s", "MB", "virtual\nms", "sums")


@dataclass(frozen=True, slots=True)
class BenchPoint:
    """One all-reduce. `seconds` and `processor_seconds` are real time of the run alone; memory is of the whole process.

    Attributes:
        cores: How many cores could share the work.
        barriers: How often cores have waited for one another.
        events: Packets that arrived and hosts that woke.
        exact: Whether every sum was exact, and bit for bit the same everywhere.
    """

    workers: int
    racks: int
    cores: int
    barriers: int
    elements: int
    virtual_seconds: float
    seconds: float
    processor_seconds: float
    packet_hops: int
    packet_hops_per_second: float
    packet_hops_per_processor_second: float
    events: int
    events_per_second: float
    peak_bytes: int
    bytes_per_worker: float
    retransmissions: int
    exact: bool

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the values below HEADINGS."""
        return (
            str(self.cores),
            f"{self.packet_hops:,}",
            f"{self.seconds:.1f}",
            f"{self.packet_hops_per_second:,.0f}",
            f"{self.packet_hops_per_processor_second:,.0f}",
            f"{self.peak_bytes / 1e6:,.0f}",
            f"{self.virtual_seconds * 1e3:,.4g}",
            "right" if self.exact else "WRONG",
        )


def measure(workers: int, elements: int = ELEMENTS, cores: int = 1) -> BenchPoint:
    """Run one all-reduce of `elements` float32 by `workers` workers, and check it."""
    racks = -(-workers // RACK)
    topology = leaf_spine(int(racks > 1), racks, workers // racks, rate=HOST_RATE, uplink_rate=UPLINK_RATE)
    inputs = [_input(rank, elements) for rank in range(workers)]
    spec = ClusterSpec(topology, window=WINDOW)
    exact = _exact(spec, inputs)
    make_network = partial(VirtualNetwork, cores=cores)
    cluster = Cluster(spec, load_switch(), [inputs], in_place=True, make_network=make_network)
    begun, begun_processor = time.perf_counter(), time.process_time()
    finished = cluster.run(limit=10.0)
    seconds, processor = time.perf_counter() - begun, time.process_time() - begun_processor
    network = cluster.network
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    events = network.hops + network.wakes
    return BenchPoint(
        workers=workers,
        racks=racks,
        cores=cores,
        barriers=network.barriers,
        elements=elements,
        virtual_seconds=max(s.ended[0] for s in cluster.stations) if finished else float("inf"),
        seconds=seconds,
        processor_seconds=processor,
        packet_hops=network.hops,
        packet_hops_per_second=network.hops / seconds,
        packet_hops_per_processor_second=network.hops / processor,
        events=events,
        events_per_second=events / seconds,
        peak_bytes=peak,
        bytes_per_worker=peak / workers,
        retransmissions=sum(s.worker.statistics.retransmissions for s in cluster.stations),
        exact=finished and _right([station.outputs[0] for station in cluster.stations], exact),
    )


def _exact(spec: ClusterSpec, inputs: Sequence[Vector]) -> list[QuantizedSum]:
    """Return the exact sums by slabs, which take little memory."""
    parts = range(0, len(inputs[0]), SLAB)
    sums = QuantizedSums(spec.values, 0, len(inputs))
    return [sums.next([x[first : first + SLAB] for x in inputs]) for first in parts]


def _right(outputs: Sequence[Vector], exact: Sequence[QuantizedSum]) -> bool:
    first = outputs[0]
    alike = all(np.array_equal(output.view(np.int32), first.view(np.int32)) for output in outputs)
    slabs = np.split(first, range(SLAB, len(first), SLAB))
    return alike and not any(one.wrong(slab).any() for one, slab in zip(exact, slabs, strict=True))


def _input(rank: int, elements: int) -> Vector:
    draw = np.random.Generator(np.random.PCG64(rank))
    return draw.random(elements, np.float32) * np.float32(2) - np.float32(1)


def bench(workers: Sequence[int], cores: int, progress: Callable[[BenchPoint], None]) -> list[BenchPoint]:
    """Return a point for each number of workers, the fastest of ROUNDS.

    With several cores, there is another point for one core, and the two take turns.
    """
    points = []
    for count in workers:
        rounds = [[_apart(count, several) for several in sorted({1, cores})] for _ in range(ROUNDS)]
        for several in zip(*rounds, strict=True):
            fastest = min(several, key=lambda point: point.processor_seconds)
            points.append(replace(fastest, exact=all(point.exact for point in several)))
            progress(points[-1])
    return points


def _apart(workers: int, cores: int) -> BenchPoint:
    """Measure in a separate process, so that the memory is only that of the run."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, workers, ELEMENTS, cores).result()


def write(points: Sequence[BenchPoint], folder: Path) -> None:
    """Write virtual.json into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {"points": [asdict(point) for point in points], "machine": machine()}
    write_json(document, folder / "virtual.json")
