"""Names in the control plane: no two objects of one kind may have the same name."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.p4compiler import ir, nodes, types
from fanin.p4compiler.dump.typed import of_action
from fanin.p4compiler.source import Reporter, error

# By extern. BMv2 finds direct and indirect ones by name alike, and P4Info gives profiles and selectors one kind.
_KINDS = {
    "counter": "counter",
    "direct_counter": "counter",
    "meter": "meter",
    "direct_meter": "meter",
    "register": "register",
    "action_profile": "action profile",
    "action_selector": "action profile",
}


def check_control_names(program: ir.FlatProgram, reporter: Reporter) -> None:
    """Check that all objects of a kind, and all controller headers, have different names in the control plane.

    Identical actions count as one, wherever they are written: P4_14 programs that p4c translates have such copies in
    ingress and egress.

    Raises:
        CompileError: If two have the same name. It reports all such pairs, with both places.
    """
    found: dict[tuple[str, str], ir.Declared | ir.ValueSet] = {}
    for kind, declared in _named(program):
        first = found.setdefault((kind, declared.name), declared)
        if first is declared or (
            isinstance(first, ir.Action) and isinstance(declared, ir.Action) and _alike(first, declared)
        ):
            continue
        message = f"two {kind}s are called '{declared.name}' in the control plane"
        hint = f'give one of them another name: @name("...") before the {kind}'
        if first.span == declared.span:
            hint = "its control has several instances: leave out the dot in @name, so that each has its own"
        reporter.add(error(declared.span, message, hint, other=first.span))
    _check_controller_headers(program, reporter)
    reporter.check()


def _check_controller_headers(program: ir.FlatProgram, reporter: Reporter) -> None:
    found: dict[str, nodes.Annotation] = {}
    for header in program.source.controller_headers:
        mark = next(a for a in header.annotations if a.name == "controller_header")
        name = nodes.annotation_text((mark,), "controller_header") or header.name
        first = found.setdefault(name, mark)
        if first is not mark:
            message = f"two controller headers are called '{name}'"
            hint = "PacketIns and PacketOuts have one header each: put all fields into it"
            reporter.add(error(mark.span, message, hint, other=first.span))


def _alike(one: ir.Action, other: ir.Action) -> bool:
    """Return whether two actions come from one declaration, or have the same parameters and body."""
    texts = ([line.partition("  // ")[0] for line in of_action(action)] for action in (one, other))
    return one.span == other.span or next(texts) == next(texts)


def _named(program: ir.FlatProgram) -> Iterator[tuple[str, ir.Declared | ir.ValueSet]]:
    """Yield all objects that the control plane sees, with their kinds."""
    declared = [*program.instances, *(d for block in program.blocks.values() for d in block.declared)]
    for d in declared:
        match d:
            case ir.Table():
                yield "table", d
            case ir.Action():
                yield "action", d
            case ir.Instance(type=types.ExternInstance(extern=extern)) if extern.name in _KINDS:
                yield _KINDS[extern.name], d
    for value_set in program.blocks[ir.Role.PARSER].value_sets:
        yield "value set", value_set
