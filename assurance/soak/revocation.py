"""A lease that is revoked while its job runs, as in controller/jobs/lifecycle.py and workers/job/ring_fallback.py.

Each worker learns of it at a different time, finishes nothing in the network from then on, and reports how many sums it
has. After all reports, workers that are behind receive the result that others have, and the next all-reduce uses the
ring.
"""

from __future__ import annotations

from collections.abc import Sequence

from fanin.assurance.soak.fabric import SoakFabric
from fanin.simulator import SECOND
from fanin.simulator.fabric import Job
from fanin.simulator.fault_recovery import carry_on, retained_result_of
from fanin.workers.job.retained_results import ProgressSnapshot

TELLING_A_SWITCH = 5e-5  # seconds


_NEXT_SUM = 0.05  # seconds within which there is another sum, unless the job is stuck


def wait_for_a_sum(fabric: SoakFabric, job: Job) -> None:
    """Run until a worker has another sum."""
    stations, network = job.stations, fabric.network
    most = max(len(station.outputs) for station in stations)
    network.run(
        lambda: any(len(station.outputs) > most for station in stations), network.now / SECOND + _NEXT_SUM
    )


def revoke(fabric: SoakFabric, job: Job, hears: Sequence[float]) -> None:
    """Revoke the lease of `job`; its workers learn of it after this many seconds, by rank.

    Nothing happens if a worker of the job has failed: the others fail, too.
    """
    hosts = fabric.hosts_of(job)
    if not job.granted or any(host.error for host in hosts):
        return
    network = fabric.network
    begin = network.now / SECOND
    told = sorted((begin + after, rank) for rank, after in enumerate(hears))
    finished: dict[int, int] = {}  # sums that each worker reports when it learns of it

    def go_on(until: float) -> None:
        while told and told[0][0] <= until:
            time, rank = told.pop(0)
            network.run(limit=time)
            hosts[rank].stop()
            finished[rank] = retained_result_of(job, rank).finished
        network.run(limit=until)

    job.revoke(between=lambda: go_on(network.now / SECOND + TELLING_A_SWITCH))
    fabric.queue.lose_slots(job)
    go_on(max([network.now / SECOND, *(time for time, _ in told)]))
    if not any(host.error for host in hosts):
        progress = ProgressSnapshot([finished[rank] for rank in range(len(hosts))])
        fabric.caught_up += carry_on(job, progress, network.now / SECOND)
