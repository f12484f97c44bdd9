"""Trio-ML's timers: worker, program, plan and oracle together, with faults and workers that are late."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fanin.assurance.soak.generate import scenario_for
from fanin.assurance.soak.run import run_scenario
from fanin.assurance.soak.scenario import Scenario, Stall, Work
from fanin.controller.errors import ControllerError
from fanin.controller.telemetry import Event
from fanin.controller.tree import Job, aggregation_tree
from fanin.experiments.protocol import Protocol, protocol_of
from fanin.experiments.results.checking import oracle_of
from fanin.experiments.scenario.file import load_scenario
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import load_switch
from fanin.topologies.link import LinkProperties
from fanin.topologies.shapes import leaf_spine
from tests.protocols.live import right_sums_of
from tests.protocols.mutants import FAULTY, protocol_with, switch_with

pytestmark = pytest.mark.slow

STALLED = (Stall(1, 1e-4, 0.05), Stall(4, 0.02, 0.05))  # longer than switches wait: 8 and 16 ms in soak
LATE = Work((2, 3), window=3, elements=(5000, 1, 700), stalls=STALLED)


@pytest.fixture(scope="module")
def trio() -> Protocol:
    return protocol_of("trio")


@pytest.fixture(scope="module")
def timing_switch(trio: Protocol) -> Engine:
    return load_switch(trio.program)


# -- switches, workers and the oracle --------------------------------------------------------------------------------


@pytest.mark.parametrize("racks", [(1,), (5,), (2, 3), (1, 1, 1), (8, 8)])
def test_losses_leave_no_worker_out(trio: Protocol, timing_switch: Engine, racks: tuple[int, ...]) -> None:
    work = Work(racks, window=3, elements=(2000, 1, 700))
    outcome = run_scenario(Scenario(jobs=(work,), links=FAULTY), timing_switch, protocol=trio)
    assert not outcome.violations
    switches = len(racks) + (len(racks) > 1)
    chunks = 32 + 1 + 11
    assert outcome.events[Event.ADDED] + outcome.events[Event.NEW_CHUNK] == chunks * (
        sum(racks) + switches - 1
    )


def test_late_workers_are_left_out_and_get_the_same_sums(trio: Protocol, timing_switch: Engine) -> None:
    outcome = run_scenario(Scenario(jobs=(LATE,), links=FAULTY), timing_switch, protocol=trio)
    assert not outcome.violations
    assert outcome.events[Event.ADDED] + outcome.events[Event.NEW_CHUNK] < (79 + 1 + 11) * 7


def test_a_whole_leaf_may_be_late(trio: Protocol, timing_switch: Engine) -> None:
    """The spine then goes on without it, after twice the time."""
    late = tuple(Stall(rank, 1e-5, 0.1) for rank in (2, 3))
    work = Work((2, 2), window=8, elements=(64 * 8,), stalls=late)
    outcome = run_scenario(Scenario(jobs=(work,), links=LinkProperties()), timing_switch, protocol=trio)
    assert not outcome.violations


@pytest.mark.parametrize("seed", [*range(4), 9, 44])
def test_soak_finds_nothing_wrong_in_random_networks(
    trio: Protocol, timing_switch: Engine, seed: int
) -> None:
    """In those of seeds 9 and 44, a leaf got a result before it had sent its part: it once waited for ever."""
    assert not run_scenario(scenario_for(seed, trio), timing_switch, protocol=trio).violations


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("text", "mutated"),
    [
        # A copy of a packet is added again.
        ("} else if ((seen & sender_bit) == 0) {", "} else if (true) {"),
        # A part of the sum has the ranks of the packet that came last.
        ("RANKS = ranks;\n                block_0", "block_0"),
        # A slot begins its next chunk while a late worker needs the result.
        ("vacant = next_asked == job_full;", "vacant = true;"),
        # It waits for a child that has the result from elsewhere.
        ("next_asked = next_asked | sender_bit;", ""),
        # The result of some workers changes when the rest has come.
        ("done = 1;\n                        multicast_result();", "multicast_result();"),
        # Nobody is given up.
        ("now - born >= (PATIENCE << STEP) * height", "false"),
    ],
)
def test_soak_finds_a_program_with_a_mistake(
    trio: Protocol, cache: pytest.Cache, text: str, mutated: str
) -> None:
    wrong = switch_with(trio, text, mutated, cache)
    forever = Work((2, 3), window=3, elements=(5000, 5000), stalls=(*STALLED, Stall(3, 0.03, 20.0)))
    scenario = Scenario(jobs=(forever if mutated == "false" else LATE,), links=FAULTY)
    assert run_scenario(scenario, wrong, protocol=trio).violations


@pytest.mark.parametrize(
    ("text", "mutated"),
    [
        # A sum of some is taken for one of all.
        (
            "factors = self.lease.workers / np.maximum(_workers_in(packets), 1)",
            "factors = np.ones(len(packets))",
        ),
        # All workers send the bit of one.
        ('packets["call"] = 1 << self.lease.rank', 'packets["call"] = 1'),
    ],
)
def test_soak_finds_a_worker_with_a_mistake(
    trio: Protocol, timing_switch: Engine, tmp_path: Path, text: str, mutated: str
) -> None:
    wrong = protocol_with(trio, text, mutated, tmp_path)
    assert run_scenario(Scenario(jobs=(LATE,), links=FAULTY), timing_switch, protocol=wrong).violations


# -- the oracle ------------------------------------------------------------------------------------------------------


def _inputs(elements: int) -> list[NDArray[np.float32]]:
    return [np.random.default_rng(rank).standard_normal(elements, dtype=np.float32) for rank in range(4)]


def _violations(inputs: list[NDArray[np.float32]], result: NDArray[np.float64]) -> int:
    shape = {"spines": 1, "leaves": 2, "hosts_per_leaf": 2}
    said = {"protocol": "trio", "values": 64, "size": "1 kB", "topology": {"leaf_spine": shape}}
    oracle = oracle_of(Settings.model_validate(said).settled, "in-network", 8)
    return oracle.promise(inputs).hold([result.astype(np.float32)]).violations


def test_the_oracle_accepts_scaled_sums_of_some_workers_for_each_chunk() -> None:
    inputs = _inputs(130)
    result = np.sum(inputs, axis=0, dtype=np.float64)
    result[:64] = 2 * (inputs[1][:64].astype(np.float64) + inputs[3][:64])
    result[128:] = 4 * inputs[0][128:]
    assert _violations(inputs, result) == 0


@pytest.mark.parametrize(
    "weights",
    [(2, 1, 1, 1), (0, 1, 1, 1), (0, 0, 0, 0), (2, 2, 1, 0), (4 / 3, 4 / 3, 0, 0), (0, 2, 2, 2)],
)
def test_the_oracle_refuses_what_is_added_twice_or_scaled_wrong(weights: tuple[float, ...]) -> None:
    inputs = _inputs(64)
    result = np.tensordot(np.array(weights), np.array(inputs, np.float64), 1)
    assert _violations(inputs, result) > 60


def test_the_oracle_refuses_a_sum_whose_elements_have_different_workers() -> None:
    inputs = _inputs(64)
    result = np.sum(inputs, axis=0, dtype=np.float64)
    result[32:] = 2 * (inputs[1][32:].astype(np.float64) + inputs[3][32:])
    assert _violations(inputs, result) >= 32
    assert _violations(inputs, np.full(64, np.nan)) == 64


def test_more_workers_than_the_oracle_can_tell_apart_are_refused(trio: Protocol) -> None:
    network = leaf_spine(1, 2, 9)
    tree = aggregation_tree(network, Job(1, tuple(host.name for host in network.ranked_hosts)))
    with pytest.raises(ControllerError, match="at most 16 workers in a job, not 18"):
        trio.planner().plan_aggregation(network, tree)
    assert trio.unusable_in_jobs == "its results may lack late workers"


# -- scenarios -------------------------------------------------------------------------------------------------------

TRAINING = """
name = "stalls"
protocol = "trio"
window = 256
recovery.initial_rto = "1 ms"
recovery.min_rto = "1 ms"
[topology.leaf_spine]
spines = 1
leaves = 2
hosts_per_leaf = 2
rate = "10 Gb/s"
[training]
epochs = 1
batch = 256
hidden = 16
compute_time = "5 ms"
stalls = 0.2
stall_time = "20 ms"
"""


def test_a_training_does_not_wait_for_workers_that_stall(timing_switch: Engine, tmp_path: Path) -> None:
    file = tmp_path / "stalls.toml"
    file.write_text(TRAINING)
    (point,) = load_scenario(file).points
    (waiting,) = load_scenario(file, ["protocol=fanin"]).points
    some, all_of_them = run_virtual(point, timing_switch), run_virtual(waiting, load_switch())
    assert some.violations == all_of_them.violations == 0
    assert some.curve is not None
    assert all_of_them.curve is not None
    assert some.curve.seconds[-1] < 0.9 * all_of_them.curve.seconds[-1]
    assert some.curve.accuracy[-1] > all_of_them.curve.accuracy[-1] - 0.1


@pytest.mark.live
def test_in_a_live_network_its_sums_are_right(tmp_path: Path) -> None:
    right_sums_of("trio", tmp_path)
