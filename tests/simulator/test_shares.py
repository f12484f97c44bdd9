"""Jobs that share a link which marks: each gets its share of it, whatever its window and whenever it began."""

from __future__ import annotations

import numpy as np
import pytest

from fanin.p4switch.engine.engine import Engine
from fanin.simulator import HostModel
from fanin.simulator.fabric import Fabric, Job
from fanin.simulator.hosts.stations import Vector
from fanin.simulator.job_spec import JobSpec
from fanin.topologies.shapes import leaf_spine
from fanin.workers.collective import Algorithm
from tests.sizes import sized

pytestmark = pytest.mark.slow

GIGABIT = 10**9
PACKET = 1104  # bytes on the wire, of 256 values
# Two leaves of two hosts each, and one uplink from each, which is no faster than a host.
HOSTS = (("h1", "h3"), ("h2", "h4"))
ELEMENTS = 256 * 20_000
SEEDS = sized((1,), (0, 1, 2))  # the second job begins so many half milliseconds after the first


def fabric(switch: Engine, seed: int, *, ecn_bytes: int | None) -> Fabric:
    """Its links have jitter: without any, who comes first in a queue would do so for ever (Floyd, Jacobson, 1992)."""
    links = {"delay": 5e-6, "jitter": 1e-6, "ecn_bytes": ecn_bytes, "queue_bytes": 700 * PACKET}
    topology = leaf_spine(
        1, 2, 2, rate=10 * GIGABIT, uplink_rate=10 * GIGABIT, properties=links, uplink_properties=links
    )
    return Fabric(topology, switch, seed=seed)


def start(on: Fabric, place: int, window: int, at: float, algorithm: Algorithm = "in-network") -> Job:
    spec = JobSpec(hosts=HOSTS[place], window=window, algorithm=algorithm)
    vectors: list[Vector] = [np.ones(ELEMENTS, np.float32) for _ in HOSTS[place]]
    return on.start(spec, [vectors], [at, at])


def sent(on: Fabric, job: Job) -> int:
    """Bytes that its first host has sent."""
    links = zip(on.network.link_ends, on.network.links.counts.bytes.tolist(), strict=True)
    return sum(count for (near, _), count in links if near == job.members[0])


def first_share(on: Fabric, jobs: list[Job]) -> float:
    """Return the first job's share of what both send in 15 ms, some 350 round trips, when both have begun."""
    on.network.run(limit=3e-3)
    before = [sent(on, job) for job in jobs]
    on.network.run(limit=18e-3)
    assert not any(station.finished for job in jobs for station in job.stations)
    counts = [sent(on, job) - earlier for job, earlier in zip(jobs, before, strict=True)]
    assert sum(counts) > 0.9 * 15e-3 * 10 * GIGABIT / 8  # and the link is used
    return counts[0] / sum(counts)


@pytest.mark.few(1)
@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("windows", [(64, 64), (256, 64), (500, 100)])
def test_two_jobs_on_one_uplink_get_the_same_within_a_tenth(
    switch: Engine, seed: int, windows: tuple[int, int]
) -> None:
    on = fabric(switch, seed, ecn_bytes=20 * PACKET)
    jobs = [start(on, 0, windows[0], 0.0), start(on, 1, windows[1], seed * 5e-4)]
    assert first_share(on, jobs) == pytest.approx(0.5, rel=0.1)
    workers = [station.worker for job in jobs for station in job.stations]
    assert [worker.statistics.retransmissions for worker in workers] == [0] * 4
    for one, other in (
        workers[:2],
        workers[2:],
    ):  # of a job: they follow the same marks, perhaps a round apart
        assert one.statistics.congestion_window == pytest.approx(other.statistics.congestion_window, rel=0.25)


def test_a_job_that_fills_the_queue_alone_halves_its_window_once(switch: Engine) -> None:
    """All packets of its first window are marked that meet the queue, and half of the window no longer does."""
    window, links = 64, {"delay": 5e-6}
    uplinks = {**links, "ecn_bytes": 20 * PACKET}
    topology = leaf_spine(
        1, 2, 2, rate=40 * GIGABIT, uplink_rate=10 * GIGABIT, properties=links, uplink_properties=uplinks
    )
    on = Fabric(topology, switch, host=HostModel(coalescing=0.0))
    (worker, _) = (station.worker for station in start(on, 0, window, 0.0).stations)
    sizes = []
    for moment in np.arange(0, 3e-4, 1e-5):
        on.network.run(limit=float(moment))
        sizes.append(worker.statistics.congestion_window)
    assert window / 2 <= min(sizes) < 0.6 * window


def test_where_nothing_marks_the_larger_window_has_the_larger_share(switch: Engine) -> None:
    on = fabric(switch, 0, ecn_bytes=None)
    assert first_share(on, [start(on, 0, 500, 0.0), start(on, 1, 100, 0.0)]) > 0.7


@pytest.mark.few(0)
@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_a_ring_of_hosts_beside_a_job_in_the_network_is_not_starved(switch: Engine, seed: int) -> None:
    on = fabric(switch, seed, ecn_bytes=20 * PACKET)
    jobs = [start(on, 0, 500, 0.0), start(on, 1, 64, seed * 5e-4, "ring")]
    assert first_share(on, jobs) == pytest.approx(0.5, rel=0.2)
