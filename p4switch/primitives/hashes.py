"""Hashes: the primitive of hash()."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4switch.bmv2json.expressions import Constant, Expression
from fanin.p4switch.bmv2json.primitive_kind import PrimitiveKind
from fanin.p4switch.bmv2json.program import Named

if TYPE_CHECKING:
    from fanin.p4switch.codegen.actions import PrimitiveWriter
    from fanin.p4switch.codegen.writer import Writer


def _write(
    writer: PrimitiveWriter,
    out: Writer,
    target: Expression,
    base: Expression,
    calculation: Named,
    size: Expression,
) -> None:
    """Write hash(): base + calculation % size, where size 0 means 1."""
    result = writer.temporary(out, "uint64_t", writer.calculations.call(calculation.name, writer.where))
    offset = writer.expressions.value(base).cast("uint64_t")
    if isinstance(size, Constant) and size.value == 0:
        out.line(f"(void){result};")
        writer.assign_number(out, target, offset)
        return
    modulus = writer.temporary(out, "uint64_t", writer.expressions.value(size).cast("uint64_t"))
    writer.assign_number(out, target, f"({modulus} ? {result} % {modulus} : 0) + {offset}")


KINDS = (
    PrimitiveKind(
        "modify_field_with_hash_based_offset",
        ("target", "value", "calculation", "value"),
        _write,
        overwrites=True,
    ),
)
