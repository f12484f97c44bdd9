"""The parts of a checked program that are used: called actions and functions, and the blocks around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fanin.p4compiler import ir
from fanin.p4compiler.rewrite import bodies, expressions, table_expressions, walk


def calls(statements: Iterable[ir.Stmt]) -> Iterator[ir.Action | ir.Function]:
    """Yield the actions and functions that statements call, each after those that it calls itself."""
    for s in statements:
        match s:
            case ir.CallAction(action=action):
                yield from calls(action.body)
                yield action
            case ir.CallFunction(call=call):
                yield from called_functions(call)
        for e in expressions(s):
            yield from called_functions(e)
        for body in bodies(s):
            yield from calls(body)


def called_functions(e: ir.Expr) -> Iterator[ir.Action | ir.Function]:
    """Yield the functions that an expression calls, and what these call, in the order of `calls`."""
    for part in walk(e):
        if isinstance(part, ir.Call):
            yield from calls(part.function.body)
            yield part.function


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
    used = [callee for body in scopes for callee in calls(body)]
    for table in block.tables:
        used += (callee for e in table_expressions(table) for callee in called_functions(e))
        for call in table.actions:
            used += (*calls(call.action.body), call.action)
    found |= dict.fromkeys(u for u in used if isinstance(u, ir.Function) or u.top_level)
    found[block] = None
