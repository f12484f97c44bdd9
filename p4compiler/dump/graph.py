"""Pipelines as text: nodes with their successors, and the actions that the compiler created."""

from __future__ import annotations

from fanin.p4compiler import ir
from fanin.p4compiler.dump.expressions import of_expression
from fanin.p4compiler.dump.typed import of_action, place
from fanin.p4compiler.graph import Graph, GraphProgram, IfNode, Node, TableNode


def dump_graphs(program: GraphProgram) -> str:
    """Format the graphs of a program. Its other blocks are unchanged since the phase before."""
    parts = [_graph(role, graph) for role, graph in program.graphs.items()]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _graph(role: ir.Role, graph: Graph) -> list[str]:
    lines = [f"// {role.value}", f"start -> {_name(graph.first)}"]
    lines += [f"{_node(node)}{place(node.span)}" for node in graph.nodes]
    for action in graph.actions:
        if action.hidden:
            lines += of_action(action)
    return lines


def _node(node: Node) -> str:
    match node:
        case IfNode(name=name, condition=condition, chosen=chosen, other=other):
            return f"{name}: {of_expression(condition)} ? {_name(chosen)} : {_name(other)}"
        case TableNode(on_hit=True, name=name, hit=hit, miss=miss):
            return f"{name}: hit ? {_name(hit)} : {_name(miss)}"
    following = [
        f"{action.name if action is not None else 'default'} -> {_name(target)}"
        for action, target in sorted(node.by_action.items(), key=lambda item: item[0] is None)
    ]
    return f"{node.name}: {', '.join(following)}"


def _name(node: Node | None) -> str:
    return node.name if node is not None else "end"
