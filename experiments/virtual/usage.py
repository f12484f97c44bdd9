"""What links and workers have counted in virtual time."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.results.usage import LinkUse, Usage, WorkerUse, spans
from experiments.virtual.fabric import Cluster, Fabric
from topologies.virtual import SECOND


def usage_of(fabric: Fabric, workers: Sequence[WorkerUse], priority: int) -> Usage:
    """Of a run of these workers, whose packets have this priority."""
    return Usage(_links(fabric, float(spans(workers).sum()), priority), tuple(workers))


def workers_of(cluster: Cluster) -> list[WorkerUse]:
    """Of a run in which every other all-reduce, the first among them, is a barrier (point.py)."""
    return [
        WorkerUse(
            rank=rank,
            host=host,
            began=tuple(station.began[1::2]),
            ended=tuple(station.ended[1::2]),
            retransmissions=station.retransmissions,
        )
        for rank, host, station in zip(cluster.job.ranks, cluster.members, cluster.stations, strict=True)
    ]


def _links(fabric: Fabric, seconds: float, priority: int) -> tuple[LinkUse, ...]:
    """seconds: of all all-reduces together."""
    topology, counts = fabric.topology, fabric.network.links.counts
    overtaken = fabric.network.overtaken[:, priority : priority + 1].sum(axis=1)
    lower = fabric.network.wire_bytes[:, :priority].sum(axis=1)
    directions = zip(
        fabric.network.link_ends, (link for link in topology.links for _ in range(2)), strict=True
    )
    found = []
    for i, ((near, far), link) in enumerate(directions):
        if not (counts.packets[i] or counts.queue_drops[i] or counts.watchdog_drops[i]):
            continue
        packets, octets = int(counts.packets[i]), int(counts.bytes[i])
        found.append(
            LinkUse(
                near=near,
                far=far,
                packets=packets,
                bytes=octets,
                wire_bytes=octets + packets * link.properties.virtual_overhead,
                busy_seconds=int(counts.busy[i]) / SECOND,
                paused_seconds=int(counts.paused[i]) / SECOND,
                pauses=int(counts.pauses[i]),
                storms=int(counts.storms[i]),
                watchdog_drops=int(counts.watchdog_drops[i]),
                overtaken_seconds=int(overtaken[i]) / SECOND,
                lower_bytes=int(lower[i]),
                # Little's law: how many wait on average, times their mean size.
                mean_queue=int(counts.waited[i]) / SECOND / seconds * octets / max(packets, 1),
                longest_queue=int(counts.longest_wait[i]) / SECOND * (link.rate_bits_per_second or 0) / 8,
                queue_drops=int(counts.queue_drops[i]),
                marks=int(counts.marks[i]),
                lost=int(counts.lost[i]),
            )
        )
    return tuple(found)
