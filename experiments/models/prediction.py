"""What the closed form of a point's algorithm says of its time."""

from __future__ import annotations

from experiments.models.closed_forms import Fabric, closed_form
from experiments.scenario.settings import Settings
from experiments.virtual.stations import HEADERS
from workers import wire
from workers.host_based.transport import HEADER_BYTES, PAYLOAD

# Payload and frame of a full segment of TCP with timestamps, on Ethernet.
_TCP_PAYLOAD, _TCP_FRAME = 1448, 1514


def predicted_seconds(settings: Settings, size: int, window: int) -> float | None:
    """Seconds of an all-reduce of `size` bytes with `window` packets in flight; None: its links are unlimited.

    From the rate of the hosts' links, headers, delays between hosts in different racks, if the job has several, and how
    late hosts notice. Of loss, of oversubscribed uplinks and of the processor's time it knows nothing.
    """
    link, live = settings.host_link, settings.world == "live"
    if link.rate_bits_per_second is None:
        return None
    properties = link.properties
    delay = (properties.delay or 0.0) if live else properties.virtual_delay
    overhead = (properties.overhead or 0) if live else properties.virtual_overhead
    byte_seconds = 8 / link.rate_bits_per_second
    payload, frame = _packet(settings)
    packet_seconds = (frame + overhead) * byte_seconds
    ahead = 0.0
    if settings.algorithm == "in-network":
        packets = -(-size // payload)
        size = packets * payload
        # Vectors within the window are scaled as the one before let expect, but for the first (workers/scaling.py).
        if packets > window or not (settings.training or settings.repetitions > 1):
            leading = _in_network_frame(min(wire.SIZES)) + overhead
            ahead = min(window, packets) * leading * byte_seconds
    racks = {settings.network.host(member).leaf for member in settings.members}
    links = 2 if len(racks) == 1 else 4
    notice = 0.0 if live else settings.coalescing
    fabric = Fabric(links * (packet_seconds + delay) + notice, payload / packet_seconds)
    return closed_form(
        settings.algorithm,
        len(settings.members),
        size,
        fabric,
        shards=settings.shards,
        window=window * payload,
        ahead=ahead,
    )


def _packet(settings: Settings) -> tuple[int, int]:
    """Bytes of payload in a full packet, and of its frame."""
    if settings.algorithm == "in-network":
        return 4 * settings.values, _in_network_frame(settings.values)
    if settings.transport == "tcp":
        return _TCP_PAYLOAD, _TCP_FRAME
    return PAYLOAD, HEADERS + HEADER_BYTES + PAYLOAD


def _in_network_frame(values: int) -> int:
    return HEADERS + wire.packet_dtype(values).itemsize
