"""The network of a run in virtual time, what it leaves there to measure, and the error of a run that does not end."""

from __future__ import annotations

from typing import Any

from fanin.controller.telemetry import Reason
from fanin.experiments.scenario.settings import Settings
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import HostModel
from fanin.simulator.fabric import Fabric
from fanin.simulator.network import MakeNetwork

LIMIT = 600.0  # seconds of virtual time for all all-reduces of a run

# Names of columns for events on links, by their names in fanin.simulator.
_LINK_EVENTS = {
    "loss": "lost",
    "burst loss": "lost_in_bursts",
    "corruption": "corrupted",
    "duplication": "duplicated",
    "reordering": "reordered",
    "queue drop": "queue_drops",
    "ECN mark": "ecn_marks",
    "pause": "pauses",
    "storm": "storms",
    "watchdog drop": "watchdog_drops",
}


class UnfinishedError(RuntimeError):
    """A run in virtual time that does not end."""


def host_model(settings: Settings) -> HostModel:
    """Return the delays of a point's hosts."""
    return HostModel(settings.coalescing, settings.tcp.packet_time, settings.tcp_hosts)


def make_fabric(settings: Settings, switch: Engine, make_network: MakeNetwork) -> Fabric:
    """Return the network of a point, on which jobs begin one by one.

    Args:
        settings: The point.
        switch: The program of its switches.
        make_network: Builds the network, with the arguments of VirtualNetwork.
    """
    return Fabric(
        settings.network,
        switch,
        host=host_model(settings),
        seed=settings.seed,
        planner=settings.implementation.planner(settings.paths),
        make_network=make_network,
        priorities=settings.prioritized,
        payload=settings.payload,
        loopback=settings.loopback,
    )


def worker_figures(settings: Settings, fabric: Fabric) -> dict[str, Any]:
    """Return columns of Measured: what workers have sent and received so far, for each all-reduce."""
    shares = len(settings.members) * settings.repetitions
    return {
        "wire_bytes_per_worker": fabric.host_bytes(settings.members) / shares,
        "packets_per_worker": fabric.host_packets(settings.members) / shares,
    }


def network_figures(fabric: Fabric) -> dict[str, Any]:
    """Return columns of Measured: what the network has carried, dropped and marked, once everything is sent."""
    drops = fabric.drops()
    return {
        "drops": {reason.name.lower(): drops[reason] for reason in Reason if reason is not Reason.NONE},
        "link_events": {column: fabric.network.faults[kind] for kind, column in _LINK_EVENTS.items()},
        "packet_hops": fabric.network.hops,
    }
