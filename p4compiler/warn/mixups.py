"""Warnings about statements that compile, and do something other than they seem to: ports, swaps, and emits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from fanin.p4compiler import ir, types
from fanin.p4compiler.psa.expand import is_frame
from fanin.p4compiler.rewrite import Path, path
from fanin.p4compiler.source import Reporter
from fanin.p4compiler.warn.packets import sequences, statements

_DROP_PORT = 511  # what mark_to_drop() writes; some programs write it themselves


def warn_of_mixups(program: ir.FlatProgram, reporter: Reporter) -> None:
    """Warn about ports that are set where they have no effect, swaps that lose a value, and headers in a new order."""
    for role in (ir.Role.INGRESS, ir.Role.EGRESS):
        block = program.blocks[role]
        for body in sequences(block):
            _warn_of_swaps(body, reporter)
    if not is_frame(program):  # a frame's ports and packets are PSA's
        _warn_of_ports(program, reporter)
        _warn_of_order(program, reporter)


# -- Ports


def _warn_of_ports(program: ir.FlatProgram, reporter: Reporter) -> None:
    """Warn about assignments to egress_port, which BMv2 sets, and to egress_spec after ingress."""
    metadata = program.roots.standard_metadata
    for role in (ir.Role.INGRESS, ir.Role.EGRESS):
        for s in statements(program.blocks[role]):
            where = path(s.target) if isinstance(s, ir.Assign) else None
            if not isinstance(s, ir.Assign) or where is None or where[0] is not metadata:
                continue
            text = s.target.span.fragment()
            if where[1:] == ("egress_port",):
                message = f"{text} does not choose a port: the switch sets it after ingress"
                hint = f"write {text.removesuffix('egress_port')}egress_spec, in ingress"
                reporter.warn(s.target.span, message, hint, option="egress-port")
            elif where[1:] == ("egress_spec",) and role is ir.Role.EGRESS and not _is(s.value, _DROP_PORT):
                message = f"{text} does not choose a port here: ingress has chosen it"
                hint = "choose the port in ingress; to send a copy elsewhere, use clone()"
                reporter.warn(s.target.span, message, hint, option="egress-port")


def _is(e: ir.Expr, value: int) -> bool:
    return isinstance(e, ir.Constant) and e.value == value


# -- Swaps


def _warn_of_swaps(body: tuple[ir.Stmt, ...], reporter: Reporter) -> None:
    """Warn about `a = b; b = a;`, which leaves the old value of b in both."""
    for one, other in pairwise(body):
        if not (isinstance(one, ir.Assign) and isinstance(other, ir.Assign)):
            continue
        first, second = path(one.target), path(other.target)
        if None in (first, second) or first == second:
            continue
        whole = not any(isinstance(e, ir.Slice) for s in (one, other) for e in (s.target, s.value))
        if whole and first == path(other.value) and second == path(one.value):
            target, lost = other.target.span.fragment(), one.target.span.fragment()
            message = f"{target} keeps its value: {lost} has been overwritten with it in line {one.span.line}"
            hint = f"save it before that, in a variable: {one.target.type} old = {lost};"
            reporter.warn(other.span, message, hint, option="lost-swap")


# -- The order of headers


def _warn_of_order(program: ir.FlatProgram, reporter: Reporter) -> None:
    """Warn about headers that are emitted before others which the parser always extracts before them."""
    emitted: dict[Path, ir.Expr] = {}
    for s in program.blocks[ir.Role.DEPARSER].body:
        if isinstance(s, ir.CallExtern) and s.name == "packet_out.emit":
            where = path(s.arguments[0])
            if where is not None and isinstance(s.arguments[0].type, types.Header):
                emitted.setdefault(where[1:], s.arguments[0])
    moved = set(_made_in_controls(program))
    after = _extracted_after(program.blocks[ir.Role.PARSER])
    order = [where for where in emitted if where not in moved]
    for i, later in enumerate(order):
        for earlier in order[:i]:
            if earlier in after.get(later, ()) and later not in after.get(earlier, ()):
                one, other = emitted[earlier].span, emitted[later].span
                message = f"{one.fragment()} is emitted before {other.fragment()}, but extracted after it"
                hint = f"emit {other.fragment()} first: receivers read the packet from its beginning"
                reporter.warn(one, message, hint, option="emit-order")
                return


def _made_in_controls(program: ir.FlatProgram) -> Iterator[Path]:
    """Yield the headers that controls make valid or copy, whose place in the packet they choose themselves."""
    for role in (ir.Role.INGRESS, ir.Role.EGRESS):
        for s in statements(program.blocks[role]):
            where = None
            if isinstance(s, ir.CallHeader):
                where = path(s.header)
            elif isinstance(s, ir.Assign) and isinstance(s.target.type, types.Header):
                where = path(s.target)
            if where is not None:
                yield where[1:]


def _extracted_after(parser: ir.Block) -> dict[Path, set[Path]]:
    """Return which headers may be extracted after each header, on any way through the parser."""
    own: dict[str, list[Path]] = {}
    for state in parser.states:
        calls = [s for s in state.body if isinstance(s, ir.CallExtern) and s.name == "packet_in.extract"]
        own[state.name] = [where[1:] for s in calls if (where := path(s.arguments[0])) is not None]
    following = {state.name: {case.target for case in state.cases} & own.keys() for state in parser.states}
    found: dict[Path, set[Path]] = {}
    for state in parser.states:
        reached, todo = set[str](), [*following[state.name]]
        while todo:
            name = todo.pop()
            if name not in reached:
                reached.add(name)
                todo += following[name]
        behind = {header for name in reached for header in own[name]}
        for i, header in enumerate(own[state.name]):
            found.setdefault(header, set()).update(behind, own[state.name][i + 1 :])
    return found
