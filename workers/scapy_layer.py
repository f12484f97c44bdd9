"""The packet as a scapy layer: `from fanin.workers.scapy_layer import SwitchML`, then `packet[SwitchML].show()`."""

from __future__ import annotations

from typing import Any

from scapy.fields import (
    BitEnumField,
    BitField,
    ByteField,
    FieldListField,
    IntField,
    MultipleTypeField,
    SignedByteField,
    SignedIntField,
    SignedShortField,
    XIntField,
)
from scapy.layers.inet import UDP
from scapy.packet import Packet, bind_layers

from fanin.workers import wire

_VALUES = {size: values for values, size in wire.SIZES.items()}
_TYPES = {
    wire.UPDATE: "update",
    wire.RESULT: "result",
    wire.GIVE: "give",
    wire.TAKE: "take",
    wire.ACKNOWLEDGEMENT: "acknowledgement",
}
_WITHOUT_VALUES = wire.TAKE, wire.ACKNOWLEDGEMENT


def _values(value: Any) -> FieldListField:
    return FieldListField(
        "values",
        [],
        value,
        count_from=lambda packet: 0 if packet.msg_type in _WITHOUT_VALUES else _VALUES.get(packet.size, 0),
        max_count=max(wire.SIZES),  # scapy's own limit is 100
    )


def _of_16_bits(packet: Packet, values: Any = None) -> bool:
    """Return whether a packet has integers of 16 bits, after its size, or its values if it is being built."""
    known = packet.fields.get("values") if values is None else values
    count = len(known or ()) if packet.size is None else _VALUES.get(packet.size)
    return wire.BITS.get(count or 0) == 16


class SwitchML(Packet):
    """A SwitchML datagram. `size` is derived from the number of values; 128 and 512 are of 16 bits.

    A frame captured where segmentation offload is on holds many datagrams, one after another; each becomes a layer.
    """

    name = "SwitchML"
    fields_desc = [  # noqa: RUF012  # scapy requires a list
        BitEnumField("msg_type", wire.UPDATE, 4, _TYPES),
        BitField("saturated", 0, 1),
        BitEnumField("size", None, 3, {size: f"{values} values" for size, values in _VALUES.items()}),
        ByteField("job_number", 1),
        IntField("tsi", 0),
        BitField("version", 0, 1),
        BitField("slot", 0, 15),
        SignedByteField("e0", 0),
        BitField("not_quantizable", 0, 1),
        BitField("scatter", 0, 1),
        BitField("unused", 0, 6),
        XIntField("call", 0),
        MultipleTypeField(
            [(_values(SignedShortField("value", 0)), (_of_16_bits, _of_16_bits))],
            _values(SignedIntField("value", 0)),
        ),
    ]

    def post_build(self, packet: bytes, payload: bytes) -> bytes:
        """Fill in `size` if it was not given."""
        if self.size is None:
            packet = bytes([packet[0] & 0xF8 | wire.SIZES.get(len(self.values), 0)]) + packet[1:]
        return packet + payload

    def guess_payload_class(self, payload: bytes) -> Any:
        """Return this class if another datagram of a superframe follows."""
        return SwitchML if len(payload) >= min(wire.VALUES) else super().guess_payload_class(payload)


for _port in wire.UDP_PORTS:
    bind_layers(UDP, SwitchML, dport=_port)
    bind_layers(UDP, SwitchML, sport=_port)
