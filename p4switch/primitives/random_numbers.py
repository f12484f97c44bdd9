"""Random numbers: the primitive of random()."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4switch.bmv2json.expressions import Expression
from fanin.p4switch.bmv2json.primitive_kind import PrimitiveKind

if TYPE_CHECKING:
    from fanin.p4switch.codegen.actions import PrimitiveWriter
    from fanin.p4switch.codegen.writer import Writer


def _write(
    writer: PrimitiveWriter, out: Writer, target: Expression, low: Expression, high: Expression
) -> None:
    """Write random(), uniform in low..high. If low > high, nothing is written."""
    least = writer.temporary(out, "uint64_t", writer.expressions.value(low).cast("uint64_t"))
    most = writer.temporary(out, "uint64_t", writer.expressions.value(high).cast("uint64_t"))
    with out.block(f"if ({least} <= {most})"):
        writer.assign_number(out, target, f"random_between(&s->base, {least}, {most})")


KINDS = (PrimitiveKind("modify_field_rng_uniform", ("target", "value", "value"), _write, overwrites=True),)
