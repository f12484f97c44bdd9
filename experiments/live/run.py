"""Runs on a live network: switches, hosts and links in Mininet, the controller, a process for each worker."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from controller.connection import Count
from controller.controller import Controller
from controller.ledger import Ledger
from controller.telemetry import SwitchCounts
from controller.tree import Job
from experiments.live.crew import Observe, Start, run_crew
from experiments.live.work import (
    GIVE_UP,
    HostBased,
    InNetwork,
    LiveTransport,
    Pace,
    Task,
    Vectors,
)
from experiments.results.checking import (
    compare_with_exact_sum,
    durations,
    float32_sum_bound,
    quantized_sum_bound,
)
from experiments.results.recording import Recording
from experiments.results.summary import Run, Seconds
from experiments.scenario.targets import EMBEDDED, Target
from experiments.training.sgd import TrainingConfig
from experiments.virtual.stations import FIRST_PEER_PORT
from topologies.mininet_net import MininetNetwork
from topologies.model import Host, Topology
from workers.collective import Algorithm, HostBasedAlgorithm

TCP_PORT = 5001


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What to run: an algorithm, the probability of loss for each packet on each link, and the work.

    hosts: the workers' by rank; None: all of the network. transport, shards: of what runs between hosts.
    values: integers in a packet, in-network.
    """

    name: str
    algorithm: Algorithm
    work: TrainingConfig | Vectors
    loss: float = 0.0
    seed: int = 1
    hosts: tuple[str, ...] | None = None
    transport: LiveTransport = "tcp"
    shards: int | None = None
    values: int = 256


class LiveNetwork:
    """`network` with all its switches, which are `target`'s, programmed; made by `open_network`."""

    def __init__(self, network: MininetNetwork, controller: Controller, target: Target, folder: Path) -> None:
        self.topology: Topology = network.topology
        self._target = target
        self._network = network
        self._controller = controller
        self._folder = folder

    async def run(self, spec: RunSpec, observe: Observe) -> Run:
        """One run, checked against the exact sums.

        Raises:
            RunError: a worker did not finish. ControllerError: a switch refused. NetworkError: a switch died.
        """
        hosts = self._hosts(spec)
        await self._controller.set_loss(spec.loss, spec.seed)
        before = await self._controller.counts()
        if spec.algorithm == "in-network":
            lease = await self._controller.grant([host.name for host in hosts], slots=self._pace.window)
            tasks = [
                self._task(spec, rank, self._in_network(host, lease.tree.job, spec.values))
                for rank, host in enumerate(hosts)
            ]
        else:
            lease = None
            between = self._host_based(spec.algorithm, spec, hosts)
            tasks = [self._task(spec, rank, between) for rank in range(len(hosts))]
        try:
            ends = await run_crew(tasks, self._start_on(hosts), observe, self._network.patience)
        finally:
            self._network.check()
            if lease is not None:
                await lease.withdraw()
        after = await self._controller.counts()

        recordings = [Recording.open(self._folder, rank) for rank in range(len(hosts))]
        steps, elements = recordings[0].inputs.shape
        quantized = partial(quantized_sum_bound, values=spec.values, window=self._pace.window)
        errors = compare_with_exact_sum(
            recordings, quantized if spec.algorithm == "in-network" else float32_sum_bound
        )
        times = durations(recordings)
        median = float(np.median(times))
        curve = ends[0].curve
        return Run(
            name=spec.name,
            algorithm=spec.algorithm,
            workers=len(hosts),
            loss=spec.loss,
            elements=elements,
            all_reduces=steps,
            seconds=Seconds(median, float(np.percentile(times, 95))),
            goodput_bits_per_second=32 * elements / median,
            wire_bytes_per_worker=host_traffic(self.topology, before, after).bytes / len(hosts) / steps,
            retransmissions=sum(end.retransmissions for end in ends),
            max_abs_error=errors.largest,
            error_bound=errors.bound,
            violations=errors.violations,
            accuracy=None if curve is None else curve.accuracy[-1],
            reference_accuracy=None,
            engine=self._target.engine,
            link_bits_per_second=self._rate,
            curve=curve,
        )

    async def counts(self) -> Mapping[str, SwitchCounts]:
        """What each switch has counted since its program was pushed."""
        return await self._controller.counts()

    @property
    def _rate(self) -> int | None:
        """Of the hosts' links."""
        host = self.topology.ranked_hosts[0]
        return self.topology.links_of(host.name)[0].rate_bits_per_second

    @property
    def _pace(self) -> Pace:
        return self._target.pace(self._rate)

    def _in_network(self, host: Host, job: Job, values: int) -> InNetwork:
        return InNetwork(
            lease=job.lease,
            first_slot=job.base,
            first_chunk=job.first_chunk,
            last_chunk=job.last_chunk,
            local=(str(host.ip), job.udp_port),
            remote=(str(host.gateway), job.udp_port),
            pace=self._pace,
            values=values,
        )

    def _host_based(self, algorithm: HostBasedAlgorithm, spec: RunSpec, hosts: Sequence[Host]) -> HostBased:
        port = TCP_PORT if spec.transport == "tcp" else FIRST_PEER_PORT
        addresses = tuple((str(host.ip), port) for host in hosts)
        return HostBased(algorithm, addresses, spec.transport, spec.shards, self._pace)

    def _task(self, spec: RunSpec, rank: int, collective: InNetwork | HostBased) -> Task:
        give_up = GIVE_UP * self._network.patience
        return Task(rank, len(self._hosts(spec)), self._folder, collective, spec.work, give_up)

    def _hosts(self, spec: RunSpec) -> Sequence[Host]:
        if spec.hosts is None:
            return self.topology.ranked_hosts
        return [self.topology.host(name) for name in spec.hosts]

    def _start_on(self, hosts: Sequence[Host]) -> Start:
        def start(rank: int, argv: Sequence[str], options: dict[str, Any]) -> subprocess.Popen[bytes]:
            return self._network.host_popen(hosts[rank].name, argv, **options)

        return start


def host_traffic(
    topology: Topology, before: Mapping[str, SwitchCounts], after: Mapping[str, SwitchCounts]
) -> Count:
    """What all hosts sent and received in between, as the leaves counted it."""
    packets = octets = 0
    for host in topology.hosts:
        port = topology.port_towards(host.leaf, host.name)
        counts = after[host.leaf].ports[port] - before[host.leaf].ports[port]
        packets += counts.received.packets + counts.sent.packets
        octets += counts.received.bytes + counts.sent.bytes
    return Count(packets, octets)


@asynccontextmanager
async def open_network(
    network: MininetNetwork, p4info: Any, device_config: bytes, folder: Path, target: Target = EMBEDDED
) -> AsyncIterator[LiveNetwork]:
    """Program the switches of a running `network`; `folder` keeps recordings until the next run, and the ledger."""
    ledger = Ledger(folder / "leases.json")
    async with Controller(network.topology, p4info, device_config, ledger, network.patience) as controller:
        yield LiveNetwork(network, controller, target, folder)
