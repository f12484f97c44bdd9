"""Several jobs on one fabric: each has its own leases, slots, sizes and windows, and none touches another's sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fanin.controller.errors import ControllerError
from fanin.controller.jobs.ledger import LEASES, Identity, NumberSpace
from fanin.controller.telemetry import Event
from fanin.experiments.models.expected_sums import QuantizedSums, wrong
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import Fabric, Job
from fanin.simulator.hosts.stations import Vector
from fanin.simulator.job_spec import JobSpec
from fanin.topologies.shapes import leaf_spine
from fanin.workers.protocol import Worker

pytestmark = pytest.mark.slow

GIGABIT = 10**9
# Two leaves of four hosts each. The first two jobs meet on both leaves, the third is alone on the second.
TOPOLOGY = leaf_spine(2, 2, 4, rate=10 * GIGABIT, uplink_rate=10 * GIGABIT)
WIDE = JobSpec(hosts=("h1", "h2", "h5"), window=32)
NARROW = JobSpec(hosts=("h3", "h6", "h7"), window=5, values=64)
SMALL = JobSpec(hosts=("h8",), window=3)
SPECS = (WIDE, NARROW, SMALL)


def inputs(spec: JobSpec, elements: int, seed: int = 0) -> list[list[Vector]]:
    """One all-reduce."""
    assert spec.hosts
    draw = np.random.default_rng(seed)
    return [[draw.standard_normal(elements, dtype=np.float32) for _ in spec.hosts]]


def assert_exact(job: Job, vectors: list[list[Vector]]) -> None:
    for step, inputs_of_all in enumerate(vectors):
        for station in job.stations:
            assert not wrong(job.spec, inputs_of_all, station.outputs[step]).any()


def leases(job: Job) -> set[tuple[int, range]]:
    """(id, slots), as its workers have them."""
    found = set()
    for station in job.stations:
        lease = station.worker.lease
        found.add((lease.id, range(lease.first_slot, lease.first_slot + lease.window)))
    return found


@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_every_job_gets_its_exact_sums(switch: Engine, loss: float) -> None:
    fabric = Fabric(TOPOLOGY.with_properties(loss=loss), switch, seed=1)
    vectors = [inputs(spec, 20_000 * (i + 1), seed=i) for i, spec in enumerate(SPECS)]
    jobs = [fabric.start(spec, x) for spec, x in zip(SPECS, vectors, strict=True)]
    assert fabric.run(limit=10.0)
    for job, x in zip(jobs, vectors, strict=True):
        assert_exact(job, x)


def test_leases_and_slots_do_not_overlap(switch: Engine) -> None:
    fabric = Fabric(TOPOLOGY, switch)
    jobs = [fabric.start(spec, inputs(spec, 1000)) for spec in SPECS]
    assert [leases(job) for job in jobs] == [{(1, range(32))}, {(2, range(32, 37))}, {(3, range(37, 40))}]


def test_more_slots_than_the_switches_have_are_refused(switch: Engine) -> None:
    fabric = Fabric(TOPOLOGY, switch)
    fabric.start(replace(WIDE, window=1000), inputs(WIDE, 100))
    with pytest.raises(ControllerError, match="base"):
        fabric.start(replace(NARROW, window=100), inputs(NARROW, 100))


def test_a_job_that_saturates_leaves_the_others_alone(switch: Engine) -> None:
    fabric = Fabric(TOPOLOGY, switch)
    saturating = replace(WIDE, counted=1)
    loud = [[np.ones(5000, np.float32)] * 3]
    quiet = inputs(NARROW, 5000)
    first = fabric.start(saturating, loud, make_worker=lambda *of: Worker(*of, on_saturation="count"))
    second = fabric.start(NARROW, quiet)
    assert fabric.run(limit=10.0)
    saturated, _ = QuantizedSums(256, 0, 1).next(loud[0]).saturated
    assert saturated > 0
    assert {s.worker.statistics.saturated for s in first.stations} == {saturated}
    assert {s.worker.statistics.saturated for s in second.stations} == {0}
    assert fabric.events()[Event.SATURATED] > 0
    assert_exact(second, quiet)


def test_a_job_that_stalls_does_not_hold_up_the_others(switch: Engine) -> None:
    def ended(stall: float) -> tuple[float, float]:
        fabric = Fabric(TOPOLOGY, switch)
        jobs = [fabric.start(spec, inputs(spec, 50_000)) for spec in (WIDE, NARROW)]
        fabric.network.stall("h2", 0.0, stall)
        assert fabric.run(limit=10.0)
        first, second = (max(station.ended[-1] for station in job.stations) for job in jobs)
        return first, second

    stalled, other = ended(0.1)
    assert stalled > 0.1
    assert other <= ended(0.0)[1]


def test_jobs_that_share_a_link_share_its_rate(switch: Engine) -> None:
    """Two jobs of two workers each; both need all of each leaf's one uplink."""
    topology = leaf_spine(1, 2, 2, rate=10 * GIGABIT, uplink_rate=10 * GIGABIT)
    specs = [JobSpec(hosts=("h1", "h3"), window=128), JobSpec(hosts=("h2", "h4"), window=128)]

    def seconds(count: int) -> float:
        fabric = Fabric(topology, switch)
        jobs = [fabric.start(spec, inputs(spec, 256 * 2000)) for spec in specs[:count]]
        assert fabric.run(limit=10.0)
        return max(station.ended[-1] for job in jobs for station in job.stations)

    assert seconds(2) == pytest.approx(2 * seconds(1), rel=0.05)


def test_a_restarted_switch_costs_only_its_own_jobs_a_lease(switch: Engine) -> None:
    fabric = Fabric(TOPOLOGY, switch)
    vectors = [inputs(spec, 100_000) for spec in (WIDE, SMALL)]
    wide, small = (fabric.start(spec, x) for spec, x in zip((WIDE, SMALL), vectors, strict=True))
    assert not fabric.run(limit=5e-5)
    fabric.restart_switch("leaf1", notice=1e-5)
    assert fabric.run(limit=10.0)
    assert (len(wide.leases), len(small.leases)) == (2, 1)
    assert leases(wide) == {(3, range(32))}
    assert_exact(wide, vectors[0])
    assert_exact(small, vectors[1])


def identity(job: Job) -> Identity:
    """Return what the packets of its newest lease carry."""
    (granted,) = job.granted
    return Identity(granted.lease, granted.first_chunk, granted.last_chunk)


@pytest.mark.parametrize("first", [0, 2**16 - 100, 2**32 - 20_000])
def test_a_lease_id_that_comes_again_with_other_chunk_numbers_meets_old_cells_and_old_packets(
    switch: Engine, first: int
) -> None:
    """The spine still holds chunks of the lease before, some without all their parts, and its packets are under way."""
    only_one = NumberSpace(0, [first] + [2**32] * (LEASES - 1))
    late = TOPOLOGY.with_properties(loss=0.02, duplication=0.2, reordering=0.3, displacement=2e-4)
    fabric = Fabric(late, switch, seed=1, numbers=only_one)
    spec = replace(WIDE, chunks=10_000)
    vectors = inputs(spec, 100_000)
    job = fabric.start(spec, vectors)
    assert identity(job) == Identity(1, first, first + 9_999)
    assert not fabric.run(limit=5e-5)
    fabric.restart_switch("leaf1", notice=0.0)
    assert identity(job) == Identity(1, first + 10_000, first + 19_999)
    assert fabric.run(limit=10.0)
    assert_exact(job, vectors)


def test_jobs_of_different_algorithms_share_a_fabric(switch: Engine) -> None:
    fabric = Fabric(TOPOLOGY, switch)
    specs = (WIDE, replace(NARROW, algorithm="ring"))
    vectors = [inputs(spec, 30_000) for spec in specs]
    jobs = [fabric.start(spec, x) for spec, x in zip(specs, vectors, strict=True)]
    assert fabric.run(limit=10.0)
    for job, x in zip(jobs, vectors, strict=True):
        assert_exact(job, x)
