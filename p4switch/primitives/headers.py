"""Headers and header unions: validity and assignment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4switch.bmv2json.expressions import Expression, Field, HeaderName, UnionName
from fanin.p4switch.bmv2json.primitive_kind import PrimitiveKind

if TYPE_CHECKING:
    from fanin.p4switch.codegen.actions import PrimitiveWriter
    from fanin.p4switch.codegen.writer import Writer


def _write_add(writer: PrimitiveWriter, out: Writer, target: Expression) -> None:
    """Write setValid(), which fills a header with zeros if it was not valid."""
    out.line(f"set_valid(p, {writer.expressions.header_number(target)});")


def _write_remove(writer: PrimitiveWriter, out: Writer, target: Expression) -> None:
    """Write setInvalid()."""
    out.line(f"set_invalid(p, {writer.expressions.header_number(target)});")


def _write_assign(writer: PrimitiveWriter, out: Writer, target: Expression, source: Expression) -> None:
    """Write a header assignment: fields and validity. Metadata are assigned field by field."""
    headers = writer.layout.program.headers
    match target, source:
        case HeaderName(to), HeaderName(origin) if headers[to].is_metadata:
            for field in headers[to].type.fields:
                writer.assign(out, Field(to, field.name), Field(origin, field.name))
        case _:
            writer.expressions.check_alike(target, source)
            numbers = map(writer.expressions.header_number, (target, source))
            out.line(f"copy_header(p, {', '.join(numbers)});")


def _write_assign_union(writer: PrimitiveWriter, out: Writer, target: UnionName, source: UnionName) -> None:
    """Write a header union assignment, member by member."""
    unions = writer.layout.program.unions
    writer.copy_headers(out, unions[target.name].headers, unions[source.name].headers)


KINDS = (
    PrimitiveKind("add_header", ("element",), _write_add, overwrites=True, makes_valid=True),
    PrimitiveKind("add_header_fast", ("element",), _write_add, makes_valid=True),
    PrimitiveKind("remove_header", ("element",), _write_remove, overwrites=True),
    *(
        PrimitiveKind(name, ("element", "any header"), _write_assign, overwrites=True, makes_valid=True)
        for name in ("assign_header", "copy_header")
    ),
    PrimitiveKind("assign_union", ("union", "union"), _write_assign_union, makes_valid=True),
)
