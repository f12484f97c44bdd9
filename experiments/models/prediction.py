"""What the closed form of a point's algorithm says of its time."""

from __future__ import annotations

from experiments.models.closed_forms import Fabric, closed_form
from experiments.scenario.settings import Settings
from experiments.virtual.stations import HEADERS
from topologies.virtual.links import link_model
from workers import wire
from workers.host_based.transport import HEADER_BYTES, PAYLOAD

# Payload and frame of a full segment of TCP with timestamps, on Ethernet.
_TCP_PAYLOAD, _TCP_FRAME = 1448, 1514


def predicted_seconds(settings: Settings, size: int, window: int) -> float | None:
    """Seconds of an all-reduce of `size` bytes with `window` packets in flight; None: its links are unlimited.

    From the rate of the hosts' links, headers, delays between hosts in different racks, if the job has several, and how
    late hosts notice. Of loss, of oversubscribed uplinks and of the processor's time it knows nothing.
    """
    first = settings.members[0]
    (link,) = settings.network.links_of(first)
    if link.rate_bits_per_second is None:
        return None
    live = settings.world == "live"
    # A live link has nothing by itself, a virtual one the properties of an Ethernet.
    properties = link.properties if live else link_model(link)
    payload, frame = _packet(settings)
    packet_seconds = 8 * (frame + properties.overhead) / link.rate_bits_per_second
    racks = {settings.network.host(member).leaf for member in settings.members}
    links = 2 if len(racks) == 1 else 4
    notice = 0.0 if live else settings.coalescing
    fabric = Fabric(links * (packet_seconds + properties.delay) + notice, payload / packet_seconds)
    return closed_form(
        settings.algorithm,
        len(settings.members),
        size,
        fabric,
        shards=settings.shards,
        window=window * payload,
    )


def _packet(settings: Settings) -> tuple[int, int]:
    """Bytes of payload in a full packet, and of its frame."""
    if settings.algorithm == "in-network":
        return 4 * settings.values, HEADERS + wire.packet_dtype(settings.values).itemsize
    if settings.transport == "tcp":
        return _TCP_PAYLOAD, _TCP_FRAME
    return PAYLOAD, HEADERS + HEADER_BYTES + PAYLOAD
