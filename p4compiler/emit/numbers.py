"""Numbers and names by which parts of BMv2's JSON refer to each other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from fanin.p4compiler import ir
from fanin.p4compiler.emit.uses import CHECKSUMS, calls_in, extern_calls
from fanin.p4compiler.graph import GraphProgram, IfNode
from fanin.p4compiler.names import Names


@dataclass(frozen=True, slots=True)
class Numbers:
    """Identifiers of everything in a program.

    Attributes:
        actions: The number of each action.
        data: The position of each action parameter in the action's data.
        tables: The number of each table.
        conditionals: The number of each condition.
        profiles: The number of each action profile, by pipeline and name.
        calculations: The name of the calculation of each call.
        learn_lists: The number of the learn list of each digest.
    """

    actions: dict[ir.Action, int]
    data: dict[ir.Variable, int]
    tables: dict[ir.Table, int]
    conditionals: dict[IfNode, int]
    profiles: dict[tuple[ir.Role, str], int]
    calculations: dict[ir.CallExtern, str]
    learn_lists: dict[ir.CallExtern, int]


def number_all(program: GraphProgram) -> Numbers:
    """Number everything in the program."""
    graphs = program.graphs
    actions = [action for graph in graphs.values() for action in graph.actions]
    tables = [table for graph in graphs.values() for table in graph.tables]
    conditionals = [n for graph in graphs.values() for n in graph.nodes if isinstance(n, IfNode)]
    profiles = dict.fromkeys(
        (role, table.implementation.name)
        for role, graph in graphs.items()
        for table in graph.tables
        if table.implementation is not None
    )
    checksums = {call for role in CHECKSUMS for call in calls_in(program.flat.blocks[role].body)}
    names = Names()
    calls = list(extern_calls(program))
    return Numbers(
        dict(zip(actions, count(), strict=False)),
        {p: position for action in actions for position, p in enumerate(action.parameters)},
        dict(zip(tables, count(), strict=False)),
        dict(zip(conditionals, count(), strict=False)),
        dict(zip(profiles, count(), strict=False)),
        {call: names.unique("calc") for call in calls if call.name == "hash" or call in checksums},
        dict(zip((call for call in calls if call.name == "digest"), count(1), strict=False)),
    )
