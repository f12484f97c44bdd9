"""What the closed form of a point's algorithm says of its time."""

from __future__ import annotations

from experiments.models.closed_forms import between_hosts, in_network
from experiments.models.packets import full_frame, full_payload, in_network_frame
from experiments.models.paths import Paths
from experiments.scenario.settings import Settings
from workers import wire


def predicted_seconds(settings: Settings, size: int, window: int) -> float | None:
    """Seconds of an all-reduce of `size` bytes with `window` packets in flight; None: its links are unlimited.

    From the rate of the hosts' links, headers, the links between each two hosts that send to one another, and how late
    hosts notice. Of loss, of what uplinks carry for several hosts and of the processor's time it knows nothing.
    """
    link, live = settings.host_link, settings.world == "live"
    if link.rate_bits_per_second is None:
        return None
    properties = link.properties
    overhead = (properties.overhead or 0) if live else properties.virtual_overhead
    byte_seconds = 8 / link.rate_bits_per_second
    payload, frame = full_payload(settings), full_frame(settings)
    bandwidth = payload / ((frame + overhead) * byte_seconds)
    paths = Paths(settings, frame)
    if settings.algorithm != "in-network":
        workers = len(settings.members)
        return between_hosts(settings.algorithm, workers, size, paths.latency, bandwidth, settings.shards)
    packets, ahead = -(-size // payload), 0.0
    # Vectors within the window are scaled as the one before let expect, but for the first (workers/scaling.py).
    if packets > window or not (settings.training or settings.repetitions > 1):
        leading = in_network_frame(min(wire.SIZES)) + overhead
        ahead = min(window, packets) * leading * byte_seconds
    return in_network(packets * payload, paths.round_trip, bandwidth, window * payload, ahead)
