"""Warnings about variables and out parameters that are read before they have a value, or never get one."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.p4compiler import ir, types
from fanin.p4compiler.rewrite import Path, path
from fanin.p4compiler.source import Reporter
from fanin.p4compiler.warn.flow import NOTHING, Facts, Flow


def warn_of_uninitialized(callee: ir.Function | ir.Block, reporter: Reporter) -> None:
    """Warn about variables of a function, parser or control that may be read before they have a value.

    Actions are followed where a control calls them, because they see the control's variables.
    """
    flow = _Uninitialized(reporter)
    facts = NOTHING
    for parameter in callee.parameters:
        if parameter.direction == "out":
            facts = flow.declared(parameter, facts)
    if isinstance(callee, ir.Block) and callee.kind == "parser":
        begin = flow.body(callee.prologue, facts)
        end = flow.states(callee.states, begin).get("accept") if begin is not None else None
    elif isinstance(callee, ir.Block):
        end = flow.body((*callee.prologue, *callee.body), facts)
    else:
        end = flow.body(callee.body, facts)
    if end is not None:
        flow.ended(callee.parameters, end)


class _Uninitialized(Flow):
    """Data flow of the places that may have no value yet: numbers, and the numbers in structs.

    Fields of headers are left out: their values depend on the header's validity.
    """

    def __init__(self, reporter: Reporter) -> None:
        super().__init__()
        self.reporter = reporter

    def join(self, one: Facts, other: Facts) -> Facts:
        """Return the places that may have no value on either path."""
        return one | other

    def read(self, e: ir.Expr, facts: Facts) -> None:
        where = path(e)
        if where is None or not facts:
            return
        missing = [p for p in facts if p[: len(where)] == where]
        if missing:
            name = ".".join(map(str, _names(where)))
            whole = len(missing) == len(list(_numbers(e.type, where)))
            message = f"'{name}' may be read before it has a value"
            if not whole:
                fields = ", ".join(sorted(".".join(map(str, p[len(where) :])) for p in missing))
                message = f"'{name}' may be read before all of it has a value: {fields}"
            hint = "give it a value where it is declared, or on every path to here"
            self.reporter.warn(e.span, message, hint, option="uninitialized-use")

    def written(self, target: ir.Expr, facts: Facts) -> Facts:
        where = path(target)
        if where is None or not facts:
            return facts
        return frozenset(p for p in facts if p[: len(where)] != where)

    def declared(self, variable: ir.Variable, facts: Facts) -> Facts:
        return facts | frozenset(_numbers(variable.type, (variable,)))

    def ended(self, parameters: tuple[ir.Variable, ...], facts: Facts) -> None:
        for parameter in parameters:
            if parameter.direction == "out" and any(p[0] is parameter for p in facts):
                message = f"out parameter '{parameter.name}' may have no value at the end"
                hint = "give it one on every path"
                self.reporter.warn(parameter.span, message, hint, option="uninitialized-out-param")


def _numbers(of: types.Type, where: Path) -> Iterator[Path]:
    """Yield the places of the numbers in a value of this type."""
    match of:
        case types.Struct(fields=fields) | types.Tuple(fields=fields):
            for field in fields:
                yield from _numbers(field.type, (*where, field.name))
        case _ if types.width(of) is not None:
            yield where


def _names(where: Path) -> Iterator[object]:
    variable, *parts = where
    assert isinstance(variable, ir.Variable)
    yield variable.name
    yield from parts
