"""Canary: worker, program, plan and oracle together, with faults, late workers, and ports that are busy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fanin.assurance.soak.generate import scenario_for
from fanin.assurance.soak.run import run_scenario
from fanin.assurance.soak.scenario import Scenario, Stall, Work
from fanin.controller.errors import ControllerError
from fanin.controller.telemetry import Event
from fanin.controller.tree import Job
from fanin.experiments.protocol import Protocol, protocol_of
from fanin.experiments.scenario.file import ScenarioError, load_scenario
from fanin.experiments.virtual.point import run_virtual
from fanin.experiments.virtual.recording import record
from fanin.native.python_file import PythonFileError
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import Cluster, load_switch
from fanin.simulator.job_spec import ClusterSpec
from fanin.topologies.model import Topology
from fanin.topologies.shapes import fat_tree, leaf_spine
from fanin.workers import wire
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from fanin.workers.slotted import SlottedWorker
from tests.protocols.live import right_sums_of
from tests.protocols.mutants import FAULTY, protocol_with, switch_with

pytestmark = pytest.mark.slow

BUSY = 1 << 60  # a time in 2^-16 us that never comes
LATE = Work(
    (1, 3, 1), window=3, elements=(6000, 1, 700), stalls=(Stall(1, 1e-4, 0.005), Stall(4, 0.02, 0.005))
)


@pytest.fixture(scope="module")
def canary() -> Protocol:
    return protocol_of("canary")


@pytest.fixture(scope="module")
def switch(canary: Protocol) -> Engine:
    return load_switch(canary.program)


def _cluster(canary: Protocol, switch: Engine, network: Topology, *, loopback: float = 5e-6) -> Cluster:
    """A job of all hosts with one all-reduce of 20 chunks of ones, whose timers never expire."""
    recovery = Recovery(initial_rto=0.1, min_rto=0.1)
    spec = ClusterSpec(topology=network, window=20, values=64, loopback=loopback, recovery=recovery)
    inputs = [[np.ones(64 * 20, np.float32) for _ in network.hosts]]
    return Cluster(spec, switch, inputs, None, canary.make_worker, planner=canary.planner())


def _patient(canary: Protocol, folder: Path) -> Protocol:
    """The protocol with switches that hold a chunk for longer than its retransmission timeouts."""
    return protocol_with(canary, '"virtual": 5e-6', '"virtual": 5e-3', folder)


def _has_right_sums(cluster: Cluster) -> bool:
    assert cluster.run(0.05)
    workers = len(cluster.members)
    return all(np.allclose(station.outputs[0], workers, atol=1e-5) for station in cluster.stations)


def _sent(cluster: Cluster, near: str, far: str) -> int:
    return int(cluster.network.links.counts.packets[cluster.network.link_ends.index((near, far))])


# -- sums under faults -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("racks", [(1,), (5,), (2, 3), (1, 1, 1), (8, 8)])
def test_sums_are_right_on_links_that_lose_copy_and_reorder(
    canary: Protocol, switch: Engine, racks: tuple[int, ...]
) -> None:
    work = Work(racks, window=3, elements=(2000, 1, 700))
    assert not run_scenario(Scenario(jobs=(work,), links=FAULTY), switch, protocol=canary).violations


def test_sums_are_right_if_workers_are_late(canary: Protocol, switch: Engine) -> None:
    assert not run_scenario(Scenario(jobs=(LATE,), links=FAULTY), switch, protocol=canary).violations


def test_sums_are_right_if_switches_wait_longer_than_workers(
    canary: Protocol, switch: Engine, tmp_path: Path
) -> None:
    patient = _patient(canary, tmp_path)
    assert not run_scenario(Scenario(jobs=(LATE,), links=FAULTY), switch, protocol=patient).violations


@pytest.mark.parametrize("seed", range(6))
def test_soak_finds_nothing_wrong_in_random_networks(canary: Protocol, switch: Engine, seed: int) -> None:
    assert not run_scenario(scenario_for(seed, canary), switch, protocol=canary).violations


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("text", "mutated"),
    [
        # A part of a sum has the ranks of the packet that came last.
        ("ranks = ranks | RANKS;", "ranks = RANKS;"),
        # The root takes a sum for the result although a resent packet has passed by.
        ("leader_port != 0 && ranks == full", "leader_port != 0 && seen == full"),
        # What comes back from the loopback port has the ranks of the first packet.
        ("PASSES = 0;\n                    RANKS = ranks;", "PASSES = 0;"),
        # A slot adds up two chunks.
        ("ours && stored_chunk == hdr.switchml.chunk;", "ours;"),
        # A chunk begins with the values of an earlier one.
        ("operation = ranks == 0 ? OPERATION_STORE : OPERATION_ADD;", "operation = OPERATION_ADD;"),
        # A result on its way down is not kept for those who ask again.
        ("state = DONE;\n                        compute = true;", "compute = true;"),
        # A leader that asks for its result again gets nothing.
        (
            "serve_result();\n                        events.count(EVENT_SERVED_AGAIN);\n                    } else {\n"
            "                        meta.reason = REASON_STALE",
            "meta.reason = REASON_DUPLICATE;\n"
            "                    } else {\n                        meta.reason = REASON_STALE",
        ),
    ],
)
def test_soak_finds_a_program_with_a_mistake(
    canary: Protocol, cache: pytest.Cache, tmp_path: Path, text: str, mutated: str
) -> None:
    patient = _patient(canary, tmp_path)
    wrong = switch_with(canary, text, mutated, cache)
    runs = (
        run_scenario(Scenario(seed=seed, jobs=(LATE,), links=FAULTY), wrong, protocol=p)
        for seed in range(12)
        for p in (canary, patient)
    )
    assert any(one.violations for one in runs)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("text", "mutated"),
    [
        # A leader adds what it has already.
        (
            "adds = (self._led[rows] == chunks) & (self._ranks[rows] & ranks == 0)",
            "adds = self._led[rows] == chunks",
        ),
        # It sends its result only once.
        (
            "np.concatenate([chunks[complete], *self._complete])",
            "np.concatenate([chunks[:0], *self._complete])",
        ),
        # It adds to the chunk that had the place before.
        ("self._sums[rows[begins]] = 0", "pass"),
        # It does not complete what lacks its own values.
        ("others = chunks[~complete]", "others = chunks[~complete & ~self._leads(chunks)]"),
    ],
)
def test_soak_finds_a_worker_with_a_mistake(
    canary: Protocol, switch: Engine, tmp_path: Path, text: str, mutated: str
) -> None:
    wrong = protocol_with(canary, text, mutated, tmp_path)
    assert run_scenario(Scenario(jobs=(LATE,), links=FAULTY), switch, protocol=wrong).violations


# -- switches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", [leaf_spine(2, 3, 2), fat_tree(4)])
def test_without_other_traffic_all_packets_of_a_chunk_meet_and_leaders_have_nothing_to_do(
    canary: Protocol, switch: Engine, network: Topology
) -> None:
    cluster = _cluster(canary, switch, network, loopback=1e-3)
    assert _has_right_sums(cluster)
    assert {station.worker.statistics.datagrams_received for station in cluster.stations} == {20}
    assert cluster.events()[Event.SENT_UP_AGAIN] == 0


def test_what_does_not_meet_in_time_is_completed_by_leaders(canary: Protocol, switch: Engine) -> None:
    """A packet between switches takes longer than the loopback port."""
    network = leaf_spine(2, 3, 2).with_properties(delay=20e-6)
    cluster = _cluster(canary, switch, network, loopback=1e-6)
    assert _has_right_sums(cluster)
    received = sum(station.worker.statistics.datagrams_received for station in cluster.stations)
    assert received > 20 * len(cluster.members) + 20
    assert sum(station.worker.statistics.timeouts for station in cluster.stations) == 0


def test_packets_avoid_a_port_that_is_busy(canary: Protocol, switch: Engine) -> None:
    network = leaf_spine(2, 2, 2, rate=10**10)
    usual, other = (_cluster(canary, switch, network) for _ in range(2))
    port = network.port_towards("leaf1", "spine1")
    other.engines["leaf1"].register("port_free_at").write(port, BUSY)
    assert _has_right_sums(usual)
    assert _has_right_sums(other)
    # Results come down by the ways on which values went up.
    assert _sent(usual, "leaf1", "spine1") > 5 < _sent(usual, "leaf1", "spine2")
    assert _sent(other, "spine1", "leaf1") < _sent(usual, "spine1", "leaf1")
    assert _sent(other, "leaf1", "spine2") > _sent(usual, "leaf1", "spine2")


def test_whatever_leaves_a_port_makes_it_busy(canary: Protocol, switch: Engine) -> None:
    network = leaf_spine(2, 2, 2, rate=10**10)
    cluster = _cluster(canary, switch, network)
    assert _has_right_sums(cluster)
    port = network.port_towards("leaf1", "spine2")
    (free_at,) = cluster.engines["leaf1"].register("port_free_at").read(port, 1)
    assert 0 < free_at >> 16 < cluster.network.now // 1_000_000


# -- the worker ------------------------------------------------------------------------------------------------------


def _leader(canary: Protocol) -> SlottedWorker:
    """Rank 1 of 3, which leads the chunks 1, 4, …, and has sent two chunks."""
    worker = canary.make_worker(Lease(1, 1, 3, 2, values=64, last_chunk=99), Recovery())
    assert isinstance(worker, SlottedWorker)
    worker.start(np.ones(2 * 64, np.float32), 0.0)
    assert _packets(worker.datagrams_to_send(0.0))["call"].tolist() == [2, 2]
    return worker


def _packets(batches: Sequence[NDArray[np.uint8]]) -> NDArray[np.void]:
    empty = np.zeros((0, wire.packet_dtype(64).itemsize), np.uint8)
    return wire.as_packets(np.concatenate([empty, *batches]))


def _take(worker: SlottedWorker, *parts: tuple[int, int, int]) -> NDArray[np.void]:
    """Return what the worker sends after parts of sums: each has a chunk, ranks and a value."""
    packets = np.zeros(len(parts), wire.packet_dtype(64))
    packets["kind"], packets["lease"] = wire.kind(wire.UPDATE, 64), 1
    packets["tsi"], packets["call"], values = np.array(parts).T
    packets["values"] = values[:, np.newaxis]
    worker.receive(wire.as_datagrams(packets), 1e-6)
    return _packets(worker.datagrams_to_send(1e-6))


def test_a_leader_completes_a_sum_of_what_comes_in_any_parts(canary: Protocol) -> None:
    worker = _leader(canary)
    assert not len(_take(worker, (1, 0b011, 5), (1, 0b001, 2)))
    assert not len(_take(worker, (1, 0b110, 9)))  # has one worker twice
    (result,) = _take(worker, (1, 0b100, 3))
    assert (result["kind"], result["tsi"]) == (wire.kind(wire.RESULT, 64), 1)
    assert (result["values"] == 8).all()


def test_a_leader_ignores_chunks_of_others_and_of_an_earlier_lease(canary: Protocol) -> None:
    worker = _leader(canary)
    assert not len(_take(worker, (0, 0b111, 1), (1000, 0b111, 1)))


def test_a_leader_sends_its_result_again_until_it_comes_back(canary: Protocol) -> None:
    worker = _leader(canary)
    (result,) = _take(worker, (1, 0b111, 8))
    due = worker.deadline()
    assert due is not None
    again = _packets(worker.datagrams_to_send(due))
    assert [(one["kind"] >> 4, one["tsi"], one["e0"]) for one in again] == [(1, 1, 0), (0, 0, 1)]
    worker.receive(wire.as_datagrams(np.atleast_1d(result)), due)
    assert _packets(worker.datagrams_to_send(2 * due))["tsi"].tolist() == [0]


# -- the plan --------------------------------------------------------------------------------------------------------


def test_switches_know_which_workers_may_come_and_how_far_away_these_are(canary: Protocol) -> None:
    network = fat_tree(4)
    job = Job(1, ("h1", "h3", "h5"))  # the first two in one pod
    plan = canary.planner().plan_aggregation(network, canary.planner().aggregation_tree(network, job))
    of_leader_0 = {
        name: (entry.params["workers"], entry.params["passes"], entry.params["port"])
        for name, part in plan.items()
        for entry in part.entries
        if entry.action.endswith("towards") and entry.match["hdr.exponents.unused"] == 0
    }
    assert of_leader_0["leaf1"] == (0b111, 5, 1)
    assert of_leader_0["leaf2"] == (0b010, 1, 0)
    assert of_leader_0["spine1"] == (0b110, 4, 0)
    assert {of_leader_0[name] for name in ("core1", "core2", "core3", "core4")} == {(0b100, 3, 0)}


def test_what_cannot_be_is_refused(canary: Protocol, tmp_path: Path) -> None:
    planner = canary.planner()
    network = leaf_spine(1, 2, 20)
    hosts = tuple(host.name for host in network.ranked_hosts)
    with pytest.raises(ControllerError, match="bits for 32 workers, not 33"):
        planner.plan_aggregation(network, planner.aggregation_tree(network, Job(1, hosts[:33])))
    wide = leaf_spine(1, 2, 40)
    with pytest.raises(
        ControllerError, match=r"leaf1: canary has bits for the ports 1 to 32 .* needs port 41"
    ):
        planner.plan_aggregation(wide, planner.aggregation_tree(wide, Job(1, ("h1", "h41"))))
    (tmp_path / "live.toml").write_text(LIVE)
    with pytest.raises(
        ScenarioError, match="protocol: canary needs a loopback port with a delay, and BMv2 delays"
    ):
        load_scenario(tmp_path / "live.toml", ["switch=bmv2"])
    protocol_with(canary, "return HOLD[world]", "return 0", tmp_path)
    with pytest.raises(
        PythonFileError, match=r"loopback\(\) returns 0, must return seconds above 0 and up to 1"
    ):
        protocol_of(str(tmp_path)).loopback("live")


# -- scenarios -------------------------------------------------------------------------------------------------------

LIVE = """
name = "live"
protocol = "canary"
world = "live"
size = "40 kB"
[topology.leaf_spine]
spines = 2
leaves = 2
hosts_per_leaf = 2
rate = "200 Mb/s"
"""


def test_a_longer_time_in_the_loopback_port_saves_packets(switch: Engine, tmp_path: Path) -> None:
    (tmp_path / "canary.toml").write_text(LIVE.replace('"live"', '"virtual"').replace("200 M", "10 G"))
    short, long = (
        run_virtual(load_scenario(tmp_path / "canary.toml", [f"loopback_delay={time}"]).points[0], switch)
        for time in ("1 us", "50 us")
    )
    assert short.violations == long.violations == 0
    assert long.wire_bytes_per_worker < short.wire_bytes_per_worker


@pytest.mark.live
def test_in_a_live_network_its_sums_are_right(tmp_path: Path) -> None:
    right_sums_of("canary", tmp_path)


def test_a_run_can_be_recorded(switch: Engine, tmp_path: Path) -> None:
    """The recorder does not wait for arrivals from loopback ports, which it does not see."""
    (tmp_path / "canary.toml").write_text(LIVE.replace('"live"', '"virtual"').replace("200 M", "10 G"))
    (point,) = load_scenario(tmp_path / "canary.toml", ["loopback_delay=1 us", "size=2 kB"]).points
    recording = record("canary", point, switch)
    assert {flight.kind for flight in recording.flights} == {"values", "sums"}
