"""The choice among paths of equal cost: hashes of flows against balls that fall into bins, and adaptive routing.

Take n flows and m paths. A uniform hash has a chi-square of m - 1 on average, and uses m (1 - (1 - 1/m)^n) paths (the
birthday problem). The busiest path carries the largest of n balls in m bins. Adaptive routing should load all alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import factorial

import numpy as np
from numpy.typing import NDArray

from fanin.assurance.validation.theory.derived import Derived
from fanin.controller.plan import PathChoice
from fanin.controller.planner import planner_of
from fanin.experiments.scenario.tables.congestion import Congestion
from fanin.experiments.virtual.outcome import UnfinishedError
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import Fabric
from fanin.simulator.flows import Flows, FlowSpec
from fanin.topologies.shapes import leaf_spine
from fanin.workers.host_based.transport import PAYLOAD
from fanin.workers.recovery import Recovery

PATHS = HOSTS = 8  # spines, and hosts below each of two leaves
RATE = 10 * 10**9  # bits/s, of every link
SEEDS = range(40)  # of the flows' UDP ports
FEW, MANY = HOSTS, 8 * HOSTS  # flows
LONG = 400 * PAYLOAD  # bytes of a flow whose packets are counted

_RECOVERY = Recovery(initial_rto=1.0, min_rto=1.0, granularity=1e-6, packet_threshold=64)


def paths(switch: Engine) -> Iterator[Derived]:
    """Compare flows from the hosts of one leaf to those of another one, over eight spines."""
    many = [_packets(MANY, 1, "ecmp", seed, switch) for seed in SEEDS]
    expected = MANY / PATHS
    # Three standard deviations of a mean of this many draws.
    deviation = 3 * (2 * (PATHS - 1) / len(SEEDS)) ** 0.5 / (PATHS - 1)
    yield Derived(
        what=f"ECMP, {MANY} flows: chi-square, mean",
        theory=PATHS - 1,
        virtual=float(np.mean([((load - expected) ** 2 / expected).sum() for load in many])),
        form=".2f",
        lowest=-deviation,
        highest=deviation,
    )
    few = [_packets(FEW, 1, "ecmp", seed, switch) for seed in SEEDS]
    yield Derived(
        what=f"ECMP, {FEW} flows: paths used, mean",
        theory=PATHS * (1 - (1 - 1 / PATHS) ** FEW),
        virtual=float(np.mean([np.count_nonzero(load) for load in few])),
        form=".2f",
        lowest=-0.1,
        highest=0.1,
    )
    for loads, flows in ((few, FEW), (many, MANY)):
        yield Derived(
            what=f"ECMP, {flows} flows: flows on the busiest path, mean",
            theory=expected_maximum(flows, PATHS),
            virtual=float(np.mean([load.max() for load in loads])),
            form=".2f",
            lowest=-0.1,
            highest=0.1,
        )
    long = _packets(FEW, LONG, "adaptive", 0, switch)
    yield Derived(
        what=f"adaptive, {FEW} flows: busiest path over an equal share",
        theory=1.0,
        virtual=float(long.max() / long.mean()),
        form=".3f",
        lowest=0.0,
        highest=0.05,
    )


def expected_maximum(balls: int, bins: int) -> float:
    """Return the expected number of balls in the fullest of several bins."""
    total = 0.0
    for most in range(balls):
        terms = np.array([1 / factorial(count) for count in range(most + 1)])
        ways = np.array([1.0])
        for _ in range(bins):
            ways = np.convolve(ways, terms)[: balls + 1]
        at_most = factorial(balls) * ways[balls] / bins**balls if len(ways) > balls else 0.0
        total += 1 - float(at_most)
    return total


def _packets(count: int, size: int, choice: PathChoice, seed: int, switch: Engine) -> NDArray[np.int64]:
    """Return the packets that the first leaf sends to each spine, for flows of `size` bytes."""
    topology = leaf_spine(PATHS, 2, HOSTS, rate=RATE)
    hosts = [host.name for host in topology.ranked_hosts]
    specs = [
        FlowSpec(
            source=hosts[flow % HOSTS], destination=hosts[HOSTS + (flow + flow // HOSTS) % HOSTS], size=size
        )
        for flow in range(count)
    ]
    fabric = Fabric(topology, switch, planner=planner_of(None, choice))
    control = Congestion(control="none").control_of
    flows = Flows(fabric, specs, recovery=_RECOVERY, congestion_control=control, seed=seed)
    if not flows.run(1.0):
        raise UnfinishedError("not all flows arrived within a second")
    there = [near == "leaf1" and far.startswith("spine") for near, far in fabric.network.link_ends]
    return np.asarray(fabric.network.links.counts.packets)[there]
