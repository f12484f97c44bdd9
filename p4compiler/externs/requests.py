"""Requests for the end of the pipeline: clones, resubmit, recirculate, digests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4compiler import ir
from fanin.p4compiler.externs.extern_kind import ExternKind
from fanin.p4compiler.source import error

if TYPE_CHECKING:
    from fanin.p4compiler.emit.actions import ActionWriter
    from fanin.p4compiler.emit.expressions import Json


_CLONES = {0: "clone_ingress_pkt_to_egress", 1: "clone_egress_pkt_to_egress"}  # by CloneType


def _emit_clone(writer: ActionWriter, s: ir.CallExtern) -> tuple[str, list[Json]]:
    kind = s.arguments[0]
    if not isinstance(kind, ir.Constant):
        raise error(kind.span, "the kind of clone must be known when compiling")
    if writer.role != ir.PIPELINES[kind.value]:
        raise error(s.span, f"a clone from {('ingress', 'egress')[kind.value]} is not possible here")
    session = writer.expressions.argument(s.arguments[1])
    if s.name == "clone":
        return _CLONES[kind.value], [session, writer.number(writer.field_lists[s])]
    return _CLONES[kind.value], [session, _field_list(writer, s, s.arguments[2], writer.role)]


def _emit_resubmit(writer: ActionWriter, s: ir.CallExtern) -> tuple[str, list[Json]]:
    return "resubmit", [_field_list(writer, s, s.arguments[0], ir.Role.INGRESS)]


def _emit_recirculate(writer: ActionWriter, s: ir.CallExtern) -> tuple[str, list[Json]]:
    return "recirculate", [_field_list(writer, s, s.arguments[0], ir.Role.EGRESS)]


def _field_list(writer: ActionWriter, s: ir.CallExtern, index: ir.Expr, role: ir.Role) -> Json:
    """Return the number of the list of metadata fields that @field_list(index) marks."""
    if writer.role != role:
        raise error(s.span, f"{s.name}() is only possible in {role.name.lower()}")
    if not isinstance(index, ir.Constant):
        raise error(index.span, "the number of the field list must be known when compiling")
    return writer.number(writer.field_lists[s])


def _emit_digest(writer: ActionWriter, s: ir.CallExtern) -> tuple[str, list[Json]]:
    receiver = writer.expressions.argument(s.arguments[0])
    return "generate_digest", [receiver, writer.number(writer.numbers.learn_lists[s])]


EXTERNS = (
    ExternKind("clone", _emit_clone),
    ExternKind("clone_preserving_field_list", _emit_clone),
    ExternKind("resubmit_preserving_field_list", _emit_resubmit),
    ExternKind("recirculate_preserving_field_list", _emit_recirculate),
    ExternKind("digest", _emit_digest),
)
