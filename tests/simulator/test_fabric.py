"""All-reduces in virtual time: the live network's parts, exact sums, times that theory gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fanin.assurance.bench.virtual import measure
from fanin.experiments.models.expected_sums import QuantizedSums, expected_sum
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import HostModel
from fanin.simulator.fabric import Cluster
from fanin.simulator.hosts.stations import Vector
from fanin.simulator.job_spec import ClusterSpec
from fanin.topologies.shapes import leaf_spine
from fanin.workers.collective import HostBasedAlgorithm, Transport
from fanin.workers.host_based.algorithms.all_reduce import Hosts
from fanin.workers.host_based.algorithms.registry import algorithm_named
from fanin.workers.host_based.transport import PAYLOAD

pytestmark = pytest.mark.slow

GIGABIT = 10**9
PACKET_BITS = 8 * 1104  # of 256 values, with all headers and the gap on the wire
PEER_PACKET = 1112  # bytes of a packet between hosts, the same way
HOST_BASED: list[HostBasedAlgorithm] = [
    "ring",
    "halving-doubling",
    "double-binary-tree",
    "parameter-server",
]


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
    exact = QuantizedSums(256, cluster.spec.window, len(vectors)).next(vectors)
    assert exact.saturated == (0, 0)
    for station in cluster.stations:
        assert not exact.wrong(station.outputs[0]).any()


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
    topology = leaf_spine(0, 1, 4, rate=100 * GIGABIT, properties={"delay": 1e-5})
    spec = ClusterSpec(topology, window=4, host=HostModel(coalescing=0.0))
    cluster = run(spec, switch, inputs(4, 256 * 400))
    assert max(s.ended[0] for s in cluster.stations) == pytest.approx(101 * 2e-5, rel=0.05)


def test_loss_costs_retransmissions_and_no_exactness(switch: Engine) -> None:
    topology = leaf_spine(1, 2, 2, rate=10 * GIGABIT, properties={"loss": 0.01})
    vectors = inputs(4, 256 * 200)
    spec = ClusterSpec(topology, seed=3)
    cluster = run(spec, switch, vectors)
    assert cluster.network.faults["loss"] > 0
    assert sum(s.worker.statistics.retransmissions for s in cluster.stations) > 0
    exact = QuantizedSums(256, cluster.spec.window, len(vectors)).next(vectors)
    for station in cluster.stations:
        assert not exact.wrong(station.outputs[0]).any()


@pytest.mark.parametrize("algorithm", HOST_BASED)
@pytest.mark.parametrize(("leaves", "hosts"), [(1, 5), (2, 2)])
def test_host_based_algorithms_run_through_the_same_switches(
    switch: Engine, algorithm: HostBasedAlgorithm, leaves: int, hosts: int
) -> None:
    topology = leaf_spine(2 if leaves > 1 else 0, leaves, hosts, rate=10 * GIGABIT)
    vectors = inputs(leaves * hosts, 5003)
    spec = ClusterSpec(topology, algorithm=algorithm)
    cluster = run(spec, switch, vectors)
    expected = expected_sum(spec, vectors)
    for station in cluster.stations:
        assert station.outputs[0].tobytes() == expected.tobytes()
        assert station.worker.statistics.retransmissions == 0
        assert station.not_ours == 0
    assert not sum(cluster.drops().values())


@pytest.mark.few(4)
@pytest.mark.parametrize("transport", ["selective-repeat", "go-back-n"])
@pytest.mark.parametrize("algorithm", HOST_BASED)
def test_host_based_sums_are_exact_under_loss(
    switch: Engine, algorithm: HostBasedAlgorithm, transport: Transport
) -> None:
    links = {"loss": 0.005, "duplication": 0.01, "reordering": 0.01, "displacement": 1e-5}
    topology = leaf_spine(1, 2, 2, rate=10 * GIGABIT, properties=links)
    vectors = inputs(4, 60_000)
    spec = ClusterSpec(topology, seed=3, algorithm=algorithm, transport=transport)
    cluster = run(spec, switch, vectors)
    assert cluster.network.faults["loss"] > 0
    assert sum(s.worker.statistics.retransmissions for s in cluster.stations) > 0
    expected = expected_sum(spec, vectors)
    for station in cluster.stations:
        assert station.outputs[0].tobytes() == expected.tobytes()


def test_go_back_n_sends_more_again_than_selective_repeat(switch: Engine) -> None:
    def bytes_sent(transport: Transport) -> int:
        topology = leaf_spine(0, 1, 4, rate=10 * GIGABIT, properties={"loss": 0.005})
        spec = ClusterSpec(topology, seed=3, algorithm="ring", transport=transport)
        return run(spec, switch, inputs(4, 60_000)).host_bytes()

    assert bytes_sent("go-back-n") > 1.1 * bytes_sent("selective-repeat")


def test_packets_between_hosts_bear_congestion_marks(switch: Engine) -> None:
    topology = leaf_spine(0, 1, 4, rate=10 * GIGABIT, properties={"ecn_bytes": 5000})
    vectors = inputs(4, 60_000)
    spec = ClusterSpec(topology, algorithm="parameter-server", shards=1)
    cluster = run(spec, switch, vectors)
    assert cluster.network.faults["ECN mark"] > 0
    assert cluster.stations[0].outputs[0].tobytes() == expected_sum(spec, vectors).tobytes()


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("algorithm", "tolerance"),
    [
        ("ring", 0.1),
        ("halving-doubling", 0.1),
        ("double-binary-tree", 0.2),  # its logarithm knows no shapes
        ("parameter-server", 0.1),
    ],
)
def test_large_arrays_take_the_time_of_the_closed_form(
    switch: Engine, algorithm: HostBasedAlgorithm, tolerance: float
) -> None:
    rate, delay, coalescing = 10 * GIGABIT, 1e-6, 4e-6
    packet = 8 * PEER_PACKET / rate
    # Two links, of which the second begins when a whole packet has come by the first.
    latency, bandwidth = 2 * delay + packet + coalescing, rate / 8 * PAYLOAD / PEER_PACKET
    elements = 1 << 17
    spec = ClusterSpec(
        leaf_spine(0, 1, 8, rate=rate), host=HostModel(coalescing), algorithm=algorithm, window=64
    )
    cluster = run(spec, switch, inputs(8, elements))
    seconds = max(station.ended[0] for station in cluster.stations)
    predicted = algorithm_named(algorithm).seconds(4 * elements, Hosts(8, lambda *_: latency, bandwidth))
    assert seconds == pytest.approx(predicted, rel=tolerance)


def test_the_benchmark_measures_an_exact_all_reduce() -> None:
    point = measure(8, 256 * 512)
    assert point.exact
    assert not point.barriers
    assert point.packet_hops == 2 * 8 * (512 + 512)
    assert point.retransmissions == 0
