"""Invariants of pipeline graphs: nodes lead somewhere, and actions consist of what BMv2 has primitives for."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.p4compiler import ir
from fanin.p4compiler.graph import Graph, GraphProgram, Node, TableNode
from tests.p4compiler.verify.expressions import at
from tests.p4compiler.verify.statements import verify_statements, verify_table, walk_statements

_IN_ACTIONS = (
    *(ir.Assign, ir.CallExtern, ir.CallHeader),
    *(ir.If, ir.Scope, ir.Return, ir.Exit, ir.Loop, ir.Break, ir.Continue),
)


def verify_graphs(program: GraphProgram) -> Iterator[str]:
    """Yield the problems of a program's graphs."""
    nodes = [node for graph in program.graphs.values() for node in graph.nodes]
    names: dict[str, object] = {}
    for node in nodes:
        thing = node.table if isinstance(node, TableNode) else node
        if not node.name or names.setdefault(node.name, thing) is not thing:
            yield f"{at(node.span)}: another node is called '{node.name}', too"
    for graph in program.graphs.values():
        yield from _verify_graph(graph)


def _verify_graph(graph: Graph) -> Iterator[str]:
    position = {node: number for number, node in enumerate(graph.nodes)}
    if graph.first is not None and graph.first not in position:
        yield f"{at(graph.first.span)}: the first node is not of this pipeline"
    for node, number in position.items():
        for following in successors(node):
            if position.get(following, -1) <= number:
                yield f"{at(node.span)}: '{node.name}' leads back, or out of its pipeline"
        if isinstance(node, TableNode):
            yield from _verify_table_node(node)
    for action in graph.actions:
        yield from verify_statements(action.body)
        for s in walk_statements(action.body):
            if not isinstance(s, _IN_ACTIONS):
                yield f"{at(s.span)}: {type(s).__name__} in action '{action.name}'"


def successors(node: Node) -> list[Node]:
    """Return the nodes that can follow a node."""
    if isinstance(node, TableNode):
        found = (node.hit, node.miss) if node.on_hit else tuple(node.by_action.values())
    else:
        found = (node.chosen, node.other)
    return [following for following in found if following is not None]


def _verify_table_node(node: TableNode) -> Iterator[str]:
    table = node.table
    yield from verify_table(table)
    if not node.on_hit and None not in node.by_action:
        yield f"{at(node.span)}: what follows other actions of '{node.name}' is not known"
    listed = {None, *(call.action for call in table.actions)}
    for action in node.by_action:
        if action not in listed:
            yield f"{at(node.span)}: something follows what is not an action of '{node.name}'"
    if table.hidden and (table.key or not table.default_constant or len(table.actions) != 1):
        yield f"{at(node.span)}: '{node.name}' is not the call of one action"
