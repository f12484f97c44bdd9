"""Registers: register_read and register_write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4switch.bmv2json.expressions import Expression, Field
from fanin.p4switch.bmv2json.primitive_kind import PrimitiveKind
from fanin.p4switch.bmv2json.program import Named

if TYPE_CHECKING:
    from fanin.p4switch.bmv2json.program import Primitive
    from fanin.p4switch.codegen.actions import PrimitiveWriter
    from fanin.p4switch.codegen.writer import Writer
    from fanin.p4switch.trace.decode import PacketDecoder


def _write_read(
    writer: PrimitiveWriter, out: Writer, target: Expression, register: Named, index: Expression
) -> None:
    """Write a register read. If the index is out of range, the target keeps its value."""
    array = writer.state.register(register.name, writer.where)
    at = writer.index(out, index)
    with out.block(f"if ({at} < {array.size})"):
        if not isinstance(target, Field):
            raise writer.unsupported("register_read into something that is not a field")
        writer.store_cell(out, target, writer.state.cell(register.name, at), array.width)
    writer.trace_cell(out, at, array)


def _write_write(
    writer: PrimitiveWriter, out: Writer, register: Named, index: Expression, source: Expression
) -> None:
    """Write a register write. If the index is out of range, nothing is written."""
    array = writer.state.register(register.name, writer.where)
    at = writer.index(out, index)
    cut = writer.expressions.masked(source, (1 << array.width) - 1).code
    out.line(f"if ({at} < {array.size})")
    out.line(f"    {writer.state.cell(register.name, at)} = {cut};")
    writer.trace_cell(out, at, array)


def _trace_read(packet: PacketDecoder, call: Primitive, words: tuple[int, ...]) -> None:
    _, register, _ = call.arguments
    _trace(packet, "read", register, call, words)


def _trace_write(packet: PacketDecoder, call: Primitive, words: tuple[int, ...]) -> None:
    register, _, _ = call.arguments
    _trace(packet, "write", register, call, words)


def _trace(
    packet: PacketDecoder, operation: str, register: object, call: Primitive, words: tuple[int, ...]
) -> None:
    assert isinstance(register, Named)
    array = packet.program.registers[register.name]
    value = packet.value(array.name, array.width, words[1:]) if words[0] < array.size else None
    packet.add_access(operation, array.name, words[0], array.size, value, call.source)


KINDS = (
    PrimitiveKind(
        "register_read",
        ("target", "register_array", "value"),
        _write_read,
        trace=_trace_read,
        traces_itself=True,
        overwrites=True,
        sets_local=True,
    ),
    PrimitiveKind(
        "register_write",
        ("register_array", "value", "value"),
        _write_write,
        trace=_trace_write,
        traces_itself=True,
    ),
)
