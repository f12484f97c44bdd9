"""Header stacks: push_front, pop_front and assignment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4switch.bmv2json.expressions import Expression, StackName
from fanin.p4switch.bmv2json.primitive_kind import PrimitiveKind

if TYPE_CHECKING:
    from fanin.p4switch.codegen.actions import PrimitiveWriter
    from fanin.p4switch.codegen.writer import Writer


def _kind_of_shift(name: str, function: str) -> PrimitiveKind:
    def write(writer: PrimitiveWriter, out: Writer, stack: StackName, by: Expression) -> None:
        whole = writer.layout.program.stacks[stack.name]
        first = writer.layout.header_index(whole.headers[0])
        amount = writer.expressions.value(by).cast("uint32_t")
        used = f"&p->{writer.layout.stack_next(stack.name)}"
        out.line(f"{function}(p, {first}, {whole.depth}, {whole.unit}, {used}, {amount});")

    return PrimitiveKind(name, ("stack", "value"), write, makes_valid=True)


def _write_assign(writer: PrimitiveWriter, out: Writer, target: StackName, source: StackName) -> None:
    """Write a header stack assignment, element by element."""
    layout, stacks = writer.layout, writer.layout.program.stacks
    if stacks[target.name].unit != stacks[source.name].unit:
        raise writer.unsupported(f"stacks {target.name} and {source.name} differ in their elements")
    writer.copy_headers(out, stacks[target.name].headers, stacks[source.name].headers)
    out.line(f"p->{layout.stack_next(target.name)} = p->{layout.stack_next(source.name)};")


KINDS = (
    _kind_of_shift("push", "stack_push"),
    _kind_of_shift("pop", "stack_pop"),
    PrimitiveKind("assign_header_stack", ("stack", "stack"), _write_assign, makes_valid=True),
    PrimitiveKind("assign_union_stack", ("stack", "stack"), _write_assign, makes_valid=True),
)
