"""Invariants of the syntax tree: every node has a place in the source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from fanin.p4compiler import nodes
from fanin.p4compiler.source import Span


def verify_syntax(program: nodes.Program) -> Iterator[str]:
    """Yield the problems of a syntax tree."""
    for declaration in program.declarations:
        for node in _nodes(declaration):
            for name, span in ((f.name, getattr(node, f.name)) for f in fields(node)):
                if isinstance(span, Span) and not _is_place(span):
                    yield f"{type(node).__name__}: its {name} is not in {span.file.path}"


def _nodes(root: nodes.Node) -> Iterator[nodes.Node]:
    todo: list[object] = [root]
    while todo:
        value = todo.pop()
        if isinstance(value, nodes.Node):
            yield value
            todo += (getattr(value, f.name) for f in fields(value))
        elif isinstance(value, tuple) and not isinstance(value, Span):
            todo += value


def _is_place(span: Span) -> bool:
    file = span.file
    begins_before = (span.line, span.column) <= (span.end_line, span.end_column)
    return begins_before and file.first <= span.line <= span.end_line <= file.first + len(file.lines)
