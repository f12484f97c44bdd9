"""ESA: what differs from ATP. A chunk takes the slot of a less urgent one, whose sum goes on to its server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fanin.assurance.soak.generate import scenario_for
from fanin.assurance.soak.run import run_scenario
from fanin.assurance.soak.scenario import Scenario, Work
from fanin.controller.tree import Job, aggregation_tree
from fanin.experiments.protocol import Protocol, protocol_of
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import load_switch
from fanin.topologies.link import LinkProperties
from fanin.topologies.shapes import leaf_spine
from fanin.workers import wire
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from tests.p4src.switch_under_test import (
    BASE,
    PARENT_IP,
    PARENT_MAC,
    SLOTS,
    SWITCH_IP,
    UDP_PORT,
    Child,
    Message,
    SwitchUnderTest,
    block,
    ipv4,
)
from tests.protocols.live import right_sums_of
from tests.protocols.mutants import FAULTY, switch_with

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("esa")]

WINDOW = 8


@pytest.fixture(scope="module")
def esa() -> Protocol:
    return protocol_of("esa")


@pytest.fixture(scope="module")
def switch(esa: Protocol) -> Engine:
    return load_switch(esa.program)


def _two_jobs(
    slots: int, elements: tuple[int, ...] = (3000, 1, 700), links: LinkProperties = FAULTY
) -> Scenario:
    """The second job has less left than the first."""
    works = (Work((2, 3), window=3, elements=elements), Work((1, 2), window=3, elements=(640,) * 6))
    return Scenario(jobs=works, links=links, servers=True, slots=slots)


@pytest.mark.parametrize("slots", [1, 3, 50])
def test_the_result_is_the_sum_however_few_slots_the_jobs_share(
    esa: Protocol, switch: Engine, slots: int
) -> None:
    assert not run_scenario(_two_jobs(slots), switch, protocol=esa).violations


@pytest.mark.parametrize("seed", range(3))
def test_soak_finds_nothing_wrong_in_random_networks(esa: Protocol, switch: Engine, seed: int) -> None:
    assert not run_scenario(scenario_for(seed, esa), switch, protocol=esa).violations


# -- a switch with two jobs of three workers -------------------------------------------------------------------------

Sent = list[tuple[int, Message]]
PORTS = {1: 9, 2: 8}  # by lease: where the server is


class TwoJobs(SwitchUnderTest):
    """A switch with the leases 1 and 2, whose workers are its children."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.new_instance())
        self.route(SWITCH_IP, 32, "own_address")
        for lease, port in PORTS.items():
            for rank in range(3):
                child = self._child(lease, rank)
                keys = (child.port, ipv4(child.ip), ipv4(SWITCH_IP), UDP_PORT, lease)
                claim = (BASE, SLOTS, WINDOW, 0, 999, 1, port)
                self.insert("ingress.aggregation.admission", keys, "admit_child", 1 << rank, 0b111, *claim)
            self.insert("ingress.aggregation.holders", (lease,), "in_force", 0, 999, 0b111, 1, port)
            self._receiver(lease, 0, PARENT_MAC, PARENT_IP)

    def _child(self, lease: int, rank: int) -> Child:
        return Child(3 * (lease - 1) + rank + 1)

    def update(
        self, lease: int, rank: int, value: int = 1, priority: int = 0, chunk: int = 0, count: int = 64
    ) -> Sent:
        """Let a worker send a chunk."""
        message = Message(
            block(value, count=count),
            lease=lease,
            chunk=chunk,
            exponents=(0, priority << 3),
            call=1 << rank,
        )
        return self.send(self._child(lease, rank), message)


def _summary(sent: Sent) -> list[tuple[int, int, int, int, int]]:
    """Return each packet's port, lease, ranks, value, and whether its slot was in use."""
    return [(port, one.lease, one.call, one.values[0], one.exponents[1] >> 1 & 1) for port, one in sent]


@pytest.fixture
def two(switch: Engine) -> TwoJobs:
    return TwoJobs(switch)


@pytest.mark.parametrize("count", [64, 256])
def test_an_urgent_chunk_takes_the_slot_and_the_other_sum_goes_on_to_its_own_server(
    two: TwoJobs, count: int
) -> None:
    assert two.update(1, 0, 10, count=count) == two.update(1, 1, 5, count=count) == []
    assert _summary(two.update(2, 0, 7, priority=1, count=count)) == [(9, 1, 0b011, 15, 1)]
    assert two.update(2, 2, 1, priority=1, count=count) == []
    (up,) = two.update(2, 1, 2, priority=1, count=count)
    assert _summary([up]) == [(8, 2, 0b111, 10, 0)]
    assert set(up[1].values) == {10}


def test_a_chunk_that_is_not_more_urgent_goes_up_as_it_is(two: TwoJobs) -> None:
    assert two.update(1, 0, 10, priority=3) == []
    assert _summary(two.update(2, 0, 7, priority=3)) == [(8, 2, 0b001, 7, 1)]


def test_a_slot_that_others_want_becomes_less_urgent(two: TwoJobs) -> None:
    assert two.update(1, 0, 10, priority=4) == []
    assert _summary(two.update(2, 0, 7, priority=3)) == [(8, 2, 0b001, 7, 1)]
    assert _summary(two.update(2, 0, 7, priority=3, chunk=1)) == [(9, 1, 0b001, 10, 1)]


def test_what_comes_of_a_chunk_after_a_part_of_it_went_up_does_not_wait_in_the_slot(two: TwoJobs) -> None:
    two.update(1, 0, 10)
    for rank in range(3):
        two.update(2, rank, 1, priority=1)
    assert _summary(two.update(1, 1, 5)) == [(9, 1, 0b010, 5, 1)]
    assert two.update(1, 1, 5, chunk=1) == []


def test_a_chunk_whose_sum_went_up_leaves_its_slot_to_any_other(two: TwoJobs) -> None:
    for rank in range(3):
        sent = two.update(1, rank, priority=15)
    assert _summary(sent) == [(9, 1, 0b111, 3, 0)]
    assert two.update(2, 0) == []
    assert _summary(two.update(2, 1) + two.update(2, 2)) == [(8, 2, 0b111, 3, 0)]


@pytest.mark.parametrize(("lease", "count"), [(1, 64), (2, 256)])
def test_chunks_of_the_same_job_or_of_another_size_do_not_compete(
    two: TwoJobs, lease: int, count: int
) -> None:
    two.update(1, 0, 10)
    assert _summary(two.update(lease, 1, 7, priority=9, chunk=1, count=count)) == [
        (PORTS[lease], lease, 0b010, 7, 1)
    ]
    assert _summary(two.update(1, 1) + two.update(1, 2)) == [(9, 1, 0b111, 12, 0)]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("text", "mutated"),
    [
        # The values of the chunk that makes room are lost, and those of the other take their place.
        ("operation = OPERATION_SWAP;", "operation = OPERATION_STORE;"),
        # What goes on is taken for the workers of the chunk that comes.
        ("RANKS = ranks;\n        hdr.exponents.unused[2:0] = marks;", ""),
        # It is taken for that chunk of its own job.
        ("hdr.switchml.chunk = stored_chunk;\n        RANKS", "RANKS"),
        # The slot keeps the ranks of what it had.
        ("ranks = new_ranks;", ""),
    ],
)
def test_soak_finds_a_program_with_a_mistake(
    esa: Protocol, cache: pytest.Cache, text: str, mutated: str
) -> None:
    wrong = switch_with(esa, text, mutated, cache)
    assert run_scenario(_two_jobs(3, (6000, 6000)), wrong, protocol=esa).violations


@pytest.mark.few(0)
def test_soak_finds_slots_that_results_leave_in_use_although_all_sums_are_right(
    esa: Protocol, switch: Engine, tmp_path: Path
) -> None:
    scenario = _two_jobs(3, (6000, 6000), LinkProperties(delay=2e-6))
    assert not run_scenario(scenario, switch, protocol=esa).violations
    wrong = switch_with(esa, "if (ours) {\n                    ranks = 0;", "if (ours) {", tmp_path)
    found = run_scenario(scenario, wrong, protocol=esa).violations
    assert found
    assert all("slots are in use after the last result" in line for line in found)


def test_a_chunk_is_the_more_urgent_the_fewer_are_left_and_as_urgent_at_each_worker(esa: Protocol) -> None:
    sent = []
    for rank in range(2):
        worker = esa.make_worker(Lease(1, rank, 2, 1000, values=64, slots=1000), Recovery())
        worker.start(np.ones(64 * 1000, np.float32), 0.0)
        packets = wire.as_packets(np.concatenate(list(worker.datagrams_to_send(0.0))))
        sent.append((packets["e1"] >> 3).tolist())
    assert sent[0] == sent[1] == sorted(sent[0])
    assert sent[0][0] == 15 - 9  # 2^9 <= 1000 chunks < 2^10
    assert sent[0][-4:] == [13, 14, 14, 15]


def test_a_lease_of_any_length_has_priorities(esa: Protocol) -> None:
    worker = esa.make_worker(Lease(1, 0, 2, 4, values=64, slots=4), Recovery())
    worker.start(np.ones(64 << 16, np.float32), 0.0)
    packets = wire.as_packets(np.concatenate(list(worker.datagrams_to_send(0.0))))
    assert (packets["e1"] >> 3).tolist() == [0] * 4


def test_the_entry_of_a_lease_has_what_its_chunks_need_to_be_sent_up(esa: Protocol) -> None:
    network = leaf_spine(1, 2, 3)
    *workers, server = (host.name for host in network.ranked_hosts)
    tree = aggregation_tree(network, Job(1, tuple(workers), server=server))
    plan = esa.planner().plan_aggregation(network, tree)
    for part in tree.aggregators:
        entries = plan[part.switch].entries
        (holder,) = (entry for entry in entries if entry.action.endswith("in_force"))
        children = [entry for entry in entries if entry.action.endswith("admit_child")]
        below = [entry.params["below"] for entry in children]
        assert holder.params["all"] == sum(number for number in below if isinstance(number, int))
        assert {entry.params["uplink"] for entry in children} == {holder.params["uplink"]}


@pytest.mark.live
def test_its_sums_are_right_in_a_live_network(tmp_path: Path) -> None:
    right_sums_of("esa", tmp_path)
