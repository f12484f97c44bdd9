"""The outline of a file: its declarations, and the regions in which names are visible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fanin.p4compiler import nodes
from fanin.p4compiler.source import Span


@dataclass(frozen=True, slots=True)
class Entry:
    """Declaration with those in it; `kind` names it as P4 does."""

    kind: str
    name: str
    span: Span
    name_span: Span
    inner: tuple[Entry, ...] = ()


def outline(tree: nodes.Program, path: str) -> list[Entry]:
    """Return the declarations of a file, by its name in spans."""
    return [e for d in tree.declarations if d.span.file.path == path for e in _entries(d)]


def _entries(node: nodes.Node) -> Iterator[Entry]:
    if not isinstance(node, nodes.Declaration) or node.span.expansion is not None:
        return
    inner: tuple[nodes.Node, ...] = ()
    kind = type(node).__name__.lower()
    match node:
        case nodes.Composite():
            kind, inner = node.kind, node.fields
        case nodes.Control():
            inner = node.locals
        case nodes.Parser():
            inner = (*node.locals, *node.states)
        case nodes.Extern():
            inner = node.methods
        case nodes.Callable():
            kind = node.kind
        case nodes.Enum():
            members = tuple(Entry("member", name, span, span) for name, _, span in node.members)
            yield Entry(kind, node.name, node.span, node.name_span, members)
            return
        case nodes.Names():
            members = tuple(Entry("member", name, span, span) for name, span in node.members)
            yield Entry(node.name, node.name, node.span, node.name_span, members)
            return
    entries = tuple(entry for part in inner for entry in _entries(part))
    yield Entry(kind, node.name, node.span, node.name_span, entries)


@dataclass(frozen=True, slots=True)
class Region:
    """Part of a program whose declarations are visible only in it, and the declaration that it is, if it is one."""

    span: Span
    node: nodes.Node


def regions(tree: nodes.Program) -> Iterator[Region]:
    """Yield all regions, the outer ones before those in them."""
    for declaration in tree.declarations:
        yield from _regions(declaration)


def _regions(node: nodes.Node) -> Iterator[Region]:
    inner: tuple[nodes.Node | None, ...] = ()
    match node:
        case nodes.Control():
            inner = (*node.locals, node.body)
        case nodes.Parser():
            inner = (*node.locals, *node.states)
        case nodes.State() | nodes.Block():
            inner = node.statements
        case nodes.Action() | nodes.Function():
            inner = (node.body,)
        case nodes.For() | nodes.ForIn():
            inner = (node.body,)
        case nodes.Table():
            pass
        case nodes.If():
            inner = (node.chosen, node.other)
        case nodes.Switch():
            inner = tuple(case.body for case in node.cases)
        case _:
            return
    if not isinstance(node, nodes.If | nodes.Switch):
        yield Region(node.span, node)
    for part in inner:
        if part is not None:
            yield from _regions(part)
