"""What the closed form of a point's algorithm says of its time."""

from __future__ import annotations

from collections.abc import Sequence

from fanin.experiments.models.closed_forms import NO_LIMIT, Window, between_hosts, collective, in_network
from fanin.experiments.models.packets import full_frame, full_payload, in_network_frame
from fanin.experiments.models.paths import Paths
from fanin.experiments.scenario.settings import Settings
from fanin.workers import wire


def predicted_seconds(
    settings: Settings, size: int, window: int, members: Sequence[str] | None = None
) -> float | None:
    """Seconds of an all-reduce of `size` bytes with `window` packets in flight.

    members: the hosts by rank, if not all workers. None: its links are unlimited, or between hosts not alike.

    From headers, the links on the way and how late hosts notice. In-network the slowest link of the tree sets the rate,
    as each carries every packet once; between hosts, the hosts' own. Of loss, of what other links carry for several
    hosts and of the processor's time it knows nothing.
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
        if settings.transport != "tcp":  # whose window is the kernel's
            per_host = settings.window_per == "host"
            bytes_ahead = window * payload * (1 if per_host else settings.flows_per_pair)
            limit = Window(bytes_ahead, per_host, settings.coalescing)
        if (gathered := settings.compression.gathered(size, workers)) is not None:
            return collective("all-gather", workers, gathered, paths.latency, bandwidth, limit)
        if settings.collective != "all-reduce":
            return collective(settings.collective, workers, size, paths.latency, bandwidth, limit)
        return between_hosts(
            settings.algorithm, workers, size, paths.latency, bandwidth, settings.shards, window=limit
        )
    packets, ahead = -(-part // payload), 0.0
    # Vectors within the window are scaled as the one before let expect, but for the first (workers/values/scaling.py).
    if packets > window or not (settings.training or settings.repetitions > 1):
        ahead = Paths(settings, in_network_frame(min(wire.SIZES)), members=members).shared(window, packets)
    bandwidth = payload / paths.shared(1, 1)
    return in_network(packets * payload, paths.round_trip, bandwidth, window * payload, ahead)
