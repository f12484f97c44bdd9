"""The same flows in ns-3 and in virtual time: what each does in a second of processor, and when flows arrive.

A flow from each host to another one, all at once; hosts below leaves that one spine joins, so that there is one path.
ns-3's go by TCP (BulkSend, PacketSink), ours by the transport of host-based all-reduce and through the compiled P4
program in every switch.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np

from fanin.experiments.results.provenance import machine
from fanin.native.files import write_json
from fanin.simulator.fabric import Fabric, load_switch
from fanin.simulator.flows import Flows, FlowSpec
from fanin.topologies.shapes import leaf_spine
from fanin.workers.host_based.transport import PAYLOAD
from fanin.workers.recovery import Recovery

LIMIT = 10.0  # seconds of virtual time
_FIGURES = ("events_per_processor_second", "median_seconds", "longest_seconds")


class Ns3Error(RuntimeError):
    """ns-3 has not run."""


@dataclass(frozen=True, slots=True)
class Network:
    """leaves: of so many hosts each; rates in bits per second, the delay of a link in seconds."""

    leaves: int = 4
    hosts: int = 16
    host_rate: int = 100 * 10**9
    uplink_rate: int = 1600 * 10**9
    delay: float = 1e-6


@dataclass(frozen=True, slots=True)
class Work:
    """destinations: by host, numbered leaf by leaf. size: bytes of a flow. window: most of its packets under way."""

    network: Network
    destinations: tuple[int, ...]
    size: int = 2_000_000
    window: int = 256


@dataclass(frozen=True, slots=True)
class Run:
    """One simulator's. events: what it counts as one; packet_hops: packets that left a device for a link.

    processor_seconds: of the run alone. seconds: from the beginning until a flow has arrived, by its source.
    """

    events: int
    packet_hops: int
    processor_seconds: float
    seconds: list[float]

    @property
    def events_per_processor_second(self) -> float:
        """How fast it is."""
        return self.events / self.processor_seconds

    @property
    def median_seconds(self) -> float:
        """Of the flows."""
        return median(self.seconds)

    @property
    def longest_seconds(self) -> float:
        """Of the flows."""
        return max(self.seconds)


def permuted(network: Network, seed: int = 0) -> Work:
    """Each host sends to another one, and hears of another one."""
    ring = np.random.default_rng(seed).permutation(network.leaves * network.hosts)
    destinations = np.empty_like(ring)
    destinations[ring] = np.roll(ring, -1)
    return Work(network, tuple(destinations.tolist()))


def run_ours(work: Work) -> Run:
    """In virtual time.

    Raises:
        Ns3Error: flows have not arrived.
    """
    network = work.network
    topology = leaf_spine(
        *(1, network.leaves, network.hosts),
        rate=network.host_rate,
        uplink_rate=network.uplink_rate,
        properties={"delay": network.delay},
    )
    hosts = [host.name for host in topology.ranked_hosts]
    flows = [
        FlowSpec(source=source, destination=hosts[to], size=work.size)
        for source, to in zip(hosts, work.destinations, strict=True)
    ]
    fabric = Fabric(topology, load_switch())
    running = Flows(fabric, flows, window=work.window, recovery=Recovery())
    begun = time.process_time()
    if not running.run(LIMIT):
        raise Ns3Error(f"flows have not arrived after {LIMIT:g} s of virtual time")
    spent = time.process_time() - begun
    hops = fabric.network.hops
    return Run(hops + fabric.network.wakes, hops, spent, [flow.seconds for flow in running.completed])


def run_theirs(work: Work, python: Path) -> Run:
    """In ns-3, which this `python` has.

    Raises:
        Ns3Error: it failed.
    """
    network = work.network
    asked = {
        "leaves": network.leaves,
        "destinations": work.destinations,
        "size": work.size,
        "host_rate": network.host_rate,
        "uplink_rate": network.uplink_rate,
        "delay": network.delay,
        "segment": PAYLOAD,
        "window": work.window,
    }
    command = [str(python), "-P", str(Path(__file__).with_name("theirs.py"))]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    if done.returncode:
        raise Ns3Error(f"{python}: {(done.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
    return Run(**json.loads(done.stdout.splitlines()[-1]))


def bench(python: Path, progress: Callable[[str, Run], None], folder: Path) -> Path:
    """Both, of which each is told; the file with the results.

    Raises:
        Ns3Error: see run_ours() and run_theirs().
    """
    work = permuted(Network())
    runs = {}
    for name, run in (("virtual time", run_ours(work)), ("ns-3", run_theirs(work, python))):
        progress(name, run)
        runs[name] = asdict(run) | {name: getattr(run, name) for name in _FIGURES}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "ns-3.json"
    document = {"work": asdict(work), "runs": runs, "machine": machine()}
    write_json(document, path)
    return path
