"""The parts of a checked program that are used: called actions and functions, and the blocks around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fanin.p4compiler import ir
from fanin.p4compiler.rewrite import bodies, expressions, table_expressions, walk


def calls(
    statements: Iterable[ir.Stmt], seen: set[ir.Action | ir.Function] | None = None
) -> Iterator[ir.Action | ir.Function]:
    """Yield the actions and functions that statements call, each once, and after those that it calls itself.

    Args:
        statements: The statements.
        seen: Those that are left out; those that are yielded are added.
    """
    seen = set() if seen is None else seen
    for s in statements:
        match s:
            case ir.CallAction(action=action):
                yield from _called(action, seen)
            case ir.CallFunction(call=call):
                yield from called_functions(call, seen)
        for e in expressions(s):
            yield from called_functions(e, seen)
        for body in bodies(s):
            yield from calls(body, seen)


def _called(
    called: ir.Action | ir.Function, seen: set[ir.Action | ir.Function]
) -> Iterator[ir.Action | ir.Function]:
    if called not in seen:
        seen.add(called)
        yield from calls(called.body, seen)
        yield called


def called_functions(
    e: ir.Expr, seen: set[ir.Action | ir.Function] | None = None
) -> Iterator[ir.Action | ir.Function]:
    """Yield the functions that an expression calls, and what these call, in the order of `calls`."""
    seen = set() if seen is None else seen
    for part in walk(e):
        if isinstance(part, ir.Call):
            yield from _called(part.function, seen)


def reachable(program: ir.Program) -> list[ir.Function | ir.Action | ir.Block]:
    """Return the program's blocks and the top-level functions and actions they use, each before its first use."""
    found: dict[ir.Function | ir.Action | ir.Block, None] = {}
    for instance in program.blocks.values():
        _reach(instance, found)
    return list(found)


def _reach(instance: ir.Instance, found: dict[ir.Function | ir.Action | ir.Block, None]) -> None:
    block = instance.block
    if block is None or block in found:
        return
    for inner in block.instances:
        _reach(inner, found)
    scopes = [block.prologue, block.body, *(s.body for s in block.states), *(a.body for a in block.actions)]
    seen: set[ir.Action | ir.Function] = set()
    used = [callee for body in scopes for callee in calls(body, seen)]
    for table in block.tables:
        used += (callee for e in table_expressions(table) for callee in called_functions(e, seen))
        for call in table.actions:
            used += _called(call.action, seen)
    found |= dict.fromkeys(u for u in used if isinstance(u, ir.Function) or u.top_level)
    found[block] = None
