"""PacketIn and PacketOut: the controller headers' fields as P4Runtime metadata.

P4Runtime specification, "ControllerPacketMetadata" and "Packet I/O". The data plane sees a packet to or from
the controller with its `@controller_header` in front, most significant bit first, padded to whole bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from p4switch.p4runtime_errors import invalid, unimplemented
from p4switch.p4runtime_proto import p4i, p4r
from p4switch.p4runtime_values import decode_value, encode_value


@dataclass(frozen=True, slots=True)
class _Field:
    id: int
    name: str
    width: int
    shift: int  # bits of the header behind the field


class ControllerHeader:
    """The header that P4Info describes as "packet_in" or "packet_out"; none is a header of no bits."""

    def __init__(self, p4info: p4i.P4Info, name: str) -> None:
        headers = [header for header in p4info.controller_packet_metadata if header.preamble.name == name]
        metadata = [field for header in headers[:1] for field in header.metadata]
        self.name = name
        self.size = (sum(field.bitwidth for field in metadata) + 7) // 8
        self._fields: list[_Field] = []
        rest = 8 * self.size
        for field in metadata:
            if field.bitwidth == 0:
                raise unimplemented(f"{name}.{field.name}: values translated to strings are not supported")
            rest -= field.bitwidth
            self._fields.append(_Field(field.id, field.name, field.bitwidth, rest))

    def unpack(self, packet: bytes) -> p4r.PacketIn:
        """A packet from the data plane as PacketIn; INVALID_ARGUMENT if it is shorter than the header."""
        if len(packet) < self.size:
            raise invalid(f"a packet of {len(packet)} bytes for the controller lacks its {self.name} header")
        header = int.from_bytes(packet[: self.size], "big")
        message = p4r.PacketIn(payload=packet[self.size :])
        for field in self._fields:
            value = header >> field.shift & (1 << field.width) - 1
            message.metadata.add(metadata_id=field.id, value=encode_value(value))
        return message

    def pack(self, message: p4r.PacketOut) -> bytes:
        """A PacketOut as the data plane sees it; INVALID_ARGUMENT unless each field is given and fits."""
        given = {metadata.metadata_id: metadata.value for metadata in message.metadata}
        if len(given) < len(message.metadata):
            raise invalid(f"{self.name}: a metadata field is given more than once")
        header = 0
        for field in self._fields:
            value = given.pop(field.id, None)
            if value is None:
                raise invalid(f"{self.name}: the metadata field {field.name} (id {field.id}) is missing")
            header |= decode_value(value, field.width, f"{self.name}.{field.name}") << field.shift
        if given:
            raise invalid(f"{self.name} has no metadata field {next(iter(given))}")
        return header.to_bytes(self.size, "big") + message.payload
