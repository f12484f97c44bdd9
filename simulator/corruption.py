"""Bit errors on a link, for many frames at once."""

import numpy as np
from numpy.typing import NDArray

_ETHERTYPE, _IP, _FRAGMENT, _PROTOCOL, _ADDRESSES, _UDP, _UDP_LENGTH, _CHECKSUM, _PAYLOAD = (
    12,
    14,
    20,
    23,
    26,
    34,
    38,
    40,
    42,
)
_PROTOCOL_UDP = 17


def flip_bits(
    frames: NDArray[np.uint8], lengths: NDArray[np.int64], draws: NDArray[np.float64]
) -> NDArray[np.uint8]:
    """Return a copy of `frames` with one bit flipped in each.

    A UDP checksum of 0 stands for one that the sender's network card would have written. It is filled in first, so that
    the receiver can detect the corruption.

    Args:
        frames: uint8 [m, room].
        lengths: Bytes of each frame, [m]. Only these are corrupted.
        draws: Position of the flipped bit as a fraction of the frame, 0 to 1, [m].

    Returns:
        The corrupted frames, uint8 [m, room].
    """
    frames = frames.copy()
    complete_checksums(frames, lengths)
    bits = (draws * (8 * lengths)).astype(np.int64)
    frames[np.arange(len(frames)), bits >> 3] ^= (0x80 >> (bits & 7)).astype(np.uint8)
    return frames


def complete_checksums(frames: NDArray[np.uint8], lengths: NDArray[np.int64]) -> None:
    """Write the UDP checksum (RFC 768) of frames that have none: IPv4 without options, no fragments."""
    begin = np.frombuffer(b"\x08\x00\x45", np.uint8)
    udp = (frames[:, _ETHERTYPE : _IP + 1] == begin).all(axis=1) & (frames[:, _PROTOCOL] == _PROTOCOL_UDP)
    whole = ((frames[:, _FRAGMENT] & 0x3F) | frames[:, _FRAGMENT + 1]) == 0
    without = ~frames[:, _CHECKSUM:_PAYLOAD].any(axis=1) & (lengths >= _PAYLOAD)
    which = np.flatnonzero(udp & whole & without)
    if not len(which):
        return
    datagrams = frames[which, _UDP:]
    datagrams[np.arange(_UDP, frames.shape[1]) >= lengths[which, np.newaxis]] = 0
    total = _word_sums(datagrams) + _word_sums(frames[which, _ADDRESSES:_UDP]) + _PROTOCOL_UDP
    total += _word_sums(frames[which, _UDP_LENGTH:_CHECKSUM])
    checksums = 0xFFFF - total % 0xFFFF  # never 0, which would mean that there is none
    frames[which, _CHECKSUM], frames[which, _CHECKSUM + 1] = checksums >> 8, checksums & 0xFF


def _word_sums(rows: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the sum of the 16-bit words in each row. An odd last byte is the first byte of a word (RFC 768)."""
    even = np.pad(rows, ((0, 0), (0, rows.shape[1] % 2)))
    return np.asarray(even.view(">u2").sum(axis=1, dtype=np.int64))
