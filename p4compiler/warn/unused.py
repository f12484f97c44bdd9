"""Warnings about tables and actions that are never applied, and unreachable parser states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from fanin.p4compiler import ir
from fanin.p4compiler.nodes import Annotations, annotation_text
from fanin.p4compiler.reach import calls
from fanin.p4compiler.rewrite import bodies, expressions, table_expressions, walk
from fanin.p4compiler.source import Reporter

# The property of a table that takes a direct extern of v1model or PSA, and what does not happen without it.
_DIRECT = {
    "direct_counter": ("counters", "is counted"),
    "direct_meter": ("meters", "is metered"),
    "DirectCounter": ("psa_direct_counter", "is counted"),
    "DirectMeter": ("psa_direct_meter", "is metered"),
}


def warn_of_unused(block: ir.Block, reporter: Reporter) -> None:
    """Warn about declarations of a parser or control that are never used."""
    of_tables = (e for table in block.tables for e in table_expressions(table))
    applied = {*_applied(block.body), *_hits(chain.from_iterable(map(walk, of_tables)))}
    called = {*calls(block.body), *(call.action for table in block.tables for call in table.actions)}
    for action in block.actions:
        called |= set(calls(action.body))
    for table in block.tables:
        if table not in applied and not _is_unused_on_purpose(table.annotations):
            hint = f"write {table.name}.apply(); where it belongs, or remove it"
            reporter.warn(table.span, f"table '{table.name}' is never applied", hint, option="unused")
    attached = {one for table in block.tables for one in (table.counters, table.meters)}
    for instance in block.instances:
        kind = str(instance.type).partition("<")[0]
        if kind in _DIRECT and instance not in attached and not _is_unused_on_purpose(instance.annotations):
            key, verb = _DIRECT[kind]
            message = f"{kind} '{instance.name}' belongs to no table: nothing {verb}"
            hint = f"write {key} = {instance.name}; in the table"
            reporter.warn(instance.span, message, hint, option="unused")
    for action in block.actions:
        if action not in called and not _is_unused_on_purpose(action.annotations):
            hint = "list it in a table's actions, call it, or remove it"
            reporter.warn(action.span, f"action '{action.name}' is never used", hint, option="unused")
    reached = _reached(block.states)
    for state in block.states:
        if state.name not in reached:
            hint = "no transition leads to it"
            reporter.warn(state.span, f"state '{state.name}' is never reached", hint, option="unreachable")


def _is_unused_on_purpose(annotations: Annotations) -> bool:
    """Return whether @noWarn("unused"), as in p4c, marks something as unused on purpose."""
    return annotation_text(annotations, "noWarn") == "unused"


def _applied(statements: Iterable[ir.Stmt]) -> Iterator[ir.Table]:
    for s in statements:
        if isinstance(s, ir.ApplyTable):
            yield s.table
        yield from _hits(chain.from_iterable(map(walk, expressions(s))))
        for body in bodies(s):
            yield from _applied(body)


def _hits(parts: Iterable[ir.Expr]) -> Iterator[ir.Table]:
    return (part.table for part in parts if isinstance(part, ir.TableHit))


def _reached(states: tuple[ir.State, ...]) -> set[str]:
    targets = {state.name: [case.target for case in state.cases] for state in states}
    reached: set[str] = set()
    todo = ["start"]
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += targets.get(name, ())
    return reached
