"""A program as the page draws it: its headers, tables and graphs, and the packets that its parser accepts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from fanin.p4compiler.source import Span
from fanin.p4switch.bmv2json.expressions import Field
from fanin.p4switch.bmv2json.notation import number_text
from fanin.p4switch.bmv2json.program import (
    Branch,
    ExtractHeader,
    ExtractNext,
    Node,
    ParserState,
    Pipeline,
    Program,
    Source,
    Table,
)

END = "end"  # of a graph
_MOST_PATHS = 60  # through the parser
_MOST_VISITS = 3  # of one state on a path: a stack of labels
_MOST_STATES = 24  # on a path
_LABELS = 3  # of an edge

Json = dict[str, Any]


def describe(program: Program, states: Mapping[str, tuple[Span, ...]]) -> Json:
    """Return what the page shows of a program, as JSON.

    Args:
        program: The program.
        states: The places of the parser's states (p4compiler/compiled.py).
    """
    return {
        "headers": {
            header.name: [[each.name, each.width] for each in header.type.fields]
            for header in program.headers.values()
            if not header.is_metadata
        },
        "paths": [_path(program, path) for path in islice(_paths(program), _MOST_PATHS)],
        "graphs": [
            _parser(program, states),
            *(_pipeline(each) for each in (program.ingress, program.egress) if each.nodes),
        ],
        "tables": [_table(each) for each in program.tables.values() if not each.is_call and each.keys],
        "profiles": [
            {"name": each.name, "selector": each.selector is not None} for each in program.profiles.values()
        ],
        "registers": [[each.name, each.size, each.width] for each in program.registers.values()],
    }


def node_label(node: Node) -> str:
    """Return what a node of a pipeline is called: a table's name, or the text in the source."""
    if isinstance(node, Table) and not node.is_call:
        return node.name.rpartition(".")[2]
    return node.source.fragment if node.source else node.name


def _place(source: Source | None) -> Json:
    return {"file": source.file, "line": source.line} if source else {}


def _table(table: Table) -> Json:
    default = None
    if table.default is not None:
        action = next(each for each in table.actions if each.id == table.default.action)
        names = [parameter.name for parameter in action.parameters]
        default = {
            "action": action.name,
            "arguments": dict(zip(names, map(str, table.default.data), strict=False)),
        }
    return {
        "name": table.name,
        "keys": [{"name": key.name, "kind": key.kind, "width": key.width} for key in table.keys],
        "actions": [
            {"name": action.name, "parameters": [[each.name, each.width] for each in action.parameters]}
            for action in table.actions
        ],
        "const": table.const_entries is not None,
        "default": default,
        "fixedDefault": table.default is not None and table.default.is_const,
        "profile": table.profile,
        **_place(table.source),
    }


# Graphs


def _graph(name: str, initial: str | None, nodes: list[Json], edges: Iterable[tuple[str, str, str]]) -> Json:
    labels: dict[tuple[str, str], list[str]] = defaultdict(list)
    for start, end, label in edges:
        if label not in labels[start, end]:
            labels[start, end].append(label)
    joined = [
        {
            "from": start,
            "to": end,
            "label": ", ".join(filter(None, found[:_LABELS])) + "…" * (len(found) > _LABELS),
        }
        for (start, end), found in labels.items()
    ]
    last = {"id": END, "kind": "end", "label": "accept" if name == "parser" else "end"}
    return {"name": name, "initial": initial or END, "nodes": [*nodes, last], "edges": joined}


def _parser(program: Program, states: Mapping[str, tuple[Span, ...]]) -> Json:
    nodes = []
    for state in program.parser.states.values():
        span = states[state.name][0] if state.name in states else None
        place = {"file": span.file.path, "line": span.line} if span else {}
        nodes.append({"id": state.name, "kind": "state", "label": state.name, **place})
    edges = (
        (state.name, transition.next_state or END, label)
        for state in program.parser.states.values()
        for transition, label in _transitions(program, state)
    )
    return _graph("parser", program.parser.initial, nodes, edges)


def _transitions(program: Program, state: ParserState) -> Iterator[tuple[Any, str]]:
    for transition in state.transitions:
        if transition.value_set is not None:
            yield transition, transition.value_set
        elif transition.values is None or transition.masks is None:
            yield transition, "default" if len(state.transitions) > 1 else ""
        else:
            parts = zip(state.key, state.key_widths, transition.values, transition.masks, strict=True)
            yield (
                transition,
                " ".join(
                    number_text(program, key if isinstance(key, Field) else None, width, value)
                    + ("" if mask is None else f" &&& {mask:#x}")
                    for key, width, value, mask in parts
                ),
            )


def _pipeline(pipeline: Pipeline) -> Json:
    nodes = [
        {
            "id": name,
            "kind": "branch" if isinstance(node, Branch) else "table" if _is_table(node) else "action",
            "label": node_label(node),
            **_place(node.source),
        }
        for name, node in pipeline.nodes.items()
    ]
    edges = (
        (name, to or END, label) for name, node in pipeline.nodes.items() for to, label in _successors(node)
    )
    return _graph(pipeline.name, pipeline.initial, nodes, edges)


def _is_table(node: Node) -> bool:
    return isinstance(node, Table) and not node.is_call


def _successors(node: Node) -> Iterator[tuple[str | None, str]]:
    match node:
        case Branch():
            yield node.when_true, "true"
            yield node.when_false, "false"
        case Table() if len(set(node.next_nodes.values())) > 1:
            for name, following in node.next_nodes.items():
                yield following, {"__HIT__": "hit", "__MISS__": "miss"}.get(name, name.rpartition(".")[2])
        case Table():
            yield next(iter(node.next_nodes.values()), node.default_next), ""
        case _:
            yield node.next_node, ""


# Packets


def _paths(program: Program) -> Iterator[list[tuple[ParserState, Any]]]:
    """Yield the ways through the parser that accept: each state, and the transition that it takes; short ones first."""
    initial = program.parser.initial
    waiting: list[list[tuple[ParserState, Any]]] = [[]]
    looked = 0
    while waiting and looked < 20 * _MOST_PATHS:
        looked += 1
        path = waiting.pop(0)
        name = path[-1][1].next_state if path else initial
        if name is None:
            yield path
            continue
        state = program.parser.states[name]
        if len(path) >= _MOST_STATES or sum(each is state for each, _ in path) >= _MOST_VISITS:
            continue
        reached = set()
        for transition in state.transitions:
            if transition.next_state not in reached:  # of several cases that lead there the first
                reached.add(transition.next_state)
                waiting.append([*path, (state, transition)])


def _path(program: Program, path: list[tuple[ParserState, Any]]) -> Json:
    """Return the headers of a packet that takes a path, and the values that make it take it."""
    headers: list[str] = []
    values: dict[str, str] = {}
    used: dict[str, int] = defaultdict(int)
    for state, transition in path:
        for operation in state.operations:
            if isinstance(operation, ExtractHeader):
                headers.append(operation.header)
            elif isinstance(operation, ExtractNext):
                stack = program.stacks[operation.stack]
                if used[stack.name] < stack.depth:
                    headers.append(stack.headers[used[stack.name] * stack.unit + operation.member])
                    used[stack.name] += 1
        if transition.values is None or transition.masks is None:
            continue
        for key, value, mask in zip(state.key, transition.values, transition.masks, strict=True):
            if isinstance(key, Field) and key.header in headers:
                values[f"{key.header}.{key.name}"] = hex(value if mask is None else value & mask)
    return {"headers": headers, "values": values}
