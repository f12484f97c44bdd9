"""An extern that only the tests have: rotate(x, n) turns a 32-bit field left by n bits. It is all in this file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4compiler import ir
from fanin.p4compiler.externs.extern_kind import ExternKind
from fanin.p4switch.bmv2json.expressions import Expression
from fanin.p4switch.bmv2json.primitive_kind import PrimitiveKind

if TYPE_CHECKING:
    from fanin.p4compiler.emit.actions import ActionWriter
    from fanin.p4compiler.emit.expressions import Json
    from fanin.p4switch.bmv2json.program import Primitive
    from fanin.p4switch.codegen.actions import PrimitiveWriter
    from fanin.p4switch.codegen.writer import Writer
    from fanin.p4switch.trace.decode import PacketDecoder


def _emit(writer: ActionWriter, s: ir.CallExtern) -> tuple[str, list[Json]]:
    return "rotate", [writer.target(s, 0), writer.expressions.argument(s.arguments[1])]


def _write_function(out: Writer, name: str) -> None:
    with out.block(f"static uint64_t {name}(uint32_t x, uint32_t n)"):
        out.line("return (uint32_t)(x << (n & 31) | x >> (-n & 31));")


def _write(writer: PrimitiveWriter, out: Writer, target: Expression, by: Expression) -> None:
    x, n = (writer.expressions.value(e).cast("uint32_t") for e in (target, by))
    amount = writer.temporary(out, "uint32_t", n)
    writer.assign_number(out, target, f"{writer.helper}({x}, {amount})")
    writer.trace_words(out, amount)


def _trace(packet: PacketDecoder, call: Primitive, words: tuple[int, ...]) -> None:
    packet.add_access("rotate", "by", 0, 1, packet.value("n", 32, words), call.source)


EXTERN = ExternKind("rotate", _emit)
KIND = PrimitiveKind(
    "rotate", ("target", "value"), _write, helper=_write_function, trace=_trace, traces_itself=True
)
