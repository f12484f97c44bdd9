"""Frames as the generator sends them: a virtio header (OASIS virtio 1.2, section 5.1.6), Ethernet, IPv4, UDP."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

HEADERS = 42  # Ethernet, IPv4, UDP
_VIRTIO = struct.Struct("=BBHHHH")
VIRTIO = _VIRTIO.size
_UDP_L4, _NEEDS_CHECKSUM = 5, 1

Octets = NDArray[np.uint8]


def headers(fields: Mapping[str, NDArray[np.int64]], payload: int) -> Octets:
    """Build Ethernet, IPv4 and UDP headers. The UDP checksum is 0 (RFC 768).

    Args:
        fields: to_mac, from_mac, source, destination, protocol, source_port and destination_port, each [n].
        payload: Number of bytes after the headers.

    Returns:
        The headers, [n, 42].
    """
    made = np.zeros((len(fields["source"]), HEADERS), np.uint8)

    def put(at: int, size: int, value: NDArray[np.int64] | int) -> None:
        for i in range(size):
            made[:, at + i] = value >> 8 * (size - 1 - i) & 0xFF

    put(0, 6, fields["to_mac"])
    put(6, 6, fields["from_mac"])
    put(12, 2, 0x0800)
    put(14, 2, 0x4500)
    put(16, 2, 28 + payload)
    put(20, 2, 0x4000)
    put(22, 1, 64)
    put(23, 1, fields["protocol"])
    put(26, 4, fields["source"])
    put(30, 4, fields["destination"])
    put(24, 2, 0xFFFF - _folded(_words(made[:, 14:34])))
    put(34, 2, fields["source_port"])
    put(36, 2, fields["destination_port"])
    put(38, 2, 8 + payload)
    return made


def plain(count: int) -> Octets:
    """Return virtio headers [count, 10] of ordinary frames."""
    return np.zeros((count, VIRTIO), np.uint8)


def superframes(frames: Octets, size: int) -> Octets:
    """Return virtio headers of UDP superframes with `size` payload bytes per segment; completes `frames` [n, 42]."""
    pseudo = _words(frames[:, 26:34]) + frames[:, 23] + _words(frames[:, 38:40])
    frames[:, 40:42] = _folded(pseudo).astype(">u2")[:, np.newaxis].view(np.uint8)
    described = _VIRTIO.pack(_NEEDS_CHECKSUM, _UDP_L4, HEADERS, size, 34, 6)
    return np.broadcast_to(np.frombuffer(described, np.uint8), (len(frames), VIRTIO))


def _words(octets: Octets) -> NDArray[np.int64]:
    sums: NDArray[np.int64] = np.ascontiguousarray(octets).view(">u2").sum(axis=1, dtype=np.int64)
    return sums


def _folded(sums: NDArray[np.int64]) -> NDArray[np.int64]:
    sums = (sums & 0xFFFF) + (sums >> 16)
    return (sums & 0xFFFF) + (sums >> 16)
