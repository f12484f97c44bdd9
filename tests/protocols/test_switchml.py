"""SwitchML as published: right sums where the paper's assumptions hold, and wrong ones where packets are reordered."""

from __future__ import annotations

import pytest

from fanin.assurance.soak.run import run_scenario
from fanin.assurance.soak.scenario import Scenario, Work
from fanin.assurance.soak.search import Grant, Model, SearchWrongSumError, World, explore
from fanin.experiments.protocol import Protocol, protocol_of
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import load_switch
from fanin.topologies.link import LinkProperties

pytestmark = pytest.mark.slow

LOSSY = LinkProperties(delay=2e-6, loss=0.05)
RACKS = Scenario(jobs=(Work((2, 2), elements=(2000, 300)),), links=LOSSY)


@pytest.fixture(scope="module")
def switchml() -> Protocol:
    return protocol_of("switchml")


@pytest.fixture(scope="module")
def published(switchml: Protocol) -> Engine:
    return load_switch(switchml.program)


def test_loss_leaves_every_sum_right(switchml: Protocol, published: Engine) -> None:
    outcome = run_scenario(RACKS, published, protocol=switchml)
    assert not outcome.violations
    assert outcome.faults["loss"] > 0


def test_late_copies_make_sums_wrong_and_nobody_notices(switchml: Protocol, published: Engine) -> None:
    """A copy that is later than the timeout and a turn of its slot is added to another chunk."""
    late = LOSSY.model_copy(update={"loss": 0.0, "reordering": 0.05, "displacement": 3e-3})
    work = Work((3,), window=2, elements=(4000,))
    outcome = run_scenario(Scenario(seed=2, jobs=(work,), links=late), published, protocol=switchml)
    assert any("wrong elements" in problem for problem in outcome.violations)
    assert not any("not finished" in problem for problem in outcome.violations)


@pytest.mark.parametrize("chunks", [2, 4])
def test_with_any_order_of_packets_the_search_finds_a_wrong_sum(
    switchml: Protocol, published: Engine, chunks: int
) -> None:
    """Two chunks are enough: a late copy clears its sender's bit in the other version, where it then counts twice."""
    with pytest.raises(SearchWrongSumError):
        explore(World(Model((2,), (Grant(chunks=chunks),)), published, switchml.planner(), exponents=False))


def test_of_a_single_chunk_no_sum_is_wrong(switchml: Protocol, published: Engine) -> None:
    world = World(Model((3,), (Grant(chunks=1),)), published, switchml.planner(), exponents=False)
    assert len(explore(world)) > 4
