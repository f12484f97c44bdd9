"""PacketIn and PacketOut: the fields of controller headers as P4Runtime metadata.

P4Runtime specification, "ControllerPacketMetadata" and "Packet I/O". In the data plane a packet to or from the
controller begins with its `@controller_header`, most significant bit first, padded to whole bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fanin.p4switch.bmv2json.program import HeaderType
from fanin.p4switch.p4runtime.codec.translation import Codec, Translations
from fanin.p4switch.p4runtime.errors import invalid, listed
from fanin.p4switch.p4runtime.proto import p4i, p4r


@dataclass(frozen=True, slots=True)
class _MetadataField:
    id: int
    name: str
    width: int
    given: int  # the width of the control plane's type
    shift: int  # bits of the header after the field
    codec: Codec


class ControllerHeader:
    """Header that P4Info describes as "packet_in" or "packet_out". Without a description it has no bits.

    `types` are the program's: P4Info omits fields that are `@hidden`, and has another width for translated ones.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT if none of them fits P4Info, and P4Info's fields have no widths.
    """

    def __init__(
        self, p4info: p4i.P4Info, name: str, types: Iterable[HeaderType], translations: Translations
    ) -> None:
        headers = [header for header in p4info.controller_packet_metadata if header.preamble.name == name]
        metadata = [field for header in headers[:1] for field in header.metadata]
        self.name = name
        names = [field.name for field in metadata]
        layout = next((found for header in types if (found := _layout(header, metadata))), None)
        if layout is None:
            layout = [(field.name, field.bitwidth) for field in metadata]
            translated = [field.name for field in metadata if not field.bitwidth]
            if translated:
                raise invalid(f"the device config has no header with the fields {', '.join(names)} of {name}")
        self.size = (sum(width for _, width in layout) + 7) // 8
        self._fields: list[_MetadataField] = []
        rest = 8 * self.size
        described = {field.name: field for field in metadata}
        for field_name, width in layout:
            rest -= width
            if field_name in described:
                field = described[field_name]
                codec = translations.of(field, width)
                given = min(width, field.bitwidth or width)
                self._fields.append(_MetadataField(field.id, field_name, width, given, rest, codec))

    def unpack(self, packet: bytes) -> p4r.PacketIn:
        """Decode a packet from the data plane.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT if it is shorter than the header.
        """
        if len(packet) < self.size:
            raise invalid(f"a packet of {len(packet)} bytes for the controller lacks its {self.name} header")
        header = int.from_bytes(packet[: self.size], "big")
        message = p4r.PacketIn(payload=packet[self.size :])
        for field in self._fields:
            value = header >> field.shift & (1 << field.width) - 1
            message.metadata.add(metadata_id=field.id, value=field.codec.encode(value))
        return message

    def pack(self, message: p4r.PacketOut) -> bytes:
        """Encode a packet for the data plane.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT unless each field is given and fits.
        """
        given = {metadata.metadata_id: metadata.value for metadata in message.metadata}
        if len(given) < len(message.metadata):
            ids = [metadata.metadata_id for metadata in message.metadata]
            twice = next(number for number in ids if ids.count(number) > 1)
            raise invalid(f"{self.name}: the metadata field with the id {twice} is given more than once")
        header = 0
        for field in self._fields:
            value = given.pop(field.id, None)
            if value is None:
                raise invalid(f"{self.name}: the metadata field {field.name} (id {field.id}) is missing")
            header |= field.codec.decode(value, field.given, f"{self.name}.{field.name}") << field.shift
        if given:
            names = listed({field.id: field.name for field in self._fields})
            raise invalid(f"{self.name} has no metadata field {next(iter(given))}, only {names}")
        return header.to_bytes(self.size, "big") + message.payload


def _layout(
    header: HeaderType, metadata: Sequence[p4i.ControllerPacketMetadata.Metadata]
) -> list[tuple[str, int]] | None:
    """Return the names and widths of a header's fields if it has those that P4Info describes, in order; else None."""
    fields = {field.name: field.width for field in header.fields}
    names = [field.name for field in metadata]
    if [name for name in fields if name in names] != names or not names:
        return None
    same = all(field.type_name.name or fields[field.name] == field.bitwidth for field in metadata)
    return list(fields.items()) if same else None
