"""Links that flip bits, in virtual time: whatever the seed, what comes out is what comes out of links that do not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fanin.controller.telemetry import Reason
from fanin.experiments.models.expected_sums import wrong
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.corruption import flip_bits
from fanin.simulator.fabric import Cluster
from fanin.simulator.hosts.stations import Flow, FrameFilter, Vector
from fanin.simulator.job_spec import ClusterSpec
from fanin.topologies.shapes import leaf_spine
from fanin.workers.collective import Algorithm
from fanin.workers.wire import HEADERS
from tests.fanin import command

pytestmark = pytest.mark.slow

TOPOLOGY = leaf_spine(1, 2, 2, rate=10**10)


def inputs(seed: int, elements: int) -> list[Vector]:
    draw = np.random.default_rng(seed)
    return [draw.standard_normal(elements, dtype=np.float32) for _ in range(4)]


def run(
    switch: Engine,
    seed: int,
    faults: dict[str, float],
    algorithm: Algorithm = "in-network",
    values: int = 256,
) -> Cluster:
    spec = ClusterSpec(
        topology=TOPOLOGY.with_properties(**faults), seed=seed, algorithm=algorithm, values=values
    )
    cluster = Cluster(spec, switch, [inputs(seed, 20_000)])
    assert cluster.run(limit=60.0)
    return cluster


def check_sums(cluster: Cluster, seed: int) -> None:
    for station in cluster.stations:
        assert not wrong(cluster.spec, inputs(seed, 20_000), station.outputs[0]).any()


@pytest.mark.few(0)
@pytest.mark.parametrize("values", [64, 256])
def test_sums_are_those_without_corruption(switch: Engine, values: int) -> None:
    dropped = 0
    for seed in range(20):
        cluster = run(switch, seed, {"corruption": 0.02}, values=values)
        check_sums(cluster, seed)
        assert cluster.network.faults["corruption"] > 0
        dropped += cluster.drops()[Reason.BAD_CHECKSUM]
    assert dropped > 0


@pytest.mark.few(1)
@pytest.mark.parametrize("algorithm", ["ring", "parameter-server"])
def test_those_of_hosts_too(switch: Engine, algorithm: Algorithm) -> None:
    """A switch forwards what it does not look at; the host drops it."""
    for seed in range(5):
        cluster = run(switch, seed, {"corruption": 0.01}, algorithm)
        check_sums(cluster, seed)
        assert sum(station.not_ours for station in cluster.stations) > 0


@pytest.mark.parametrize(("there", "seen"), [(0x01, False), (0x00, True)])
def test_two_bits_that_flip_on_the_way_between_hosts_may_not_be_seen(there: int, seen: bool) -> None:
    """Where they have one place in a 16-bit word and opposite values, UDP's checksum stays as it is."""
    sender, receiver = TOPOLOGY.hosts[:2]
    datagrams = np.zeros((1, 8), np.uint8)
    datagrams[0, 3] = there
    frames = Flow(sender, sender.mac, receiver.ip, 20_000, 20_000).frames(datagrams)
    lengths = np.array([frames.shape[1]])
    for byte in (HEADERS + 1, HEADERS + 3):  # on one link, and on another
        frames = flip_bits(frames, lengths, (8 * byte + 7.5) / (8 * lengths))
    assert frames[0, [HEADERS + 1, HEADERS + 3]].tolist() == [1, there ^ 1]
    taken, _ = FrameFilter(receiver.ip)(frames)
    assert len(taken) == (not seen)


@pytest.mark.few(0)
def test_with_every_other_fault_besides(switch: Engine) -> None:
    faults = {
        "corruption": 0.05,
        "loss": 0.01,
        "duplication": 0.05,
        "reordering": 0.05,
        "displacement": 1e-5,
    }
    for seed in range(10):
        cluster = run(switch, seed, faults)
        check_sums(cluster, seed)


def test_a_seed_has_one_history(switch: Engine) -> None:
    once, again = (run(switch, 3, {"corruption": 0.05}) for _ in range(2))
    assert once.network.faults == again.network.faults
    assert once.network.now == again.network.now
    assert once.drops() == again.drops()


SCENARIO = """
name = "corruption"
world = "live"
topology = {leaf_spine = {spines = 1, leaves = 2, hosts_per_leaf = 1}}
algorithm = ["in-network", "ring"]
size = "500 kB"
links = {corruption = [0, 0.005]}
"""


@pytest.mark.few(0)
@pytest.mark.live
def test_on_a_live_network(tmp_path: Path) -> None:
    """In-network the switches find what is corrupted; with the ring over TCP the hosts' kernels do."""
    (tmp_path / "corruption.toml").write_text(SCENARIO)
    done = command.run("run", "corruption.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "results" / "corruption" / "results.json").read_text())
    rows = {(row["algorithm"], row["corruption"]): row for row in written["rows"]}
    assert len(rows) == 4
    for algorithm in ("in-network", "ring"):
        intact, corrupted = rows[algorithm, 0], rows[algorithm, 0.005]
        assert intact["violations"] == corrupted["violations"] == 0
        assert intact["max_abs_error"] == corrupted["max_abs_error"]  # the same sums, to the last bit
        assert corrupted["link_corrupted"] > intact["link_corrupted"] == 0
        assert corrupted["retransmissions"] > 0
    assert rows["in-network", 0.005]["dropped_bad_checksum"] > 0
