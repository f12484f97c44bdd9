"""Invariants of typed statements and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fanin.p4compiler import ir, types
from fanin.p4compiler.rewrite import bodies, expressions, path
from tests.p4compiler.verify.expressions import at, verify_arguments, verify_expression


def walk_statements(statements: Iterable[ir.Stmt]) -> Iterator[ir.Stmt]:
    """Yield statements and everything in them."""
    for s in statements:
        yield s
        for body in bodies(s):
            yield from walk_statements(body)


def verify_statements(statements: tuple[ir.Stmt, ...]) -> Iterator[str]:
    """Yield the problems of statements."""
    for s in walk_statements(statements):
        for e in expressions(s):
            yield from verify_expression(e)
        yield from _verify_statement(s)
    for s in _stray_jumps(statements):
        yield f"{at(s.span)}: a {type(s).__name__.lower()} outside of every loop"


def _stray_jumps(statements: Iterable[ir.Stmt]) -> Iterator[ir.Stmt]:
    for s in statements:
        if isinstance(s, ir.Break | ir.Continue):
            yield s
        elif not isinstance(s, ir.Loop):
            for body in bodies(s):
                yield from _stray_jumps(body)


def _verify_statement(s: ir.Stmt) -> Iterator[str]:
    match s:
        case ir.Assign(target=target, value=value):
            if path(target) is None:
                yield f"{at(s.span)}: what is written is not a place"
            if target.type != value.type:
                yield f"{at(s.span)}: {target.type} is given a value of type {value.type}"
        case ir.Declare(variable=variable, initial=initial):
            if initial is not None and initial.type != variable.type:
                yield f"{at(s.span)}: {variable.type} is given a value of type {initial.type}"
        case ir.If(condition=condition):
            if not isinstance(condition.type, types.Bool):
                yield f"{at(s.span)}: a condition of type {condition.type}"
        case ir.SwitchValue(subject=subject, cases=cases):
            for label in (label for labels, _ in cases for label in labels):
                if label is not None and label.type != subject.type:
                    yield f"{at(s.span)}: a label of type {label.type} for {subject.type}"
        case ir.ApplyTable(table=table, cases=named):
            actions = {None, *(call.action for call in table.actions)}
            for action in (action for labels, _ in named for action in labels):
                if action not in actions:
                    yield f"{at(s.span)}: a label that is not an action of table '{table.name}'"
        case ir.CallAction(action=action, arguments=arguments):
            yield from verify_arguments(s.span, action.parameters, arguments)
        case ir.CallFunction(call=call):
            yield from verify_expression(call)
        case ir.CallExtern(name=name, arguments=arguments, directions=directions):
            if len(arguments) != len(directions):
                yield f"{at(s.span)}: {name}() has {len(arguments)} arguments, {len(directions)} directions"
            for argument, direction in zip(arguments, directions, strict=False):
                if direction in ("out", "inout") and path(argument) is None:
                    yield f"{at(argument.span)}: {name}() writes to what is not a place"
        case ir.CallHeader(header=header, method=method):
            if not isinstance(header.type, types.Header | types.Stack):
                yield f"{at(s.span)}: {method}() of {header.type}"


def verify_table(table: ir.Table) -> Iterator[str]:
    """Yield the problems of a table."""
    where = f"{at(table.span)}: table '{table.name}'"
    for element in table.key:
        yield from verify_expression(element.expr)
    listed = {call.action for call in table.actions}
    entries = table.entries or ()
    for call in (table.default, *(entry.call for entry in entries)):
        if call.action not in listed:
            yield f"{where} calls '{call.action.name}', which is not one of its actions"
        data = tuple(p for p in call.action.parameters if not p.direction)
        yield from verify_arguments(call.span, data, call.arguments)
    for entry in entries:
        if len(entry.keys) != len(table.key):
            yield f"{where}: an entry of {len(entry.keys)} keys, not {len(table.key)}"


def verify_states(states: tuple[ir.State, ...]) -> Iterator[str]:
    """Yield the problems of a parser's states."""
    names = [state.name for state in states]
    if states and "start" not in names:
        yield f"{at(states[0].span)}: no state 'start'"
    for state in states:
        yield from verify_statements(state.body)
        for subject in state.subjects:
            yield from verify_expression(subject)
        if names.count(state.name) > 1:
            yield f"{at(state.span)}: two states '{state.name}'"
        for case in state.cases:
            if case.target not in (*names, "accept", "reject"):
                yield f"{at(case.span)}: a transition to '{case.target}', which does not exist"
            whole = len(case.keys) == 1 and case.keys[0].value_set is not None
            if case.keys and not whole and len(case.keys) != len(state.subjects):
                yield f"{at(case.span)}: {len(case.keys)} keys for {len(state.subjects)}"
