"""Whatever path packets between hosts take, sums are right, and a seed has one history."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from fanin.controller.plan import PathChoice
from fanin.controller.planner import planner_of
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import Cluster
from fanin.simulator.history import History
from fanin.simulator.job_spec import ClusterSpec
from fanin.topologies.shapes import leaf_spine
from fanin.workers.collective import Transport
from fanin.workers.host_based.algorithms.registry import algorithm_named

pytestmark = pytest.mark.slow

TOPOLOGY = leaf_spine(2, 2, 2, rate=10**10)
ACROSS = ("h1", "h3", "h2", "h4")  # each sends to the other rack


@pytest.mark.few(6)
@pytest.mark.parametrize("flows", [1, 3])
@pytest.mark.parametrize("transport", get_args(Transport))
@pytest.mark.parametrize("paths", get_args(PathChoice))
def test_sums_and_histories_are_the_same(
    switch: Engine, paths: PathChoice, transport: Transport, flows: int
) -> None:
    spec = ClusterSpec(TOPOLOGY, hosts=ACROSS, algorithm="ring", transport=transport, flows=flows)
    draw = np.random.default_rng(0)
    inputs = [draw.standard_normal(40_000, dtype=np.float32) for _ in ACROSS]
    expected = algorithm_named("ring").float32_sum(inputs).tobytes()

    def run() -> tuple[Cluster, str]:
        history = History()
        cluster = Cluster(spec, switch, [inputs], observer=history, planner=planner_of(None, paths))
        assert cluster.run(limit=10.0)
        assert all(station.outputs[0].tobytes() == expected for station in cluster.stations)
        return cluster, history.digest

    cluster, digest = run()
    assert run()[1] == digest
    counts = cluster.network.links.counts
    links = dict(zip(cluster.network.link_ends, zip(counts.bytes, counts.packets, strict=True), strict=True))
    (first, first_packets), (second, second_packets) = links["leaf1", "spine1"], links["leaf1", "spine2"]
    if paths == "single":
        assert first
        assert not second
    elif paths == "spray":  # by a hash for each packet: three standard deviations of a fair coin
        assert abs(first_packets - second_packets) < 3 * (first_packets + second_packets) ** 0.5
    elif paths == "adaptive":
        assert min(first, second) > 0.9 * max(first, second)
