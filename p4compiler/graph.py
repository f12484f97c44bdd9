"""Control flow: a control's statements -> the nodes that BMv2 runs, tables and conditions with their successors.

Statements between tables become hidden actions of hidden tables that always miss, because BMv2 runs actions only in
tables.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from fanin.p4compiler import ir
from fanin.p4compiler.names import Names
from fanin.p4compiler.rewrite import bodies, has_return
from fanin.p4compiler.source import Span, error


@dataclass(slots=True, eq=False)
class TableNode:
    """Node that applies a table.

    Attributes:
        table: The table.
        span: The place where it is applied.
        by_action: The next node for each action that ran; None stands for all other actions.
        hit: The next node after a hit.
        miss: The next node after a miss.
        on_hit: True if `hit` and `miss` decide the next node, False if `by_action` does.
    """

    table: ir.Table
    span: Span
    by_action: dict[ir.Action | None, Node | None] = field(default_factory=dict)
    hit: Node | None = None
    miss: Node | None = None
    on_hit: bool = False

    @property
    def name(self) -> str:
        """Return the name by which other nodes refer to it."""
        return self.table.name


@dataclass(slots=True, eq=False)
class IfNode:
    """Node that evaluates a condition."""

    name: str
    condition: ir.Expr
    span: Span
    chosen: Node | None = None
    other: Node | None = None


Node = TableNode | IfNode


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes of a pipeline in the order of the program, and the first node to run."""

    first: Node | None
    nodes: tuple[Node, ...]

    @property
    def tables(self) -> tuple[ir.Table, ...]:
        """Return the tables that are applied, each once."""
        return tuple(dict.fromkeys(node.table for node in self.nodes if isinstance(node, TableNode)))

    @property
    def actions(self) -> tuple[ir.Action, ...]:
        """Return the actions of all tables, each once."""
        return tuple(dict.fromkeys(call.action for table in self.tables for call in table.actions))


@dataclass(frozen=True, slots=True)
class GraphProgram:
    """Lowered program with the graphs of its pipelines."""

    flat: ir.FlatProgram
    graphs: dict[ir.Role, Graph]


def build_graphs(program: ir.FlatProgram) -> GraphProgram:
    """Turn the pipelines of a program into graphs.

    Raises:
        CompileError: If BMv2 cannot run the tables in this order.
    """
    blocks = program.blocks.values()
    names = Names(d.name for b in blocks for d in b.declared if isinstance(d, ir.Table | ir.Action))
    numbers = itertools.count()
    return GraphProgram(
        program, {role: _Builder(names, numbers).build(program.blocks[role]) for role in ir.PIPELINES}
    )


class _Builder:
    def __init__(self, names: Names, numbers: Iterator[int]) -> None:
        self.names = names
        self.numbers = numbers
        self.nodes: list[Node] = []

    def build(self, block: ir.Block) -> Graph:
        next(self.numbers), next(self.numbers)  # p4c counts an entry and an exit of each pipeline
        first = self.sequence(block.body, None, [])
        self.nodes.reverse()
        _check_tables(self.nodes)
        for node in self.nodes:
            number = next(self.numbers)
            if isinstance(node, IfNode):
                node.name = f"node_{number}"
            elif node.table.hidden:
                node.table = self.named(node.table)
        return Graph(first, tuple(self.nodes))

    def sequence(
        self, statements: tuple[ir.Stmt, ...], after: Node | None, exits: list[Node | None]
    ) -> Node | None:
        """Return the first node of a sequence of statements.

        Args:
            statements: The statements.
            after: The node that follows them.
            exits: The nodes that follow a return, one for each enclosing scope.
        """
        groups = _groups(statements)
        node = after
        for group in reversed(groups):
            node = self._group(group, node, exits)
        return node

    def _group(self, group: list[ir.Stmt], after: Node | None, exits: list[Node | None]) -> Node | None:
        s = group[0]
        match s:
            case ir.If():
                return self.branch(s, after, exits)
            case ir.ApplyTable(span=span, table=table, cases=cases):
                node = TableNode(table, span)
                node.by_action[None] = after
                for labels, body in reversed(cases):
                    target = self.sequence(body, after, exits)
                    for label in labels:
                        node.by_action[label] = target
                self.nodes.append(node)
                return node
            case ir.Scope(body=body) if not _returns_from_loop(body):
                return self.sequence(body, after, [*exits, after])
            case ir.Return():
                return exits[-1] if exits else None
            case ir.Exit():
                return None
            case ir.CallAction(action=action, span=span):
                return self.call(action, span, after)
        action = self._hidden_action(group)
        return self.call(action, action.span, after)

    def branch(self, s: ir.If, after: Node | None, exits: list[Node | None]) -> Node:
        """Return a condition node, or a table node if the condition is the table's hit."""
        other = self.sequence(s.other, after, exits)
        chosen = self.sequence(s.chosen, after, exits)
        condition, negated = s.condition, False
        while isinstance(condition, ir.Unary) and isinstance(condition.operand, ir.Unary | ir.TableHit):
            condition, negated = condition.operand, not negated
        node: Node
        if isinstance(condition, ir.TableHit):
            hit, miss = (other, chosen) if negated else (chosen, other)
            node = TableNode(condition.table, s.span, {}, hit, miss, on_hit=True)
        else:
            node = IfNode("", s.condition, s.condition.span, chosen, other)
        self.nodes.append(node)
        return node

    def call(self, action: ir.Action, span: Span, after: Node | None) -> Node:
        """Return a node for a hidden table without a key whose default action is the given one."""
        call = ir.ActionCall(action, (), span)
        table = ir.Table("", (), (call,), call, True, None, span, hidden=True)
        node = TableNode(table, span)
        node.by_action[None] = after
        self.nodes.append(node)
        return node

    def _hidden_action(self, statements: list[ir.Stmt]) -> ir.Action:
        span = statements[0].span
        return ir.Action("", (), tuple(statements), span.to(statements[-1].span), hidden=True)

    def named(self, table: ir.Table) -> ir.Table:
        """Name a table that calls an action, and the action if it is hidden, too, as p4c does."""
        action = table.default.action
        if action.hidden:
            action = replace(action, name=self.names.unique(_place_name(action.span)))
        local = action.name.partition(".")[2] or action.name
        call = replace(table.default, action=action)
        return replace(
            table, name=self.names.unique(f"tbl_{local.replace('.', '_')}"), actions=(call,), default=call
        )


def _groups(statements: tuple[ir.Stmt, ...]) -> list[list[ir.Stmt]]:
    """Group neighbouring statements that go into one hidden action; drop what follows a jump."""
    groups: list[list[ir.Stmt]] = []
    open_group = False
    for s in statements:
        plain = isinstance(s, ir.Assign | ir.CallExtern | ir.CallHeader)
        if plain and open_group:
            groups[-1].append(s)
        else:
            groups.append([s])
        open_group = plain
        if isinstance(s, ir.Return | ir.Exit):
            break
    return groups


def _returns_from_loop(statements: tuple[ir.Stmt, ...]) -> bool:
    """Return whether a Return of this scope stands in a loop. If so, the whole scope becomes one action."""
    return any(
        has_return((s,)) if isinstance(s, ir.Loop) else any(map(_returns_from_loop, bodies(s)))
        for s in statements
        if not isinstance(s, ir.Scope)
    )


def _place_name(span: Span) -> str:
    """Return a hidden action's name, made of its file and line as p4c does."""
    stem = PurePath(span.file.path).name.partition(".")[0]
    name = re.sub(r"[^A-Za-z0-9_]", "", re.sub(r"^[^A-Za-z]+", "", stem))
    if not name:
        return "act"
    return f"{name}{'l' if name[-1].isdigit() else ''}{span.line}"


def _check_tables(nodes: list[Node]) -> None:
    """Check that each table has the same successors wherever it is applied, as BMv2 requires."""
    seen: dict[ir.Table, TableNode] = {}
    for node in nodes:
        if isinstance(node, TableNode):
            first = seen.setdefault(node.table, node)
            if first is not node:
                same = first.by_action == node.by_action and (first.hit, first.miss) == (node.hit, node.miss)
                if not same or first.on_hit != node.on_hit:
                    hint = "declare a second table, or apply it where the ways have joined"
                    raise error(
                        node.span,
                        f"table '{node.name}' is applied twice with different things to follow",
                        hint,
                    )
