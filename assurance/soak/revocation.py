"""A lease that is revoked while its job runs, as controller/jobs/lifecycle.py and workers/job/ring_fallback.py have it.

Each worker hears of it at a time of its own, finishes nothing in the network from then on, and says how many sums it
has. Once all have said so, those behind are sent the result that others have, and the next all-reduce goes by
ring.
"""

from __future__ import annotations

from collections.abc import Sequence

from fanin.assurance.soak.fabric import SoakFabric
from fanin.simulator import SECOND
from fanin.simulator.fabric import Job
from fanin.simulator.fault_recovery import carry_on, kept_of
from fanin.workers.job.retained_results import ProgressSnapshot

TELLING_A_SWITCH = 5e-5  # seconds


_NEXT_SUM = 0.05  # seconds, in which one comes if the job is not stuck


def wait_for_a_sum(fabric: SoakFabric, job: Job) -> None:
    """Until a worker has the next one."""
    stations, network = job.stations, fabric.network
    most = max(len(station.outputs) for station in stations)
    network.run(
        lambda: any(len(station.outputs) > most for station in stations), network.now / SECOND + _NEXT_SUM
    )


def revoke(fabric: SoakFabric, job: Job, hears: Sequence[float]) -> None:
    """Revoke the lease of `job`, whose workers hear of it after so many seconds (by rank).

    Not of a job of which a worker has failed: the others fail, too.
    """
    hosts = fabric.hosts_of(job)
    if not job.granted or any(host.error for host in hosts):
        return
    network = fabric.network
    begin = network.now / SECOND
    told = sorted((begin + after, rank) for rank, after in enumerate(hears))
    finished: dict[int, int] = {}  # what each says when it hears of it

    def go_on(until: float) -> None:
        while told and told[0][0] <= until:
            time, rank = told.pop(0)
            network.run(limit=time)
            hosts[rank].stop()
            finished[rank] = kept_of(job, rank).finished
        network.run(limit=until)

    job.revoke(between=lambda: go_on(network.now / SECOND + TELLING_A_SWITCH))
    fabric.queue.lose_slots(job)
    go_on(max([network.now / SECOND, *(time for time, _ in told)]))
    if not any(host.error for host in hosts):
        standing = ProgressSnapshot([finished[rank] for rank in range(len(hosts))])
        fabric.caught_up += carry_on(job, standing, network.now / SECOND)
