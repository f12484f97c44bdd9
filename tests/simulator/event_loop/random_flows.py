"""Networks of virtual time with flows that are drawn: their links, their transport, their sizes and times."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from functools import partial
from typing import get_args

from fanin.experiments.scenario.tables.congestion import Congestion, Control
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import History, HostModel, VirtualNetwork
from fanin.simulator.fabric import Fabric
from fanin.simulator.flows import Flows, FlowSpec
from fanin.topologies.shapes import leaf_spine
from fanin.workers.recovery import Recovery
from tests.simulator.event_loop.random_clusters import PAUSE, WATCHDOG


@dataclass(frozen=True)
class Ran:
    """All that the network and the flows know of a run."""

    finished: bool
    facts: list[object]
    retransmissions: int
    marks: int


def run(switch: Engine, seed: int, *, observed: bool = True, cores: int = 1) -> Ran:
    """Draw flows by the seed, and run them until all have arrived and nothing is left on its way.

    observed: The digest of the history is among the facts. If not, C runs many windows at once, on `cores` cores.
    """
    draw = random.Random(seed)
    properties: dict[str, object] = {
        "loss": draw.choice([0, 0, 0.02]),
        "corruption": draw.choice([0, 0, 0.02]),
        "duplication": draw.choice([0, 0, 0.02]),
        "reordering": draw.choice([0, 0, 0.05]),
        "displacement": 2e-5,
        "jitter": draw.choice([0, 1e-6]),
        "queue_bytes": draw.choice([None, None, 30_000]),
        **draw.choice([{}, {"ecn_bytes": 5000}, {"ecn_bytes": 5000, "ecn_max_bytes": 20_000}]),
        **draw.choice([{}, {}, {"pause": PAUSE | {"watchdog": WATCHDOG}}]),
    }
    topology = leaf_spine(2, 2, draw.randint(1, 4), rate=draw.choice([10**9, 10**11]), properties=properties)
    names = [host.name for host in topology.hosts]
    specs = []
    for _ in range(draw.randint(1, 12)):
        source, destination = draw.sample(names, 2)
        size = draw.choice([1, 1024, 1500, 30_000, draw.randint(1, 60_000)])
        specs.append(
            FlowSpec(source=source, destination=destination, size=size, start=draw.choice([0.0, 1e-5, 3e-5]))
        )
    payload = draw.choice([256, 1024, 4096])
    history = History()
    fabric = Fabric(
        topology,
        switch,
        host=HostModel(draw.choice([0.0, 4e-6])),
        seed=seed,
        observer=history if observed else None,
        priorities=draw.choice([False, True]),
        payload=payload,
        make_network=partial(VirtualNetwork, cores=cores, worth=0),
    )
    flows = Flows(
        fabric,
        specs,
        window=draw.choice([1, 7, 64, 300]),
        transport=draw.choice(("selective-repeat", "go-back-n")),  # those in C
        recovery=Recovery(
            initial_rto=1e-3,
            min_rto=draw.choice([5e-5, 5e-4]),
            granularity=1e-5,
            packet_threshold=draw.choice([1, 3, 20]),
        ),
        congestion_control=Congestion(control=draw.choice(get_args(Control))).control_of,
        seed=seed,
        priority=draw.choice([0, 5]),
        payload=payload,
    )
    if draw.random() < 0.3:
        fabric.network.stall(names[0], 1e-5, 3e-4)
    finished = flows.run(limit=5.0)
    fabric.network.run(limit=6.0)
    facts: list[object] = [
        history.digest if observed else "",
        {name: counts.tolist() for name, counts in asdict(fabric.network.links.counts).items()},
        fabric.network.wakes,
        fabric.network.in_flight,
        +fabric.network.faults,
        flows.completed,
        flows.missing,
        (flows.counts.retransmissions, flows.counts.timeouts, +flows.counts.ignored),
    ]
    return Ran(finished, facts, flows.counts.retransmissions, fabric.network.faults["ECN mark"])
