"""Trees of more tiers than leaves and spines, in virtual time: the compiled program, exact sums, with loss too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fanin.controller.telemetry import Event
from fanin.experiments.models.expected_sums import QuantizedSums
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import Cluster, Fabric, Job
from fanin.simulator.hosts.stations import Vector
from fanin.simulator.job_spec import ClusterSpec, JobSpec
from fanin.topologies.model import Topology
from fanin.topologies.shapes import fat_tree, leaf_spine, servers

pytestmark = pytest.mark.slow

RATE = 10**10
LOSSY = {"loss": 0.01, "duplication": 0.05, "reordering": 0.05, "displacement": 2e-5}


def inputs(workers: int, elements: int = 3000) -> list[Vector]:
    draw = np.random.default_rng(0)
    return [draw.standard_normal(elements, dtype=np.float32) for _ in range(workers)]


def assert_exact(job: Job, vectors: Sequence[Vector]) -> None:
    exact = QuantizedSums(256, job.spec.window, len(vectors)).next(vectors)
    assert exact.saturated == (0, 0)
    assert len(job.stations) == len(vectors)
    for station in job.stations:
        assert not exact.wrong(station.outputs[0]).any()


@pytest.mark.parametrize("links", [{}, LOSSY], ids=["clean", "lossy"])
@pytest.mark.parametrize(
    ("topology", "aggregators"),
    [
        (fat_tree(4, rate=RATE), 1 + 4 + 8),  # a core, a spine in each pod, all leaves
        (servers(rate=RATE), 1 + 2 + 4),
        (servers(pods=2, leaves=1, spines=1, cores=1, servers_per_leaf=1, hosts_per_server=2), 1 + 2 + 2 + 2),
        (leaf_spine(spines=2, leaves=35, hosts_per_leaf=1, rate=RATE), 35 + 2),  # the root is a leaf
    ],
    ids=["fat tree", "servers", "four tiers", "35 leaves, no core"],
)
def test_every_worker_gets_the_exact_sum(
    switch: Engine, topology: Topology, aggregators: int, links: dict[str, float]
) -> None:
    vectors = inputs(len(topology.hosts))
    cluster = Cluster(ClusterSpec(topology.with_properties(**links), seed=2), switch, [vectors])
    assert cluster.run(limit=10.0)
    (job,) = cluster.jobs
    assert_exact(job, vectors)
    assert bool(cluster.network.faults["loss"]) == bool(links)
    completed = {name for name, engine in cluster.engines.items() if _completed(engine)}
    assert len(completed) == aggregators
    if not links:
        assert not sum(cluster.drops().values())


def _completed(engine: Engine) -> int:
    return engine.counter("ingress.aggregation.events").read(Event.COMPLETED).packets


def test_ranks_may_be_anywhere_and_jobs_that_share_switches_do_not_meet(switch: Engine) -> None:
    topology = fat_tree(4, rate=RATE, properties=LOSSY)
    fabric = Fabric(topology, switch, seed=1)
    placed = [("h16", "h1", "h3"), ("h2", "h15"), ("h4", "h9", "h13", "h5"), ("h7", "h8")]
    vectors = [inputs(len(hosts)) for hosts in placed]
    jobs = [
        fabric.start(JobSpec(hosts=hosts, window=16), [x]) for hosts, x in zip(placed, vectors, strict=True)
    ]
    assert fabric.run(limit=10.0)
    for job, x in zip(jobs, vectors, strict=True):
        assert_exact(job, x)


@pytest.mark.parametrize("restarted", ["server1", "leaf1", "spine1", "core1"])
def test_whatever_tier_restarts_the_job_goes_on_under_a_new_lease(switch: Engine, restarted: str) -> None:
    topology = servers(pods=2, leaves=1, spines=1, cores=1, servers_per_leaf=1, hosts_per_server=2, rate=RATE)
    vectors = inputs(4, 100_000)
    fabric = Fabric(topology, switch)
    job = fabric.start(JobSpec(), [vectors])
    assert not fabric.run(limit=5e-5)
    fabric.restart_switch(restarted, notice=1e-5)
    assert fabric.run(limit=10.0)
    assert len(job.leases) == 2
    assert_exact(job, vectors)


@pytest.mark.parametrize(
    "topology", [fat_tree(4, rate=RATE), servers(rate=RATE)], ids=["fat tree", "servers"]
)
def test_hosts_reach_one_another_over_all_tiers(switch: Engine, topology: Topology) -> None:
    vectors = inputs(len(topology.hosts))
    cluster = Cluster(ClusterSpec(topology, algorithm="ring"), switch, [vectors])
    assert cluster.run(limit=10.0)
    assert all(np.allclose(s.outputs[0], sum(vectors), atol=1e-4) for s in cluster.stations)
    assert not sum(cluster.drops().values())
