"""The SwitchML packet as numpy structured arrays: a batch of datagrams is built or parsed at once."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

UDP_PORTS = range(0xBEE0, 0xBEF0)

# msg_type
UPDATE = 0
RESULT = 1
GIVE = 2  # an update whose sender does not need the sum
TAKE = 3  # an update without values, whose sender adds its own to the result
ACKNOWLEDGEMENT = 4  # a result without values, for those who gave

HEADERS = 42  # bytes of Ethernet, IPv4 and UDP before a payload

# The field `size` of a packet, and the bits of its integers, by the number of integers that it carries.
SIZES = {64: 1, 256: 3, 128: 5, 512: 7}
BITS = {64: 32, 256: 32, 128: 16, 512: 16}
OF_16_BITS = 0x04  # the bit of `size`

# The first byte: msg_type:4, saturated:1, size:3.
TYPE_SHIFT = 4
SATURATED = 0x08

# e1: not_quantizable:1, scatter:1, unused:6. The first is set if some worker cannot quantize the announced block: its
# sum is NaN. The second is set in the gives and takes of a scatter, and in their answers.
NOT_QUANTIZABLE = 0x80
OF_SCATTER = 0x40

# call: packets with different values are never summed together. The first chunk has NO_CALL if it carries an agreement
# (agreement.py).
CALLS = 1 << 32
NO_CALL = 0

# pool_index: version:1, slot:15.
VERSION_SHIFT = 15
SLOT_NUMBERS = 1 << VERSION_SHIFT  # slots that a packet can name; a switch has fewer

CHUNKS = 1 << 32
LEASES = 1 << 8


_HEADER_FIELDS = (
    ("kind", "u1"),  # msg_type, saturated and size together: see kind()
    ("lease", "u1"),
    ("tsi", ">u4"),
    ("pool_index", ">u2"),
    ("e0", "i1"),
    ("e1", "u1"),
    ("call", ">u4"),
)
HEADER = np.dtype(list(_HEADER_FIELDS))


@cache
def packet_dtype(values: int) -> np.dtype[np.void]:
    """Return the layout of a datagram of this many integers, or of one without values (0).

    Fields are named as in the packet format, except that job_number is `lease`.

    Raises:
        ValueError: If there is no packet with this number of integers.
    """
    if not values:
        return HEADER
    if values not in SIZES:
        raise ValueError(
            f"a packet carries 64 or 256 integers of 32 bits, or 128 or 512 of 16 bits, not {values}"
        )
    return np.dtype([*_HEADER_FIELDS, ("values", f">i{BITS[values] // 8}", (values,))])


# Number of integers of 32 bits by the size of a datagram in bytes, 14, 270 and 1038. There may be twice as many of 16
# bits.
VALUES = {
    packet_dtype(values).itemsize: values for values in (0, *(n for n, bits in BITS.items() if bits == 32))
}


def full_packet(values: int) -> tuple[int, int]:
    """Return the elements in a full packet, and its UDP payload in bytes."""
    return values, packet_dtype(values).itemsize


def kind(msg_type: int, values: int) -> int:
    """Return the first byte of an unsaturated packet; `| SATURATED` marks one in which an addition saturated."""
    return msg_type << TYPE_SHIFT | SIZES[values]


def integers(packets: NDArray[np.void], bits: int) -> NDArray[Any]:
    """View what packets [m] carry as integers of this many bits [m, integers in a packet], without a copy."""
    found: NDArray[Any] = packets["values"].view(f">i{bits // 8}")
    return found


def pool_index(chunks: NDArray[Any], first_slot: int, window: int) -> NDArray[np.int64]:
    """Return the pool index of each chunk k: slot first_slot + (k mod W), version (k div W) mod 2.

    Args:
        chunks: Chunk numbers [m].
        first_slot: First slot of the lease.
        window: Number of slots W of the lease.

    Returns:
        The pool indices [m].
    """
    rounds, places = np.divmod(chunks, window)
    index: NDArray[np.int64] = (rounds & 1) << VERSION_SHIFT | (first_slot + places)
    return index


def as_packets(datagrams: NDArray[np.uint8]) -> NDArray[np.void]:
    """View [m, 14], [m, 270] or [m, 1038] bytes as m packets of integers of 32 bits, without a copy.

    Raises:
        ValueError: If the datagrams have another size and so are not packets.
    """
    count, size = datagrams.shape
    if size not in VALUES:
        raise ValueError(f"a datagram of {size} bytes is not a packet (sizes: {', '.join(map(str, VALUES))})")
    packets: NDArray[np.void] = datagrams.view(packet_dtype(VALUES[size])).reshape(count)
    return packets


def as_datagrams(packets: NDArray[np.void]) -> NDArray[np.uint8]:
    """View m contiguous packets as [m, size] bytes, without a copy."""
    return packets.view(np.uint8).reshape(len(packets), packets.itemsize)
