"""Requests for the end of the pipeline: clones, resubmit, recirculate, digests (codegen/frame.py fulfils them)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fanin.p4switch.bmv2json.expressions import Constant, Expression
from fanin.p4switch.bmv2json.primitive_kind import PrimitiveKind

if TYPE_CHECKING:
    from fanin.p4switch.codegen.actions import PrimitiveWriter
    from fanin.p4switch.codegen.writer import Writer


def _write_clone(writer: PrimitiveWriter, out: Writer, session: Expression, fields: Constant) -> None:
    """Write a clone of either kind: as in simple_switch, the pipeline that it happens in determines which."""
    _check_field_list(writer, fields)
    number = writer.temporary(out, "uint64_t", writer.expressions.value(session).cast("uint64_t"))
    out.line(f"p->request.clone = SESSIONS | ((uint32_t){number} % SESSIONS);")
    out.line(f"p->request.clone_list = {fields.value};")


def _write_resubmit(writer: PrimitiveWriter, out: Writer, fields: Constant) -> None:
    """Write resubmit(): after ingress, the original packet enters the parser again."""
    _check_field_list(writer, fields)
    out.line(f"p->request.resubmit = {fields.value};")


def _write_recirculate(writer: PrimitiveWriter, out: Writer, fields: Constant) -> None:
    """Write recirculate(): after the deparser, the packet enters the parser again."""
    _check_field_list(writer, fields)
    out.line(f"p->request.recirculate = {fields.value};")


def _check_field_list(writer: PrimitiveWriter, fields: Constant) -> None:
    """Check the number of a field list, where 0 means none."""
    if fields.value and fields.value not in writer.layout.program.field_lists:
        raise writer.unsupported(f"field list {fields.value} does not exist")


def _write_digest(writer: PrimitiveWriter, out: Writer, _receiver: Expression, digest: Constant) -> None:
    """Write digest(): after ingress, the fields are sent to the control plane."""
    if digest.value not in writer.layout.program.digests:
        raise writer.unsupported(f"digest {digest.value} does not exist")
    out.line(f"p->request.digest = {digest.value};")


KINDS = (
    *(
        PrimitiveKind(name, ("value", "constant"), _write_clone, request="clone")
        for name in ("clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress")
    ),
    PrimitiveKind("resubmit", ("constant",), _write_resubmit, request="resubmit"),
    PrimitiveKind("recirculate", ("constant",), _write_recirculate, request="recirculate"),
    PrimitiveKind("generate_digest", ("value", "constant"), _write_digest, request="digest"),
)
