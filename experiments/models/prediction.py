"""The time of a point according to the analytical model of its algorithm."""

from __future__ import annotations

from collections.abc import Sequence

from fanin.experiments.models.closed_forms import collective, in_network
from fanin.experiments.models.packets import full_frame, full_payload, in_network_frame
from fanin.experiments.models.paths import Paths
from fanin.experiments.models.step import bucket_slices, ready_shares, step_seconds
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.workers import wire
from fanin.workers.host_based.algorithms.all_reduce import NO_LIMIT, Hosts, Window
from fanin.workers.host_based.algorithms.registry import algorithm_named


def predicted_seconds(
    settings: Settings, size: int, window: int, members: Sequence[str] | None = None
) -> float | None:
    """Predict the seconds of an all-reduce from headers, the links on the path, and how late hosts notice packets.

    In the network, the slowest link of the tree sets the rate, as each link carries every packet once; between hosts,
    their own links do. The model knows no loss, no links that several hosts share, and no processor time.

    Args:
        settings: The point.
        size: Bytes of a vector.
        window: Packets in flight.
        members: The hosts by rank; None: all workers.

    Returns:
        Seconds; None if links are unlimited, or those of hosts differ in an all-reduce between hosts.
    """
    if settings.host_link.rate_bits_per_second is None:
        return None
    members = members or settings.members
    part = -(-size // settings.trees)  # along each tree
    payload, paths = full_payload(settings), Paths(settings, full_frame(settings), members=members)
    if settings.algorithm != "in-network":
        if len({settings.network.links_of(name)[0].rate_bits_per_second for name in members}) > 1:
            return None
        workers, bandwidth = len(members), payload / paths.packet_seconds(settings.host_link)
        limit = NO_LIMIT
        if settings.transport != "tcp":  # the kernel sets TCP's window
            per_host = settings.window_per == "host"
            bytes_ahead = window * payload * (1 if per_host else settings.flows_per_pair)
            limit = Window(bytes_ahead, per_host, settings.coalescing)
        if (gathered := settings.compression.gathered(size, workers)) is not None:
            return collective("all-gather", workers, gathered, paths.latency, bandwidth, limit)
        if settings.collective != "all-reduce":
            return collective(settings.collective, workers, size, paths.latency, bandwidth, limit)
        if workers == 1:
            return 0.0
        hosts = Hosts(workers, paths.latency, bandwidth, settings.shards, window=limit)
        return algorithm_named(settings.algorithm).seconds(size, hosts)
    packets, ahead = -(-part // payload), 0.0
    # A vector that fits into the window uses the exponents that the previous one suggests (workers/values/scaling.py).
    if packets > window or not (settings.training or settings.repetitions > 1):
        ahead = Paths(settings, in_network_frame(min(wire.SIZES)), members=members).shared(window, packets)
    bandwidth = payload / paths.shared(1, 1)
    return in_network(packets * payload, paths.round_trip, bandwidth, window * payload, ahead)


def predicted_training_step(
    settings: Settings, window: int, bucket: int | None = None, slowness: float = 1.0
) -> float | None:
    """Predict the seconds of a training step, without the time in which workers wait for data.

    Args:
        settings: The point, which has a table step.
        window: Packets in flight.
        bucket: Elements of a bucket; None: those of the point.
        slowness: Factor by which the slowest worker computes longer than in the table.

    Returns:
        Seconds; None if predicted_seconds() cannot predict the sums.
    """
    step, elements = settings.step, settings.elements
    assert step is not None
    assert elements is not None
    if bucket is None:
        bucket = elements if step.bucket is None else min(step.bucket // ELEMENT_BYTES, elements)
    parts = [ELEMENT_BYTES * (part.stop - part.start) for part in bucket_slices(elements, bucket)]
    # A sum knows what exponents to expect from the previous sum of the same length.
    several = settings.model_copy(update={"repetitions": settings.repetitions * len(parts)})
    alone = {size: predicted_seconds(several, size, window) for size in set(parts)}
    sums = [seconds for part in parts if (seconds := alone[part]) is not None]
    if len(sums) < len(parts):
        return None
    shares = ready_shares(elements, bucket)
    return step_seconds(slowness * step.forward, slowness * step.backward, shares, sums)
