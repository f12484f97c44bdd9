"""Flows in virtual time compared with the same flows in htsim, a simulator of datacenter transports.

htsim: github.com/Broadcom/csg-htsim at 841d9e7, `htsim_eqds -tm CASE.cm` with the traffic and options of
sim/datacenter/validate.txt, built and run on 2026-11-23. Its times are those of the last flow.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fanin.assurance.validation.lossless_incast import Victim
from fanin.controller.plan import PathChoice, plan_forwarding
from fanin.controller.planner import OURS
from fanin.experiments.virtual.outcome import UnfinishedError
from fanin.native.files import write_json
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import HostModel
from fanin.simulator.fabric import Fabric
from fanin.simulator.flows import Flows, FlowSpec
from fanin.topologies.shapes import fat_tree
from fanin.workers.host_based.transport import PAYLOAD
from fanin.workers.recovery import Recovery

RATE = 100 * 10**9  # bits/s, of every link
DELAY = 1e-6  # s, of every link
SIZE = 2_000_000  # bytes, of every flow
WINDOW = 256  # packets: a round trip through a fat tree, and half as much again
PACKET_BYTES = 1112  # a full packet on a link, including all headers and the gap between frames
HTSIM_PACKET_BYTES, HTSIM_PAYLOAD = 4150, 4086

_LIMIT = 1.0  # s
# Nothing is lost, but sprayed packets arrive in any order, which must not be taken for loss.
_RECOVERY = Recovery(initial_rto=_LIMIT, min_rto=_LIMIT, granularity=1e-6, packet_threshold=64)
_HOST = HostModel(coalescing=2e-6)

Pairs = list[tuple[int, int]]  # of hosts by rank: from, to


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorCase:
    """Flows that begin together on a fat tree of switches with k ports.

    Attributes:
        name: Name of the case.
        k: Ports of each switch.
        pairs: Source and destination of each flow.
        paths: How packets choose among paths.
        htsim: htsim's time in seconds.
        tolerance: Allowed relative difference.
    """

    name: str
    k: int
    pairs: Pairs
    paths: PathChoice = "spray"
    htsim: float
    tolerance: float = 0.1


def incast(senders: int) -> Pairs:
    """Return flows from the first hosts to the one after them."""
    return [(sender, senders) for sender in range(senders)]


def permutation(hosts: int) -> Pairs:
    """Return flows in which each host sends to another one, and receives from one."""
    draw = random.Random(1)
    receivers = list(range(hosts))
    while any(sender == receiver for sender, receiver in enumerate(receivers)):
        draw.shuffle(receivers)
    return list(enumerate(receivers))


CASES = (
    SimulatorCase(name="one flow", k=4, pairs=[(0, 13)], htsim=177.8e-6),
    SimulatorCase(name="15 to 1", k=4, pairs=incast(15), htsim=2470.4e-6),
    SimulatorCase(name="127 to 1", k=8, pairs=incast(127), htsim=20963.4e-6),
    SimulatorCase(name="1,024 permuted, sprayed", k=16, pairs=permutation(1024), htsim=206.5e-6),
    # The worst collision of a thousand random choices, and others choose at random in htsim.
    SimulatorCase(
        name="1,024 permuted, one path",
        k=16,
        pairs=permutation(1024),
        paths="ecmp",
        htsim=982.3e-6,
        tolerance=0.25,
    ),
)


@dataclass(frozen=True, slots=True)
class SimulatorComparison:
    """A case in virtual time: seconds until the last flow arrived, and the mean of all."""

    case: SimulatorCase
    seconds: float
    mean: float

    @property
    def with_its_headers(self) -> float:
        """Return the seconds if our packets had as few header bytes as htsim's."""
        return self.seconds * (HTSIM_PACKET_BYTES / HTSIM_PAYLOAD) / (PACKET_BYTES / PAYLOAD)

    @property
    def difference(self) -> float:
        """Return the difference of that time, as a share of htsim's."""
        return self.with_its_headers / self.case.htsim - 1

    @property
    def agrees(self) -> bool:
        """Return whether the difference is within the case's tolerance."""
        return abs(self.difference) <= self.case.tolerance

    @property
    def columns(self) -> dict[str, Any]:
        """Return the entry of simulators.json."""
        return {
            **asdict(self),
            "case": self.case.name,
            "htsim_seconds": self.case.htsim,
            "seconds_with_its_headers": self.with_its_headers,
            "difference": self.difference,
        }

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the cells of a table row, with times in microseconds."""
        times = (self.case.htsim, self.seconds, self.with_its_headers)
        return (self.case.name, *(f"{1e6 * seconds:,.1f}" for seconds in times), f"{self.difference:+.1%}")


def run(case: SimulatorCase, switch: Engine) -> SimulatorComparison:
    """Run the case in virtual time, on switches with the program of `switch`.

    Raises:
        UnfinishedError: Not all flows arrive within a second.
    """
    _, flows = flows_of(case, switch)
    seconds = [flow.seconds for flow in flows.completed]
    return SimulatorComparison(case, max(seconds), sum(seconds) / len(seconds))


def flows_of(case: SimulatorCase, switch: Engine, payload: int = PAYLOAD) -> tuple[Fabric, Flows]:
    """Run the case in virtual time, with this payload of a full packet in bytes, and return the network and its flows.

    Raises:
        UnfinishedError: Not all flows arrive within a second.
    """
    topology = fat_tree(case.k, rate=RATE, properties={"delay": DELAY})
    hosts = topology.ranked_hosts
    planner = replace(OURS, plan_forwarding=partial(plan_forwarding, paths=case.paths))
    specs = [
        FlowSpec(source=hosts[source].name, destination=hosts[destination].name, size=SIZE)
        for source, destination in case.pairs
    ]
    fabric = Fabric(topology, switch, host=_HOST, planner=planner, payload=payload)
    window = WINDOW * PAYLOAD // payload
    flows = Flows(fabric, specs, window=window, recovery=_RECOVERY, payload=payload)
    if not flows.run(_LIMIT):
        raise UnfinishedError(
            f"{case.name}: {len(flows.completed)} of {len(specs)} flows arrived in {_LIMIT:g} s"
        )
    return fabric, flows


def write(found: Sequence[SimulatorComparison], victims: Sequence[Victim], folder: Path) -> None:
    """Write simulators.json into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "cases": [one.columns for one in found],
        "incasts": [one.columns for one in victims],
    }
    write_json(document, folder / "simulators.json")
