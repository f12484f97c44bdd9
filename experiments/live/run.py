"""Points on a live network: switches, hosts and links in Mininet, the controller, a process for each worker."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from fanin.controller.connection import Count
from fanin.controller.controller import Controller
from fanin.controller.errors import ControllerError
from fanin.controller.jobs.ledger import Ledger
from fanin.controller.telemetry import Reason, SwitchCounts
from fanin.controller.tree import Job
from fanin.experiments.live.server import ServerProcess, ServerTask
from fanin.experiments.live.usage import usage_of
from fanin.experiments.live.worker_group import Observe, RunError, run_worker_group
from fanin.experiments.live.worker_messages import (
    DIGITS_FILE,
    GIVE_UP,
    Done,
    HostBased,
    InNetwork,
    Task,
    Vectors,
)
from fanin.experiments.models.prediction import predicted_seconds
from fanin.experiments.results.checking import compare_with_promise, durations, oracle_of
from fanin.experiments.results.measured import Measured, mean_window
from fanin.experiments.results.recording import Recording
from fanin.experiments.scenario.compilers import CompiledProgram
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.targets import target
from fanin.experiments.training.digits import load_digits
from fanin.experiments.training.sgd import TrainingConfig
from fanin.p4switch.management.service import ManagementClient
from fanin.testbed.interrupt import run_until_interrupted
from fanin.testbed.load import Processors, link_utilization
from fanin.testbed.mininet_net import MininetNetwork
from fanin.testbed.runs import scratch
from fanin.testbed.worker_process import start_on
from fanin.topologies.model import Host
from fanin.workers.collective import HostBasedAlgorithm
from fanin.workers.host_based.transport import FIRST_PEER_PORT
from fanin.workers.recovery import Pace

TCP_PORT = 5001

# Names of columns, by their names in p4switch/engine/links.py.
_LINK_EVENTS = {
    "loss": "lost",
    "burst": "lost_in_bursts",
    "corrupted": "corrupted",
    "duplicated": "duplicated",
    "reordered": "reordered",
    "queue": "queue_drops",
    "marked": "ecn_marks",
}


def run_live(
    points: Sequence[Settings],
    program: CompiledProgram,
    logs: Path,
    begun: Callable[[Settings], Observe],
    awaited: Callable[[str], None],
    captures: Path | None = None,
) -> list[Measured]:
    """Build the network and the paths that all points share, run the points one after another, and take it down.

    Args:
        points: The points, all on the same network.
        program: The compiled program.
        logs: Folder for the switches' output.
        begun: Called when a point begins; returns the observer of its progress.
        awaited: Called with the name of whatever delays the start of the network.
        captures: Folder for a pcap file of each switch port; None: no captures.

    Returns:
        The measurements of each point.

    Raises:
        RunError: If a worker does not finish.
        NetworkError: If the network cannot be built or a switch dies.
        ControllerError: If a switch cannot be programmed.
        ToolError: If a tool such as the switch software is missing.
    """
    launcher = target(points[0].switch).launcher
    with (
        tempfile.TemporaryDirectory(prefix="run-", dir=scratch()) as name,
        MininetNetwork(points[0].network, launcher, logs, captures, awaited, points[0].loopback) as network,
    ):

        async def run_all() -> list[Measured]:
            folder = Path(name)
            made = (program.p4info, program.device_config, Ledger(folder / "leases.json"), network.patience)
            planner = points[0].implementation.planner(points[0].paths)
            async with Controller(network.topology, *made, planner) as controller:
                live = LiveNetwork(network, controller, folder, logs)
                return [await live.run(point, begun(point)) for point in points]

        return run_until_interrupted(run_all())


class LiveNetwork:
    """A network whose switches are all programmed.

    Args:
        network: The running network.
        controller: The controller of its switches.
        folder: Keeps the recordings of a run until the next one.
        logs: Folder for the output of workers.
    """

    def __init__(self, network: MininetNetwork, controller: Controller, folder: Path, logs: Path) -> None:
        self._network = network
        self._controller = controller
        self._folder = folder
        self._logs = logs

    async def run(self, settings: Settings, observe: Observe) -> Measured:
        """Run one point and check every sum.

        Raises:
            RunError: If a worker does not finish.
            ControllerError: If a switch refuses what it is sent.
            NetworkError: If a switch dies.
        """
        self._network.check()
        pace = target(settings.switch).pace_of(settings)
        await self._controller.set_loss(settings.links.loss, settings.seed)
        before, events_before = await self._controller.counts(), self._link_events(settings)
        processors = Processors()
        try:
            ends = await self._work(settings, pace, observe, processors)
        except RunError as error:
            try:
                now = await self._controller.counts()
                drops = dropped({name: now[name] - before[name] for name in now})
            except ControllerError as unknown:
                drops = f"the switches' drop counters cannot be read: {unknown}"
            raise RunError(f"{error}\n  {drops}") from None
        after, events = await self._controller.counts(), self._link_events(settings)
        counts = {name: after[name] - before[name] for name in after}

        recordings = [Recording.open(self._folder, rank) for rank in range(len(ends))]
        steps, elements = recordings[0].inputs.shape
        errors = compare_with_promise(
            recordings,
            oracle_of(settings, settings.algorithm, pace.window, settings.compression.compressor),
        )
        seconds = durations(recordings)
        traffic = _worker_traffic(settings, counts)
        datagrams = settings.transport != "tcp"
        return Measured(
            seconds=tuple(seconds.tolist()),
            elements=elements,
            wire_bytes_per_worker=traffic.bytes / len(ends) / steps,
            packets_per_worker=traffic.packets / len(ends) / steps,
            retransmissions=sum(end.retransmissions for end in ends),
            drops=_drops(counts),
            link_events={column: count - events_before[column] for column, count in events.items()},
            closed_form_seconds=predicted_seconds(settings, 4 * elements, pace.window),
            curve=ends[0].curve,
            window=pace.window if datagrams else None,
            segments=pace.segments if datagrams else None,
            recovery=pace.recovery(GIVE_UP * self._network.patience) if datagrams else None,
            congestion_window=mean_window([end.congestion_window for end in ends]),
            wait_seconds=float(np.mean([recording.ends - recording.starts for recording in recordings])),
            link_utilization=link_utilization(settings.network, counts, float(seconds.sum())),
            processor_utilization=processors.utilization,
            usage=usage_of(
                settings.network, counts, settings.members, recordings, [end.retransmissions for end in ends]
            ),
            **errors.columns,
        )

    async def _work(
        self, settings: Settings, pace: Pace, observe: Observe, processors: Processors
    ) -> list[Done]:
        """Run all workers to their end and return their results by rank."""
        if settings.training is not None and not (digits := self._folder / DIGITS_FILE).exists():
            load_digits().save(digits)
        hosts = [settings.network.host(name) for name in settings.members]
        grant = None
        collectives: Sequence[InNetwork | HostBased]
        if settings.algorithm == "in-network":
            shared = settings.shared_slots
            grant = await self._controller.grant(
                settings.members,
                slots=shared or pace.window,
                checksums=pace.checksums,
                window=pace.window if shared else None,
                server=next(iter(settings.servers), None),
            )
            job = grant.tree.job
            collectives = [_in_network(rank, host, job, settings, pace) for rank, host in enumerate(hosts)]
        else:
            collectives = [_between_hosts(settings.algorithm, hosts, settings, pace)] * len(hosts)
        work, patience = work_of(settings), self._network.patience
        tasks = [
            Task(rank, len(hosts), self._folder, collective, work, GIVE_UP * patience)
            for rank, collective in enumerate(collectives)
        ]
        server = None
        try:
            if settings.servers:
                assert grant is not None
                server = await self._start_server(settings.servers[0], grant.tree.job, settings, pace)
            start = start_on(self._network, settings.members)

            def check() -> None:
                self._network.check()
                if server is not None:
                    server.check()

            return await run_worker_group(tasks, start, observe, patience, check, processors, self._logs)
        finally:
            if server is not None:
                server.kill()
            self._network.check()
            if grant is not None:
                await grant.withdraw()

    async def _start_server(self, host: str, job: Job, settings: Settings, pace: Pace) -> ServerProcess:
        at = self._network.topology.host(host)
        task = ServerTask(
            lease=job.lease_of(0, settings.values),
            local=(str(at.ip), job.udp_port),
            remote=(str(at.gateway), job.udp_port),
            pace=pace,
            protocol=settings.protocol,
            give_up=GIVE_UP * self._network.patience,
        )
        return await ServerProcess.begin(task, start_on(self._network, [host]), self._logs / "server.log")

    def _link_events(self, settings: Settings) -> dict[str, int]:
        """Return the events so far on the links that switches emulate, by column; BMv2 emulates no links."""
        if settings.switch == "bmv2":
            return {}
        found = Counter(dict.fromkeys(_LINK_EVENTS.values(), 0))
        for switch in settings.network.switches:
            with ManagementClient(f"127.0.0.1:{switch.grpc_port}") as client:
                ports = client.call("Links", {})["ports"]
            for link in (port[side] for port in ports for side in ("egress", "ingress") if side in port):
                counts = link["drops"] | link
                found.update({column: int(counts[kind]) for kind, column in _LINK_EVENTS.items()})
        return dict(found)


def work_of(settings: Settings) -> TrainingConfig | Vectors:
    """Return the work of every worker."""
    if settings.training is not None:
        training = settings.training
        return TrainingConfig(
            epochs=training.epochs,
            batch=training.batch,
            hidden=training.hidden,
            learning_rate=training.learning_rate,
            seed=settings.seed,
            compressor=settings.compression.compressor,
        )
    assert settings.elements is not None
    return Vectors(
        settings.elements, settings.repetitions, settings.seed, settings.protocol, settings.sparsity
    )


def _in_network(rank: int, host: Host, job: Job, settings: Settings, pace: Pace) -> InNetwork:
    return InNetwork(
        lease=job.lease_of(rank, settings.values),
        local=(str(host.ip), job.udp_port),
        remote=(str(host.gateway), job.udp_port),
        pace=pace,
        worker=None if settings.implementation.ours else settings.implementation.worker,
    )


def _between_hosts(
    algorithm: HostBasedAlgorithm, hosts: Sequence[Host], settings: Settings, pace: Pace
) -> HostBased:
    transport = settings.transport or "tcp"
    port = TCP_PORT if transport == "tcp" else FIRST_PEER_PORT
    addresses = tuple((str(host.ip), port) for host in hosts)
    return HostBased(
        algorithm,
        addresses,
        transport,
        settings.shards,
        settings.flows_per_pair,
        pace,
        settings.window_per,
        settings.compression.compressor,
    )


def _worker_traffic(settings: Settings, counts: Mapping[str, SwitchCounts]) -> Count:
    """Return what the workers' hosts sent and received, as counted by the leaves."""
    packets = octets = 0
    topology = settings.network
    for host in map(topology.host, settings.members):
        port = counts[host.leaf].ports[topology.port_towards(host.leaf, host.name)]
        packets += port.received.packets + port.sent.packets
        octets += port.received.bytes + port.sent.bytes
    return Count(packets, octets)


def dropped(counts: Mapping[str, SwitchCounts]) -> str:
    """Describe what each switch has dropped, by reason, for the report of a run that did not finish."""
    found = [
        f"{name} {count.packets} {reason.name}"
        for name, switch in counts.items()
        for reason, count in switch.drops.items()
        if reason is not Reason.NONE and count.packets
    ]
    return f"switches dropped {', '.join(found) or 'nothing'}"


def _drops(counts: Mapping[str, SwitchCounts]) -> dict[str, int]:
    reasons = (reason for reason in Reason if reason is not Reason.NONE)
    return {
        reason.name.lower(): sum(switch.drops[reason].packets for switch in counts.values())
        for reason in reasons
    }
