"""Messages: log_msg()."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.native.text import counted
from fanin.p4compiler import ir, types
from fanin.p4compiler.externs.extern_kind import ExternKind
from fanin.p4compiler.rewrite import field_of
from fanin.p4compiler.source import error

if TYPE_CHECKING:
    from fanin.p4compiler.emit.actions import ActionWriter
    from fanin.p4compiler.emit.expressions import Json


def _emit(writer: ActionWriter, s: ir.CallExtern) -> tuple[str, list[Json]]:
    """Return the text, with each `{}` expanded for its value, and the values."""
    text, *data = s.arguments
    assert isinstance(text, ir.Text)
    first, *pieces = text.value.split("{}")
    values = _elements(data[0]) if data else []
    if len(pieces) != len(values):
        places = f"{counted(len(pieces), 'place')} ({{}})"
        raise error(s.span, f"the text has {places}, but the call has {counted(len(values), 'value')}")
    shown = [_shown(value) for value in values]
    form = first + "".join(shape + piece for (shape, _), piece in zip(shown, pieces, strict=True))
    parts = [writer.expressions.argument(part) for _, found in shown for part in found]
    return "log_msg", [{"type": "string", "value": form}, {"type": "parameters_vector", "value": parts}]


def _elements(data: ir.Expr) -> list[ir.Expr]:
    if isinstance(data, ir.Aggregate):
        return list(data.elements)
    if isinstance(data.type, types.Struct | types.Tuple):
        return [field_of(data, f.name, f.type, n) for n, f in enumerate(data.type.fields)]
    return [data]


def _shown(e: ir.Expr) -> tuple[str, list[ir.Expr]]:
    """Return the format of a value in a message, and the numbers in it. Structs and headers show field names."""
    if not isinstance(e.type, types.Struct | types.Header):
        return "{}", [e]
    fields = e.type.fields
    inner = [_shown(field_of(e, f.name, f.type, n)) for n, f in enumerate(fields)]
    shape = ",".join(f"{f.name}:{shape}" for f, (shape, _) in zip(fields, inner, strict=True))
    return f"({shape})", [part for _, parts in inner for part in parts]


EXTERNS = (ExternKind("log_msg", _emit, in_parser=True),)
