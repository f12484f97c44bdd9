"""Invariants of a checked program: every name refers to a declaration, and types fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fanin.p4compiler import ir
from fanin.p4compiler.reach import reachable
from fanin.p4compiler.rewrite import bodies, expressions, walk
from tests.p4compiler.verify.expressions import at
from tests.p4compiler.verify.statements import verify_statements, verify_states, verify_table


def verify_checked(program: ir.Program) -> Iterator[str]:
    """Yield the problems of a checked program."""
    for role in ir.Role:
        instance = program.blocks.get(role)
        kind = "parser" if role is ir.Role.PARSER else "control"
        if instance is None or instance.block is None or instance.block.kind != kind:
            yield f"no {kind} for {role.value}"
    known: set[object] = set(program.instances)
    for declared in reachable(program):
        match declared:
            case ir.Block():
                yield from _verify_block(declared, known)
            case _:
                yield from verify_statements(declared.body)
                # A function around a method of an object (psa/externs.py) has the method's name, and calls the object.
                method = "." in declared.name
                called = {s.instance for s in declared.body if method and isinstance(s, ir.CallExtern)}
                yield from _unknown(declared.body, known | called | set(declared.parameters))
                known.add(declared)


def _verify_block(block: ir.Block, outside: set[object]) -> Iterator[str]:
    known = outside | {*block.parameters, *block.constructor, *block.declared}
    bodies_ = [block.body, *(state.body for state in block.states)]
    yield from verify_statements(block.prologue)
    yield from _unknown(block.prologue, known)
    known |= {s.variable for s in block.prologue if isinstance(s, ir.Declare)}
    yield from verify_statements(block.body)
    yield from verify_states(block.states)
    for body in bodies_:
        yield from _unknown(body, known)
    for action in block.actions:
        yield from verify_statements(action.body)
        yield from _unknown(action.body, known | set(action.parameters))
    for table in block.tables:
        yield from verify_table(table)
        calls = [a for call in table.actions for a in call.arguments]
        for e in (*(element.expr for element in table.key), *calls):
            yield from _unknown_in(e, known)
        for call in table.actions:
            if call.action not in known:
                yield f"{at(call.span)}: action '{call.action.name}' is not declared"


def _unknown(statements: Iterable[ir.Stmt], known: set[object]) -> Iterator[str]:
    """Yield the uses of objects that are not declared before, or only in another scope."""
    known = set(known)
    for s in statements:
        for e in expressions(s):
            yield from _unknown_in(e, known)
        used: object = None
        match s:
            case ir.Declare(variable=variable):
                known.add(variable)
            case ir.ApplyTable(table=used) | ir.CallAction(action=used):
                pass
            case ir.CallExtern(instance=used) | ir.ApplyBlock(instance=used):
                pass
        if used is not None and used not in known:
            yield f"{at(s.span)}: what this calls is not declared"
        for body in bodies(s):
            yield from _unknown(body, known)


def _unknown_in(e: ir.Expr, known: set[object]) -> Iterator[str]:
    for part in walk(e):
        match part:
            case ir.Ref(variable=variable) if variable not in known and not variable.made:
                yield f"{at(part.span)}: '{variable.name}' is not declared"
            case ir.Object(object=thing) if thing not in known:
                yield f"{at(part.span)}: '{thing.name}' is not declared"
            case ir.TableHit(table=table) if table not in known:
                yield f"{at(part.span)}: table '{table.name}' is not declared"
