"""The flow of control inside an action: exit and jumps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4switch.bmv2json.expressions import Constant, Expression
from fanin.p4switch.bmv2json.primitive_kind import PrimitiveKind
from fanin.p4switch.bmv2json.program import ExpressionList, Named

if TYPE_CHECKING:
    from fanin.p4switch.bmv2json.program import Primitive
    from fanin.p4switch.codegen.actions import PrimitiveWriter
    from fanin.p4switch.codegen.writer import Writer
    from fanin.p4switch.trace.decode import PacketDecoder


def _write_no_op(_writer: PrimitiveWriter, _out: Writer) -> None:
    """Write nothing."""


def _write_exit(_writer: PrimitiveWriter, out: Writer) -> None:
    """Write exit, which leaves the pipeline at the end of the action."""
    out.line("p->exit = true;")


def _write_jump(writer: PrimitiveWriter, out: Writer, offset: Constant) -> None:
    """Write a jump to the primitive of that index."""
    writer.check_jump(out, offset.value)
    out.line(f"goto L{offset.value};")


def _write_jump_if_zero(
    writer: PrimitiveWriter, out: Writer, condition: Expression, offset: Constant
) -> None:
    """Write a jump that is taken if the condition is 0 or false."""
    writer.trace_words(out, f"!!{writer.expressions.condition(condition)}")
    with out.block(f"if (!({writer.expressions.condition(condition)}))"):
        writer.check_jump(out, offset.value)
        out.line(f"goto L{offset.value};")


def _trace_jump_if_zero(packet: PacketDecoder, call: Primitive, words: tuple[int, ...]) -> None:
    condition, _ = call.arguments
    assert not isinstance(condition, Named | ExpressionList)
    packet.add_jump(condition, bool(words[0]), call.source)


KINDS = (
    PrimitiveKind("no_op", (), _write_no_op, repeatable=True),
    PrimitiveKind("exit", (), _write_exit, may_end=True, repeatable=True),
    PrimitiveKind("_jump", ("constant",), _write_jump, traces_itself=True, jumps=True, repeatable=True),
    PrimitiveKind(
        "_jump_if_zero",
        ("value", "constant"),
        _write_jump_if_zero,
        trace=_trace_jump_if_zero,
        traces_itself=True,
        jumps=True,
        repeatable=True,
    ),
)
