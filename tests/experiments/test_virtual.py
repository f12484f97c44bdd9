"""All-reduces in virtual time: the live network's parts, exact sums, times that theory gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from experiments.bench_virtual import measure
from experiments.virtual import Cluster, ClusterSpec, Vector, load_switch, quantized_sum
from p4switch.engine import Engine
from topologies.model import leaf_spine
from topologies.virtual import Faults, HostModel, LinkModel

GIGABIT = 10**9
PACKET_BITS = 8 * 1100  # of 256 values, with all headers and the gap on the wire


@pytest.fixture(scope="module")
def switch() -> Engine:
    return load_switch()


def inputs(workers: int, elements: int) -> list[Vector]:
    draw = np.random.default_rng(0)
    return [draw.standard_normal(elements, dtype=np.float32) for _ in range(workers)]


def run(spec: ClusterSpec, switch: Engine, vectors: Sequence[Vector]) -> Cluster:
    cluster = Cluster(spec, switch, [vectors])
    assert cluster.run(limit=60.0)
    return cluster


@pytest.mark.parametrize(("leaves", "hosts"), [(1, 4), (2, 2), (3, 3)])
def test_every_worker_gets_the_exact_sum(switch: Engine, leaves: int, hosts: int) -> None:
    topology = leaf_spine(2 if leaves > 1 else 0, leaves, hosts, rate=10 * GIGABIT)
    vectors = inputs(leaves * hosts, 5000)
    cluster = run(ClusterSpec(topology), switch, vectors)
    exact, saturated = quantized_sum(vectors, 256, len(vectors))
    assert saturated == 0
    for station in cluster.stations:
        assert np.array_equal(station.outputs[0], exact)


def test_without_loss_a_worker_sends_each_chunk_once_and_gets_each_once(switch: Engine) -> None:
    topology = leaf_spine(1, 2, 2, rate=10 * GIGABIT)
    cluster = run(ClusterSpec(topology, window=64), switch, inputs(4, 256 * 100))
    for station in cluster.stations:
        statistics = station.worker.statistics
        assert statistics.datagrams_sent == statistics.datagrams_received == 100 + 64
    # Each chunk crosses each link in each direction: four of hosts, two between leaves and spine.
    assert cluster.network.hops == 164 * (8 + 4)


@pytest.mark.parametrize("rate", [10 * GIGABIT, 100 * GIGABIT])
def test_the_time_is_that_of_the_bytes_when_the_window_is_large(switch: Engine, rate: int) -> None:
    topology = leaf_spine(0, 1, 4, rate=rate)
    spec = ClusterSpec(topology, window=512, host=HostModel(coalescing=2e-6))
    cluster = run(spec, switch, inputs(4, 256 * 4000))
    first_window = 512 * 8 * 332  # without values, in the smaller size
    bits = 4000 * PACKET_BITS + first_window
    assert max(s.ended[0] for s in cluster.stations) == pytest.approx(bits / rate, rel=0.05)


def test_the_time_is_that_of_round_trips_when_the_window_is_small(switch: Engine) -> None:
    topology = leaf_spine(0, 1, 4, rate=100 * GIGABIT)
    spec = ClusterSpec(topology, window=4, links=LinkModel(delay=1e-5), host=HostModel(coalescing=0.0))
    cluster = run(spec, switch, inputs(4, 256 * 400))
    assert max(s.ended[0] for s in cluster.stations) == pytest.approx(101 * 2e-5, rel=0.05)


def test_loss_costs_retransmissions_and_no_exactness(switch: Engine) -> None:
    topology = leaf_spine(1, 2, 2, rate=10 * GIGABIT)
    vectors = inputs(4, 256 * 200)
    spec = ClusterSpec(topology, links=LinkModel(faults=Faults(loss=0.01)), seed=3)
    cluster = run(spec, switch, vectors)
    assert cluster.network.faults["loss"] > 0
    assert sum(s.worker.statistics.retransmissions for s in cluster.stations) > 0
    exact, _ = quantized_sum(vectors, 256, 4)
    for station in cluster.stations:
        assert np.array_equal(station.outputs[0], exact)


def test_the_benchmark_measures_an_exact_all_reduce() -> None:
    point = measure(8, 256 * 512)
    assert point.exact
    assert point.packet_hops == 2 * 8 * (512 + 512)
    assert point.retransmissions == 0
