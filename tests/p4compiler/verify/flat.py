"""Invariants of flat blocks: no calls to inlined code, and after lowering only what BMv2 has primitives for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fanin.p4compiler import ir, types
from fanin.p4compiler.externs.registry import EXTERNS
from fanin.p4compiler.rewrite import expressions, has_return, is_simple_key, path, walk
from fanin.p4compiler.source import Span
from tests.p4compiler.verify.expressions import at
from tests.p4compiler.verify.statements import verify_statements, verify_states, verify_table, walk_statements

_WRITTEN_OUT = (ir.Declare, ir.CallFunction, ir.ApplyBlock)
_OF_CONTROLS = (ir.CallAction, ir.ApplyTable)


def verify_flat(program: ir.FlatProgram) -> Iterator[str]:
    """Yield the problems of a program after inlining."""
    for role, block in program.blocks.items():
        yield from _verify_block(block, set(program.instances))
        if role not in ir.PIPELINES:
            yield from (f"{at(t.span)}: a table in {role.value}" for t in block.tables)
    yield from _same_names(program)


def verify_lowered(program: ir.FlatProgram) -> Iterator[str]:
    """Yield the problems of a program after lowering."""
    yield from verify_flat(program)
    for role, block in program.blocks.items():
        for s in _all_statements(block):
            yield from _unlowered(s, role in ir.PIPELINES)
        for state in block.states:
            for subject in state.subjects:
                if path(subject) is None:
                    yield f"{at(subject.span)}: a select over what is computed"


def _verify_block(block: ir.Block, shared: set[ir.Instance]) -> Iterator[str]:
    if block.constructor or block.prologue:
        yield f"{at(block.span)}: '{block.name}' is not flat"
    for instance in block.instances:
        if instance.block is not None:
            yield f"{at(instance.span)}: '{instance.name}' is not written out"
    known: set[object] = {*shared, *block.declared}
    yield from verify_statements(block.body)
    yield from verify_states(block.states)
    for table in block.tables:
        yield from verify_table(table)
        for element in table.key:
            yield from _calls(element.expr)
        for call in table.actions:
            if call.action not in known:
                yield f"{at(call.span)}: action '{call.action.name}' is not of this block"
    for body in (block.body, *(action.body for action in block.actions)):
        if has_return(body):
            yield f"{at(block.span)}: a return outside of every scope"
    for action in block.actions:
        yield from verify_statements(action.body)
        for s in walk_statements(action.body):
            if isinstance(s, _OF_CONTROLS):
                yield f"{at(s.span)}: {type(s).__name__} in action '{action.name}'"
        yield from _foreign(action.body, set(action.parameters))
    for body in (block.body, *(state.body for state in block.states)):
        yield from _foreign(body, set())
    for s in _all_statements(block):
        yield from _uninlined(s, known)


def _all_statements(block: ir.Block) -> Iterator[ir.Stmt]:
    yield from walk_statements(block.body)
    for body in (*(state.body for state in block.states), *(action.body for action in block.actions)):
        yield from walk_statements(body)


def _uninlined(s: ir.Stmt, known: set[object]) -> Iterator[str]:
    if isinstance(s, _WRITTEN_OUT):
        yield f"{at(s.span)}: {type(s).__name__} is not written out"
    for e in expressions(s):
        while isinstance(s, ir.If) and isinstance(e, ir.Unary):
            e = e.operand
        if not (isinstance(s, ir.If) and isinstance(e, ir.TableHit)):
            yield from _calls(e)
    used: object = None
    match s:
        case ir.CallAction(arguments=arguments, action=used):
            if arguments:
                yield f"{at(s.span)}: an action is called with arguments"
        case ir.Return(value=value):
            if value is not None:
                yield f"{at(s.span)}: a return of a value"
        case (
            ir.ApplyTable(table=used)
            | ir.CallExtern(instance=used)
            | ir.If(condition=ir.TableHit(table=used))
        ):
            pass
    if used is not None and used not in known:
        yield f"{at(s.span)}: what this uses is not of this block"


def _calls(e: ir.Expr) -> Iterator[str]:
    for part in walk(e):
        if isinstance(part, ir.Call | ir.TableHit | ir.Object):
            yield f"{at(part.span)}: {type(part).__name__} inside an expression"


def _foreign(statements: Iterable[ir.Stmt], parameters: set[ir.Variable]) -> Iterator[str]:
    """Yield the uses of parameters of other blocks or actions."""
    for s in walk_statements(statements):
        for part in (part for e in expressions(s) for part in walk(e)):
            if isinstance(part, ir.Ref) and part.variable.parameter and part.variable not in parameters:
                yield f"{at(part.span)}: '{part.variable.name}' is a parameter of something else"


def _same_names(program: ir.FlatProgram) -> Iterator[str]:
    """Yield the names that different variables, or different tables, share: the JSON would merge them."""
    found: dict[tuple[type, str], object] = {}
    for block in program.blocks.values():
        things: list[tuple[ir.Variable | ir.Table, Span]] = [(t, t.span) for t in block.tables]
        for s in _all_statements(block):
            parts = (part for e in expressions(s) for part in walk(e))
            refs = (part for part in parts if isinstance(part, ir.Ref))
            things += ((ref.variable, ref.span) for ref in refs if not ref.variable.parameter)
        for thing, span in things:
            if found.setdefault((type(thing), thing.name), thing) is not thing:
                yield f"{at(span)}: another {type(thing).__name__.lower()} is called '{thing.name}', too"


def _unlowered(s: ir.Stmt, pipeline: bool) -> Iterator[str]:
    for e in expressions(s):
        for part in walk(e):
            if isinstance(part, ir.Lookahead) and not (isinstance(s, ir.Assign) and part is s.value):
                yield f"{at(part.span)}: lookahead inside an expression"
    match s:
        case ir.SwitchValue():
            yield f"{at(s.span)}: a switch over a value"
        case ir.Assign(target=target, value=value):
            if isinstance(target, ir.Slice) or isinstance(target.type, types.Struct | types.Tuple):
                yield f"{at(s.span)}: an assignment to a {type(target).__name__.lower()} of {target.type}"
            if isinstance(target.type, types.Header) and isinstance(value, ir.Aggregate | ir.Mux):
                yield f"{at(s.span)}: a header is given what is not a header"
        case ir.CallExtern(name=name, arguments=arguments) if pipeline and not (
            name in EXTERNS and EXTERNS[name].takes_expressions
        ):
            for argument in arguments:
                if path(argument) is None and not isinstance(argument, ir.Constant | ir.Text | ir.Aggregate):
                    yield f"{at(argument.span)}: {name}() is given what is computed"
        case ir.ApplyTable(table=table):
            for element in table.key:
                if not is_simple_key(element.expr):
                    yield f"{at(element.span)}: a key that is computed"
