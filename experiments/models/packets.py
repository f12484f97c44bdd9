"""The packets of a point: bytes of payload and of the frame of a full one."""

from __future__ import annotations

from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.workers import wire
from fanin.workers.host_based.transport import HEADER_BYTES
from fanin.workers.wire import HEADERS

# Payload and frame of a full segment of TCP with timestamps, on Ethernet.
_TCP_PAYLOAD, _TCP_FRAME = 1448, 1514


def full_payload(settings: Settings) -> int:
    """Return the bytes of a vector in a full packet, as float32."""
    if settings.algorithm == "in-network":
        return ELEMENT_BYTES * settings.implementation.packet(settings.values).elements
    return _TCP_PAYLOAD if _in_kernel(settings) else settings.payload


def full_frame(settings: Settings) -> int:
    """Return the bytes of a full packet from the Ethernet header on."""
    if settings.algorithm == "in-network":
        return HEADERS + settings.implementation.packet(settings.values).payload
    return _TCP_FRAME if _in_kernel(settings) else HEADERS + HEADER_BYTES + settings.payload


def largest_frame(settings: Settings) -> int:
    """Return the bytes of the largest packet on any link from the Ethernet header on."""
    if settings.algorithm == "in-network":
        return HEADERS + settings.implementation.packet(settings.values).largest
    return full_frame(settings)


def in_network_frame(values: int) -> int:
    """Return the bytes of a packet with this many values from the Ethernet header on."""
    return HEADERS + wire.packet_dtype(values).itemsize


def _in_kernel(settings: Settings) -> bool:
    """Return whether packets between hosts are those of this machine's TCP."""
    return settings.transport == "tcp" and settings.world == "live"
