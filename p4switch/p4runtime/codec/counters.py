"""Counters' values: P4Runtime's `CounterData` messages and the engine's."""

from __future__ import annotations

from fanin.p4switch.entries import CounterValue
from fanin.p4switch.p4runtime.errors import invalid
from fanin.p4switch.p4runtime.proto import p4r


def decode_counter(data: p4r.CounterData) -> CounterValue:
    """Decode a counter's value.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT if it is negative.
    """
    if data.packet_count < 0 or data.byte_count < 0:
        raise invalid(f"a counter cannot be at {data.packet_count} packets and {data.byte_count} bytes")
    return CounterValue(packets=data.packet_count, bytes=data.byte_count)


def encode_counter(value: CounterValue) -> p4r.CounterData:
    """Encode a counter's value."""
    return p4r.CounterData(packet_count=value.packets, byte_count=value.bytes)
