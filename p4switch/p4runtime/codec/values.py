"""Values in P4Runtime's canonical bytestrings: big-endian, no longer than the number needs, never empty.

P4Runtime specification, "Bytestrings". Values from a controller may have leading zeros (or sign bytes) as
long as the number fits the P4 type. Values sent to it always have the shortest form.
"""

from __future__ import annotations

import grpc

from fanin.p4switch.p4runtime.errors import P4RuntimeError, invalid
from fanin.p4switch.p4runtime.proto import p4r

_SHOWN = 32  # bytes of a value in a message
_DECIMAL = 8  # bytes of a value that a message also shows in decimal


def encode_value(value: int) -> bytes:
    """Encode an unsigned number as the shortest bytestring; zero is one zero byte."""
    return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")


def decode_value(data: bytes, width: int, what: str) -> int:
    """Decode an unsigned number.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT if it is empty or does not fit in `width` bits.
    """
    value = int.from_bytes(data, "big")
    if not data or value >> width:
        raise _misfit(data, f"bit<{width}>", what, 0, (1 << width) - 1)
    return value


def encode_signed(value: int) -> bytes:
    """Encode a signed number as the shortest bytestring in two's complement."""
    magnitude = value if value >= 0 else ~value
    return value.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def decode_signed(data: bytes, width: int, what: str) -> int:
    """Decode a number in two's complement.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT if it is empty or does not fit in `width` bits.
    """
    value, half = int.from_bytes(data, "big", signed=True), 1 << width - 1
    if not data or not -half <= value < half:
        raise _misfit(data, f"int<{width}>", what, -half, half - 1)
    return value


def decode_indices(
    message: p4r.CounterEntry | p4r.RegisterEntry | p4r.MeterEntry, size: int, name: str
) -> range:
    """Return the cells that a message selects: one, or all `size` if no index is given.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT for a negative index, OUT_OF_RANGE for one that is too large.
    """
    if not message.HasField("index"):
        return range(size)
    index = message.index.index
    if index < 0:
        raise invalid(f"{name}: the index {index} is negative")
    if index >= size:
        raise P4RuntimeError(grpc.StatusCode.OUT_OF_RANGE, f"{name} has {size} cells, no index {index}")
    return range(index, index + 1)


def _misfit(data: bytes, p4_type: str, what: str, lowest: int, highest: int) -> Exception:
    if not data:
        return invalid(f"{what}: an empty bytestring; zero is written as one zero byte")
    if len(data) > _DECIMAL or highest.bit_length() > 8 * _DECIMAL:
        return invalid(f"{what}: {shown(data)} does not fit {p4_type}")
    number = int.from_bytes(data, "big", signed=lowest < 0)
    return invalid(
        f"{what}: {number} ({shown(data)}) does not fit {p4_type}, which holds {lowest}..{highest}"
    )


def shown(data: bytes) -> str:
    """Format bytes for a message: in hexadecimal, and only the first if there are many."""
    more = f"… ({len(data):,} bytes)" if len(data) > _SHOWN else ""
    return f"0x{data[:_SHOWN].hex()}{more}"
