"""The same flows in ns-3 and in virtual time: events per second of processor time, and when flows arrive.

Each host sends one flow to another host, all at the same time. The hosts attach to leaves that one spine joins, so that
there is only one path. ns-3's flows use TCP (BulkSend, PacketSink). Ours use the transport of host-based all-reduce,
through the compiled P4 program in every switch.
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
    """The network. Rates are in bits/s.

    Attributes:
        leaves: Number of leaves.
        hosts: Number of hosts on each leaf.
        host_rate: Rate of the hosts' links.
        uplink_rate: Rate of the leaves' uplinks.
        delay: Delay of each link in seconds.
    """

    leaves: int = 4
    hosts: int = 16
    host_rate: int = 100 * 10**9
    uplink_rate: int = 1600 * 10**9
    delay: float = 1e-6


@dataclass(frozen=True, slots=True)
class Ns3Work:
    """The flows.

    Attributes:
        network: The network.
        destinations: Destination of each host's flow; hosts are numbered leaf by leaf.
        size: Bytes of a flow.
        window: Maximum number of packets in flight per flow.
    """

    network: Network
    destinations: tuple[int, ...]
    size: int = 2_000_000
    window: int = 256


RUN_HEADINGS = ("packet-hops", "events", "CPU s", "events/\nCPU s", "median ms", "longest ms")


@dataclass(frozen=True, slots=True)
class Run:
    """The results of one simulator.

    Attributes:
        events: Number of events, as the simulator counts them.
        packet_hops: Packets that left a device for a link.
        processor_seconds: Processor time of the run alone.
        seconds: Time from the beginning until the flow of each source has arrived.
    """

    events: int
    packet_hops: int
    processor_seconds: float
    seconds: list[float]

    @property
    def events_per_processor_second(self) -> float:
        """Return its speed."""
        return self.events / self.processor_seconds

    @property
    def median_seconds(self) -> float:
        """Return the median time of the flows."""
        return median(self.seconds)

    @property
    def longest_seconds(self) -> float:
        """Return the longest time of the flows."""
        return max(self.seconds)

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the values below RUN_HEADINGS."""
        return (
            f"{self.packet_hops:,}",
            f"{self.events:,}",
            f"{self.processor_seconds:.2f}",
            f"{self.events_per_processor_second:,.0f}",
            f"{self.median_seconds * 1e3:,.4g}",
            f"{self.longest_seconds * 1e3:,.4g}",
        )


def permuted(network: Network, seed: int = 0) -> Ns3Work:
    """Draw flows so that each host sends to one other host, and receives from one other host."""
    ring = np.random.default_rng(seed).permutation(network.leaves * network.hosts)
    destinations = np.empty_like(ring)
    destinations[ring] = np.roll(ring, -1)
    return Ns3Work(network, tuple(destinations.tolist()))


def run_ours(work: Ns3Work) -> Run:
    """Run the flows in virtual time.

    Raises:
        Ns3Error: Flows have not arrived.
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


def run_theirs(work: Ns3Work, python: Path) -> Run:
    """Run the flows in ns-3, in a `python` that has it.

    Raises:
        Ns3Error: It failed.
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
        raise Ns3Error(f"{python}: {(done.stderr.strip().splitlines() or ['no error message'])[-1]}")
    return Run(**json.loads(done.stdout.splitlines()[-1]))


def bench(python: Path, progress: Callable[[str, Run], None], folder: Path) -> Path:
    """Run both simulators, and return the file with the results; `progress` is called after each.

    Raises:
        Ns3Error: See run_ours() and run_theirs().
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
