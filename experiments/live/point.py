"""A point of a scenario on a live network."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from controller.telemetry import Reason, SwitchCounts
from experiments.live.crew import Observe
from experiments.live.run import RunSpec, host_traffic, open_network
from experiments.live.work import DIGITS_FILE, Vectors
from experiments.models.prediction import predicted_seconds
from experiments.results.checking import durations
from experiments.results.measured import Measured
from experiments.results.recording import Recording
from experiments.scenario.compilers import CompiledProgram
from experiments.scenario.settings import Settings
from experiments.scenario.targets import Target, target
from experiments.training.digits import load_digits
from experiments.training.sgd import TrainingConfig
from p4switch.management.service import ManagementClient
from topologies.mininet_net import MininetNetwork
from topologies.runs import scratch

# Columns, by what p4switch/ports/links.py calls them.
_LINK_EVENTS = {
    "loss": "lost",
    "burst": "lost_in_bursts",
    "corrupted": "corrupted",
    "duplicated": "duplicated",
    "reordered": "reordered",
    "queue": "queue_drops",
    "marked": "ecn_marks",
}


def run_live(settings: Settings, program: CompiledProgram, logs: Path, observe: Observe) -> Measured:
    """Build the network, run on it, check every sum, and take the network down.

    logs: where the switches' output goes.

    Raises:
        RunError, NetworkError, ControllerError, ToolError: it did not come to its end.
    """
    on = _target(settings)
    with (
        tempfile.TemporaryDirectory(prefix="run-", dir=scratch()) as name,
        MininetNetwork(settings.network, on.launcher, logs, awaited=partial(observe, 0)) as network,
    ):
        return asyncio.run(_run(settings, program, network, on, Path(name), observe))


async def _run(
    settings: Settings,
    program: CompiledProgram,
    network: MininetNetwork,
    on: Target,
    folder: Path,
    observe: Observe,
) -> Measured:
    work = _work(settings)
    if isinstance(work, TrainingConfig):
        load_digits().save(folder / DIGITS_FILE)
    spec = RunSpec(
        "scenario",
        settings.algorithm,
        work,
        settings.links.loss,
        settings.seed,
        hosts=settings.members,
        transport=settings.transport or "tcp",
        shards=settings.shards,
        values=settings.values,
    )
    async with open_network(network, program.p4info, program.device_config, folder, on) as live:
        before = await live.counts()
        run = await live.run(spec, observe)
        after = await live.counts()
        events = _link_events(settings) if settings.switch == "embedded" else {}
    recordings = [Recording.open(folder, rank) for rank in range(run.workers)]
    counts = {name: after[name] - before[name] for name in after}
    return Measured(
        seconds=tuple(durations(recordings).tolist()),
        elements=run.elements,
        wire_bytes_per_worker=run.wire_bytes_per_worker,
        packets_per_worker=host_traffic(settings.network, before, after).packets
        / run.workers
        / run.all_reduces,
        retransmissions=run.retransmissions,
        drops=_drops(counts),
        link_events=events,
        violations=run.violations,
        max_abs_error=run.max_abs_error,
        error_bound=run.error_bound,
        closed_form_seconds=predicted_seconds(settings, 4 * run.elements, on.on_slow_links.window),
        accuracy=run.accuracy,
    )


def _link_events(settings: Settings) -> dict[str, int]:
    """What the links that switches emulate did since the network was built, by column; zeros if there are none."""
    found = Counter(dict.fromkeys(_LINK_EVENTS.values(), 0))
    for switch in settings.network.switches:
        with ManagementClient(f"127.0.0.1:{switch.grpc_port}") as client:
            ports = client.call("Links", {})["ports"]
        for link in (port[side] for port in ports for side in ("egress", "ingress") if side in port):
            counts = link["drops"] | link
            found.update({column: int(counts[kind]) for kind, column in _LINK_EVENTS.items()})
    return dict(found)


def _work(settings: Settings) -> TrainingConfig | Vectors:
    if settings.training is not None:
        return TrainingConfig(**settings.training.model_dump(), seed=settings.seed)
    assert settings.elements is not None
    return Vectors(settings.elements, settings.repetitions, settings.seed)


def _target(settings: Settings) -> Target:
    """The switch, its workers' pace on these links as the settings have it."""
    on = target(settings.switch)
    changes = settings.recovery.model_dump(exclude_none=True) | {"checksums": settings.checksums}
    if settings.window is not None:
        changes["window"] = settings.window
    (link,) = settings.network.links_of(settings.members[0])
    pace = replace(on.pace(link.rate_bits_per_second), **changes)
    return replace(on, on_slow_links=pace, on_fast_links=pace, on_unlimited_links=pace)


def _drops(counts: Mapping[str, SwitchCounts]) -> dict[str, int]:
    reasons = (reason for reason in Reason if reason is not Reason.NONE)
    return {
        reason.name.lower(): sum(switch.drops[reason].packets for switch in counts.values())
        for reason in reasons
    }
