"""Majority votes of one bit per element: worker, program, plan and oracle together, with faults."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fanin.assurance.soak.generate import scenario_for
from fanin.assurance.soak.run import run_scenario
from fanin.assurance.soak.scenario import Scenario, Work
from fanin.controller.errors import ControllerError
from fanin.controller.tree import Job, aggregation_tree
from fanin.experiments.protocol import Protocol, protocol_of
from fanin.experiments.scenario.file import load_scenario
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import load_switch
from fanin.topologies.shapes import leaf_spine
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from tests.protocols.mutants import FAULTY, switch_with

pytestmark = pytest.mark.slow

SCENARIO = """
name = "vote"
protocol = "majority"
size = "40 kB"
repetitions = 2
links.loss = 0.01
[topology.leaf_spine]
spines = 1
leaves = 2
hosts_per_leaf = 3
rate = "1 Gb/s"
"""


@pytest.fixture(scope="module")
def majority() -> Protocol:
    return protocol_of("majority")


@pytest.fixture(scope="module")
def voting(majority: Protocol) -> Engine:
    return load_switch(majority.program)


@pytest.mark.parametrize("racks", [(1,), (2,), (5,), (2, 3), (1, 1, 1), (20, 13)])
def test_the_result_is_the_majority_of_all_workers_below_the_root(
    majority: Protocol, voting: Engine, racks: tuple[int, ...]
) -> None:
    work = Work(racks, window=3, elements=(5000, 1))
    outcome = run_scenario(Scenario(jobs=(work,), links=FAULTY), voting, protocol=majority)
    assert not outcome.violations


@pytest.mark.parametrize("seed", range(4))
def test_soak_finds_nothing_wrong_in_random_networks(majority: Protocol, voting: Engine, seed: int) -> None:
    assert not run_scenario(scenario_for(seed, majority), voting, protocol=majority).violations


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("text", "mutated"),
    [
        ("(stored & added) | (carry & (stored ^ added))", "(stored & added)"),  # a carry gets lost
        ("seen = seen | sender_bit;", "seen = seen | (sender_bit << 1);"),  # duplicates count
        ("} else if (job_bias[i:i] == 1) {", "} else if (i == 7) {"),  # the majority of any number is one
    ],
)
def test_soak_finds_a_program_that_counts_wrong(
    majority: Protocol, cache: pytest.Cache, text: str, mutated: str
) -> None:
    work = Work((2, 3), window=3, elements=(3000,))
    wrong = switch_with(majority, text, mutated, cache)
    assert run_scenario(Scenario(jobs=(work,), links=FAULTY), wrong, protocol=majority).violations


def test_in_a_scenario_timers_suit_its_small_packets_and_its_votes_are_no_violations(
    voting: Engine, tmp_path: Path
) -> None:
    (tmp_path / "vote.toml").write_text(SCENARIO)
    (point,) = load_scenario(tmp_path / "vote.toml").points
    (ours,) = load_scenario(tmp_path / "vote.toml", ["protocol=fanin"]).points
    measured = run_virtual(point, voting)
    assert (measured.violations, measured.error_bound) == (0, 0.0)
    sums = run_virtual(ours, load_switch())
    assert sums.recovery is not None
    assert measured.recovery is not None
    assert measured.recovery.initial_rto < sums.recovery.initial_rto / 3
    assert measured.wire_bytes_per_worker < sums.wire_bytes_per_worker / 10


def test_timers_suit_the_larger_packets_between_switches(voting: Engine, tmp_path: Path) -> None:
    (tmp_path / "vote.toml").write_text(SCENARIO)
    changes = ["loss=0", "size=2 MB", "window=512", "rate=10 Gb/s"]
    (point,) = load_scenario(tmp_path / "vote.toml", changes).points
    assert run_virtual(point, voting).retransmissions == 0


def test_no_packet_grows_more_than_bmv2_has_room_for(majority: Protocol) -> None:
    _, smallest, largest = majority.packet(256)
    assert largest - smallest <= 512  # docs/reference/bmv2.md


def test_ties_and_zeros_are_positive(majority: Protocol) -> None:
    inputs = [np.array(values, np.float32) for values in ([1, -1, -0.0, 0], [-1, -1, -2, -3])]
    assert majority.exact(inputs).tolist() == [1, -1, 1, 1]


def test_what_has_no_majority_is_refused(majority: Protocol) -> None:
    voter = majority.make_worker(Lease(1, 0, 2, 4), Recovery())
    with pytest.raises(ValueError, match="NaN"):
        voter.start(np.array([np.nan], np.float32), 0.0)
    assert voter.finished
    network = leaf_spine(1, 16, 16)
    hosts = tuple(host.name for host in network.ranked_hosts)
    tree = aggregation_tree(network, Job(1, hosts))
    with pytest.raises(ControllerError, match="255 votes, and the job has 256"):
        majority.planner().plan_aggregation(network, tree)
