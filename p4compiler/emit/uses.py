"""The expressions, places and extern calls of a program, in the order in which BMv2's JSON lists them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fanin.p4compiler import ir, types
from fanin.p4compiler.graph import GraphProgram, IfNode
from fanin.p4compiler.rewrite import Path, bodies, children, expressions, is_fixed, leaves, path

CHECKSUMS = (ir.Role.COMPUTE_CHECKSUM, ir.Role.VERIFY_CHECKSUM)
# The JSON lists their arguments in another order than the program, and omitted ones are numbers.
_ORDER = {"hash": (3, 0, 2, 4), "verify_checksum": (1, 2, 0), "update_checksum": (1, 2, 0)}


def extern_calls(program: GraphProgram) -> Iterator[ir.CallExtern]:
    """Yield the extern calls in actions, then those that compute and verify checksums."""
    for graph in program.graphs.values():
        for action in graph.actions:
            yield from calls_in(action.body)
    for role in CHECKSUMS:
        yield from calls_in(program.flat.blocks[role].body)


def calls_in(statements: Iterable[ir.Stmt]) -> Iterator[ir.CallExtern]:
    """Yield the extern calls in statements, in the order of the program."""
    for s in statements:
        if isinstance(s, ir.CallExtern):
            yield s
        for body in bodies(s):
            yield from calls_in(body)


def used_places(program: GraphProgram) -> Iterator[tuple[Path, types.Type]]:
    """Yield the places that the program reads or writes, with their types. Structs yield their fields."""
    standard_metadata = program.flat.roots.standard_metadata
    for e in _expressions(program):
        for place in _places(e):
            where = path(place)
            if where is not None and where[0] is not standard_metadata:
                yield where, place.type


def header_of(e: ir.Expr) -> tuple[ir.Expr | None, tuple[str, ...]]:
    """Return the header that a field belongs to and the path inside it; (None, ()) if it belongs to none."""
    names: tuple[str, ...] = ()
    while isinstance(e, ir.Field):
        names = (e.name, *names)
        e = e.base
        if isinstance(e.type, types.Header):
            return e, names
    return None, ()


def is_zero(e: ir.Expr) -> bool:
    """Return whether the expression is a shift of zero, which need not be computed."""
    return (
        isinstance(e, ir.Binary)
        and e.op in ("<<", ">>")
        and isinstance(e.left, ir.Constant)
        and e.left.value == 0
    )


def _expressions(program: GraphProgram) -> Iterator[ir.Expr]:
    blocks = program.flat.blocks
    for state in blocks[ir.Role.PARSER].states:
        yield from _of_statements(state.body)
        yield from state.subjects
    for graph in program.graphs.values():
        for action in graph.actions:
            yield from _of_statements(action.body)
    for graph in program.graphs.values():
        for node in graph.nodes:
            if isinstance(node, IfNode):
                yield node.condition
            else:
                key = sorted(node.table.key, key=lambda k: k.match_kind == "selector")
                yield from (element.expr for element in key)
    for role in (ir.Role.DEPARSER, *CHECKSUMS):
        yield from _of_statements(blocks[role].body)


def _of_statements(statements: Iterable[ir.Stmt]) -> Iterator[ir.Expr]:
    for s in statements:
        order = _ORDER.get(s.name.removesuffix("_with_payload")) if isinstance(s, ir.CallExtern) else None
        found = expressions(s)
        yield from (found[i] for i in order) if order is not None else found
        for body in bodies(s):
            yield from _of_statements(body)


def _places(e: ir.Expr) -> Iterator[ir.Expr]:
    header, _ = header_of(e)
    if header is not None:
        yield from _places(header)
    elif is_zero(e):
        return
    elif not is_fixed(e):
        for child in children(e):
            yield from _places(child)
    elif isinstance(e.type, types.Struct | types.Tuple):
        for leaf in leaves(e):
            yield from _places(leaf)
    elif not (isinstance(e, ir.Ref) and e.variable.parameter):  # action data needs no storage
        yield e
