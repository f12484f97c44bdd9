"""Conditions on the packets to trace: `ipv4.source=10.1.0.0/16`, `udp.destination_port=48864`, `port=2`."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from ctypes import c_uint32, c_uint64

from fanin.p4switch.bmv2json.notation import parse_number
from fanin.p4switch.bmv2json.program import Program
from fanin.p4switch.codegen.layout import WIDEST, packet_headers
from fanin.p4switch.trace.events import Extract, PacketTrace

TRACE_CONDITIONS = 8
TRACE_PORT = 0xFFFFFFFF  # instead of a header's number
_PORT_NAMES = ("port", "standard_metadata.ingress_port")
_WORD = (1 << 64) - 1


class ConditionError(ValueError):
    """Invalid condition. The message explains what is valid."""


class TraceCondition(ctypes.Structure):
    """Condition on packets: the field, or the port of arrival, has this value under the mask; see runtime/switch.h."""

    _fields_ = (
        ("header", c_uint32),
        ("offset", c_uint32),
        ("width", c_uint32),
        ("unused", c_uint32),
        ("high", c_uint64),
        ("low", c_uint64),
        ("mask_high", c_uint64),
        ("mask_low", c_uint64),
    )


def parse_conditions(program: Program, text: str) -> list[TraceCondition]:
    """Parse conditions separated by commas, all of which a packet must meet. Fields must be extracted by the parser.

    Values are numbers or IPv4, IPv6 and MAC addresses, with an optional prefix length.

    Raises:
        ConditionError: If one is not valid.
    """
    found = list(_conditions(program, text))
    if len(found) > TRACE_CONDITIONS:
        raise ConditionError(f"at most {TRACE_CONDITIONS} conditions, not {len(found)}")
    return found


def meets(program: Program, conditions: Iterable[TraceCondition], trace: PacketTrace) -> bool:
    """Return whether a traced packet meets all conditions, as the switch itself decides where it traces only those."""
    return all(_meets(program, condition, trace) for condition in conditions)


def _meets(program: Program, condition: TraceCondition, trace: PacketTrace) -> bool:
    if condition.header == TRACE_PORT:
        return bool(trace.port == condition.low)
    header = packet_headers(program)[condition.header]
    names = {field.name for field in header.type.fields if field.offset == condition.offset}
    values = (
        value.number
        for event in trace.events
        if isinstance(event, Extract) and event.header == header.name
        for value in event.fields
        if value.name in names and value.width == condition.width
    )
    mask, wanted = (
        part[0] << 64 | part[1]
        for part in ((condition.mask_high, condition.mask_low), (condition.high, condition.low))
    )
    value = next(values, None)
    return value is not None and value & mask == wanted


def _conditions(program: Program, text: str) -> Iterator[TraceCondition]:
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, wanted = (piece.strip() for piece in part.partition("="))
        if not equals or not wanted:
            raise ConditionError(f"{part}: write FIELD=VALUE, for example ipv4.source=10.1.0.1 or port=1")
        if name in _PORT_NAMES:
            value, _ = _value(part, wanted, 32)
            yield TraceCondition(header=TRACE_PORT, low=value)
            continue
        number, offset, width = _field(program, name)
        value, mask = _value(part, wanted, width)
        yield TraceCondition(number, offset, width, 0, *_words(value & mask), *_words(mask))


def _words(number: int) -> tuple[int, int]:
    return number >> 64, number & _WORD


def _field(program: Program, name: str) -> tuple[int, int, int]:
    """Return the number of the header, and the offset and width of the field."""
    header, _, member = name.removeprefix("hdr.").rpartition(".")
    headers = packet_headers(program)
    for number, instance in enumerate(headers):
        kind = instance.type.field(member) if instance.name == header else None
        if kind is not None and not kind.varying and not kind.behind_varbit and kind.width <= WIDEST:
            return number, kind.offset, kind.width
    members = [
        field.name for instance in headers if instance.name == header for field in instance.type.fields
    ]
    if members:
        raise ConditionError(f"{name}: {header} has {', '.join(members)}")
    names = ", ".join(instance.name for instance in headers)
    raise ConditionError(
        f"{name} is not a field of a header; a condition names port, or HEADER.FIELD of {names}"
    )


def _value(part: str, text: str, width: int) -> tuple[int, int]:
    """Return the value and its mask."""
    number, slash, prefix = text.partition("/")
    try:
        value, length = parse_number(number), int(prefix) if slash else width
    except ValueError:
        raise ConditionError(f"{part}: {text} is not a number or an address") from None
    if not 0 <= value < 1 << width or not 0 <= length <= width:
        raise ConditionError(f"{part}: the field has {width} bits")
    return value, (1 << width) - (1 << (width - length))
