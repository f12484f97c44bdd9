"""Clusters of virtual time that are drawn: their links, their hosts, what they sum."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.scenario.tables.congestion import Congestion, Control
from fanin.simulator import HostModel
from fanin.simulator.job_spec import ClusterSpec
from fanin.topologies.shapes import leaf_spine
from fanin.workers.host_based.algorithms.registry import ALGORITHMS
from fanin.workers.recovery import Recovery

PAUSE = {"xoff_bytes": 5000, "xon_bytes": 3000}
MOST_SUMS = 4
WATCHDOG = {"detection_time": 5e-6, "restoration_time": 2e-5}


def random_case(seed: int) -> tuple[ClusterSpec, list[list[NDArray[np.float32]]], list[tuple[float, float]]]:
    """A cluster, its inputs, and when its first host stalls."""
    draw = random.Random(seed)
    properties: dict[str, object] = {
        "loss": draw.choice([0, 0, 0.01]),
        "corruption": draw.choice([0, 0, 0.01]),
        "duplication": draw.choice([0, 0, 0.02]),
        "reordering": draw.choice([0, 0, 0.05]),
        "displacement": 2e-5,
        "jitter": draw.choice([0, 1e-6]),
        "queue_bytes": draw.choice([None, None, 30_000]),
        **draw.choice([{}, {"ecn_bytes": 5000}, {"ecn_bytes": 5000, "ecn_max_bytes": 20_000}]),
        **draw.choice([{}, {"pause": PAUSE}, {"pause": PAUSE | {"watchdog": WATCHDOG}}]),
    }
    leaves = draw.randint(1, 3)
    topology = leaf_spine(
        int(leaves > 1),
        leaves,
        draw.randint(1, 4),
        rate=draw.choice([10**9, 10**11]),
        properties=properties,
    )
    spec = ClusterSpec(
        topology,
        window=draw.choice([1, 7, 64, 200]),
        values=draw.choice([64, 256]),
        recovery=Recovery(initial_rto=1e-3, min_rto=draw.choice([5e-5, 5e-4]), granularity=1e-5),
        host=HostModel(coalescing=draw.choice([0.0, 4e-6])),
        seed=seed,
        priority=5,
        priorities=draw.choice([False, True]),
    )
    numbers = np.random.default_rng(seed)
    lengths = [draw.choice([1, 300, 5000, 20_000])] * draw.randint(1, MOST_SUMS - 1) + [draw.randint(1, 9000)]
    inputs = [
        [numbers.standard_normal(length, dtype=np.float32) for _ in topology.hosts] for length in lengths
    ]
    return spec, inputs, [(1e-5, 3e-4)] if draw.random() < 0.3 else []


def between_hosts(spec: ClusterSpec, seed: int) -> ClusterSpec:
    """The same cluster with an algorithm between hosts, which is drawn."""
    draw = random.Random(seed)
    return replace(
        spec,
        algorithm=draw.choice(list(ALGORITHMS)),
        transport=draw.choice(("selective-repeat", "go-back-n")),  # those in C
        window_per=draw.choice(("connection", "host")),
        flows=draw.choice([1, 1, 3]),
        until_sum=draw.choice([False, True]),
        pauses=tuple(
            tuple(draw.choice([0.0, 0.0, 2e-5]) for _ in range(MOST_SUMS)) for _ in spec.topology.hosts
        ),
        congestion_control=Congestion(control=draw.choice(get_args(Control))).control_of,
    )
