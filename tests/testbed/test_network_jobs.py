"""The grants to those who join a network: places of their own, and all that a worker needs to begin."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from fanin.controller.errors import ControllerError
from fanin.controller.jobs.budget import NoRoomError
from fanin.controller.jobs.lifecycle import JobRequest
from fanin.controller.planner import OURS, Planner
from fanin.controller.tree import Job, Tree, aggregation_tree
from fanin.testbed.network_jobs import NetworkJob, NetworkJobs
from fanin.topologies.shapes import leaf_spine
from fanin.workers import Lease
from fanin.workers.recovery import Pace

TOPOLOGY = leaf_spine(spines=1, leaves=2, hosts_per_leaf=2)
PACE = Pace(window=256, segments=8, initial_rto=0.5, min_rto=0.2)


@dataclass
class FakeGrant:
    tree: Tree
    controller: "FakeController"

    async def withdraw(self) -> None:
        self.controller.in_force.remove(self.tree.job)
        if self.controller.refuses:
            raise ControllerError("leaf1 refuses")


@dataclass
class FakeController:
    """Grants lease after lease."""

    in_force: list[Job] = field(default_factory=list)
    granted: int = 0
    refuses: bool = False
    planner: Planner = OURS

    async def grant(self, hosts: tuple[str, ...], udp_port: int, base: int, slots: int) -> FakeGrant:
        if self.refuses:
            raise ControllerError("leaf1 refuses")
        self.granted += 1
        first = self.granted * 1000
        job = Job(self.granted, hosts, udp_port, base, slots, first, first + 999)
        self.in_force.append(job)
        return FakeGrant(aggregation_tree(TOPOLOGY, job), self)


def grants(controller: FakeController, pace: Pace = PACE) -> NetworkJobs:
    fake: Any = controller
    return NetworkJobs(fake, TOPOLOGY, pace)


def grant(jobs: NetworkJobs, *hosts: str, slots: int | None = None) -> NetworkJob:
    job = jobs.open(JobRequest(hosts, slots=slots))
    asyncio.run(job.grant())
    return job


def test_each_worker_is_told_its_rank_the_lease_and_both_ends_of_its_flow() -> None:
    job = grant(grants(FakeController()), "h2", "h3")
    said = job.assignment("h3")
    assigned = said["config"]
    assert Lease(**assigned["lease"]) == Lease(1, 1, 2, 256, first_chunk=1000, last_chunk=1999)
    assert (assigned["local"], assigned["remote"]) == (("10.2.0.1", 0xBEE0), ("10.2.0.254", 0xBEE0))
    assert said["rank"] == 1
    assert said["addresses"] == [("10.1.0.2", 28500), ("10.2.0.1", 28500)]
    assert (assigned["segments"], assigned["offload"]) == (8, True)
    assert (assigned["recovery"]["initial_rto"], assigned["recovery"]["min_rto"]) == (0.5, 0.2)


def test_jobs_at_the_same_time_have_slots_and_ports_of_their_own_and_then_room_is_made() -> None:
    controller = FakeController()
    jobs = grants(controller)
    held = [grant(jobs, "h1") for _ in range(4)]
    assert [(job.base, job.slots) for job in controller.in_force] == [(n, 256) for n in (0, 256, 512, 768)]
    assert len({job.udp_port for job in controller.in_force}) == 4
    assert [job.assignment("h1")["addresses"][0][1] for job in held] == [28500, 28501, 28502, 28503]
    waiting = jobs.open(JobRequest(("h1",)))
    with pytest.raises(NoRoomError, match="leaf1 has 0 of 1,024 slots free; the job needs 256"):
        asyncio.run(waiting.grant())
    asyncio.run(held[2].withdraw())
    held[2].close()
    asyncio.run(waiting.grant())
    assert controller.in_force[-1].base == 512
    assert grant(jobs, "h3").assignment("h3")["addresses"] == [("10.2.0.1", 28502)]


def test_a_job_gets_the_slots_that_it_asks_for() -> None:
    controller = FakeController()
    job = grant(grants(controller), "h1", "h2", slots=16)
    assert controller.in_force[0].slots == job.assignment("h2")["config"]["lease"]["window"] == 16


@pytest.mark.parametrize(
    ("window", "first", "others"),
    [
        (992, 512, [128, 96, 72, 54, 40, 32, 32, 32]),
        (496, 496, [132, 99, 74, 55, 42, 32, 32, 32]),
        (128, 128, [128, 128, 128, 128, 96, 72, 54, 40]),
        (16, 16, [16] * 8),
    ],
)
def test_a_share_of_the_free_slots_leaves_some_for_further_jobs(
    window: int, first: int, others: list[int]
) -> None:
    controller = FakeController()
    jobs = grants(controller, replace(PACE, window=window))
    for share in (2, *[4] * len(others)):
        asyncio.run(jobs.open(JobRequest(("h1", "h2"), slot_share=share)).grant())
    assert [job.slots for job in controller.in_force] == [first, *others]


def test_a_job_with_a_share_gets_the_slots_that_it_asks_for_and_waits_when_few_are_left() -> None:
    controller = FakeController()
    jobs = grants(controller)
    asyncio.run(jobs.open(JobRequest(("h1",), slots=1000, slot_share=4)).grant())
    assert controller.in_force[0].slots == 1000
    with pytest.raises(NoRoomError, match="leaf1 has 24 of 1,024 slots free; the job needs 32"):
        asyncio.run(jobs.open(JobRequest(("h2",), slot_share=4)).grant())


@pytest.mark.parametrize("when", ["grant", "withdraw"])
def test_a_place_is_free_again_whatever_the_controller_says(when: str) -> None:
    controller = FakeController()
    jobs = grants(controller)
    job = grant(jobs, "h1") if when == "withdraw" else jobs.open(JobRequest(("h1",)))
    controller.refuses = True
    with pytest.raises(ControllerError, match="leaf1 refuses"):
        asyncio.run(job.withdraw() if when == "withdraw" else job.grant())
    job.close()
    controller.refuses = False
    controller.in_force.clear()
    grant(jobs, "h1")
    assert (controller.in_force[0].base, controller.in_force[0].udp_port) == (0, 0xBEE0)
