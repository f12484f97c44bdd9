"""Control flow: a control's statements -> the nodes that BMv2 runs, tables and conditions, each with its successors.

Statements between tables become hidden actions of hidden tables that always miss: BMv2 runs nothing outside of tables.
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
    """A table is applied; `hit` and `miss`, or `by_action` (None: every other action) say what comes next."""

    table: ir.Table
    span: Span
    by_action: dict[ir.Action | None, Node | None] = field(default_factory=dict)
    hit: Node | None = None
    miss: Node | None = None
    on_hit: bool = False

    @property
    def name(self) -> str:
        """The name that other nodes refer to."""
        return self.table.name


@dataclass(slots=True, eq=False)
class IfNode:
    """A condition is evaluated."""

    name: str
    condition: ir.Expr
    span: Span
    chosen: Node | None = None
    other: Node | None = None


Node = TableNode | IfNode


@dataclass(frozen=True, slots=True)
class Graph:
    """The nodes of a pipeline in the order of the program, and where it begins."""

    first: Node | None
    nodes: tuple[Node, ...]

    @property
    def tables(self) -> tuple[ir.Table, ...]:
        """The tables that are applied, each once."""
        return tuple(dict.fromkeys(node.table for node in self.nodes if isinstance(node, TableNode)))

    @property
    def actions(self) -> tuple[ir.Action, ...]:
        """The actions of all tables, each once."""
        return tuple(dict.fromkeys(call.action for table in self.tables for call in table.actions))


@dataclass(frozen=True, slots=True)
class GraphProgram:
    """A lowered program and the graphs of its pipelines."""

    flat: ir.FlatProgram
    graphs: dict[ir.Role, Graph]


def build_graphs(program: ir.FlatProgram) -> GraphProgram:
    """The program with its pipelines as graphs.

    Raises:
        CompileError: BMv2 cannot run it in this order.
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
        """The node that the statements begin with; `after` is what comes behind them, `exits` where returns go."""
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
        """A condition, or a table whose hit is the condition."""
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
        """A table without a key whose default action this is."""
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
        """A table that calls an action with its name, and the action's if it is hidden too, as p4c names them."""
        action = table.default.action
        if action.hidden:
            action = replace(action, name=self.names.unique(_place_name(action.span)))
        local = action.name.partition(".")[2] or action.name
        call = replace(table.default, action=action)
        return replace(
            table, name=self.names.unique(f"tbl_{local.replace('.', '_')}"), actions=(call,), default=call
        )


def _groups(statements: tuple[ir.Stmt, ...]) -> list[list[ir.Stmt]]:
    """Neighbours that go into one hidden action are together, everything else is alone; nothing after a jump."""
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
    """Whether a Return of this scope stands in a loop: then the scope is an action as a whole, as the loop is one."""
    return any(
        has_return((s,)) if isinstance(s, ir.Loop) else any(map(_returns_from_loop, bodies(s)))
        for s in statements
        if not isinstance(s, ir.Scope)
    )


def _place_name(span: Span) -> str:
    """A hidden action's name: its file and line, as p4c makes it."""
    stem = PurePath(span.file.path).name.partition(".")[0]
    name = re.sub(r"[^A-Za-z0-9_]", "", re.sub(r"^[^A-Za-z]+", "", stem))
    if not name:
        return "act"
    return f"{name}{'l' if name[-1].isdigit() else ''}{span.line}"


def _check_tables(nodes: list[Node]) -> None:
    """BMv2 knows one successor of a table however it was reached."""
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
