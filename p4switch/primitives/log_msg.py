"""Messages: log_msg()."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4switch.bmv2json.primitive_kind import PrimitiveKind
from fanin.p4switch.bmv2json.program import ExpressionList, Named

if TYPE_CHECKING:
    from fanin.p4switch.codegen.actions import PrimitiveWriter
    from fanin.p4switch.codegen.writer import Writer


def _write(writer: PrimitiveWriter, out: Writer, text: Named, values: ExpressionList) -> None:
    """Write log_msg(). Each `{}` of the text shows a value in decimal."""
    pieces = text.name.split("{}")
    codes = [writer.expressions.masked(v, (1 << 64) - 1).code for v in values.items]
    if len(pieces) != len(codes) + 1:
        raise writer.unsupported(f"log_msg: {len(codes)} values for {text.name!r}")
    form = writer.quoted("%llu".join(piece.replace("%", "%%") for piece in pieces) + "\n")
    arguments = "".join(f", (unsigned long long){code}" for code in codes)
    out.line("if (s->base.logs)")
    out.line(f"    fprintf(stderr, {form}{arguments});")


KINDS = (PrimitiveKind("log_msg", ("string", "values"), _write),)
