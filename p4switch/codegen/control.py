"""Control flow: the graph of tables and branches as nested ifs that join where the branches do."""

from __future__ import annotations

from fanin.p4switch.bmv2json.program import ActionNode, Branch, Node, Pipeline, ProgramError, Table
from fanin.p4switch.codegen.actions import ActionWriter
from fanin.p4switch.codegen.expressions import ExpressionWriter, c_words
from fanin.p4switch.codegen.layout import Layout
from fanin.p4switch.codegen.names import Names
from fanin.p4switch.codegen.tables import TableWriter
from fanin.p4switch.codegen.tracing import MOST_VALID, RecordKind, condition_fields
from fanin.p4switch.codegen.writer import Writer

# The deepest nesting of blocks: clang accepts 256 brackets, and Python 1,000 calls.
_DEEPEST = 40


class ControlWriter:
    """Writer of one pipeline as a function.

    What the switch does not support is raised as ProgramError.
    """

    def __init__(
        self, layout: Layout, tables: TableWriter, actions: ActionWriter, names: Names, pipeline: Pipeline
    ) -> None:
        self.layout = layout
        self.tables = tables
        self.actions = actions
        self.names = names
        self.pipeline = pipeline
        self.meeting = _meeting_points(pipeline)
        self.entries: dict[str, int] = {}
        self.written: set[str] = set()
        self.depth = 0
        self.later: list[
            tuple[str, str | None]
        ] = []  # nodes too deeply nested, and where to continue after each
        self.jumped_to: set[str] = set()
        for node in pipeline.nodes.values():
            for successor in set(node.successors):
                if successor is not None:
                    self.entries[successor] = self.entries.get(successor, 0) + 1

    def write(self, out: Writer) -> None:
        """Write the pipeline's function."""
        with out.block(
            f"static void {self.names.identifier('', self.pipeline.name)}(struct state *s, struct packet *p)"
        ):
            if self.pipeline is self.layout.program.ingress:
                out.line("struct ingress_metadata own = {0}, *const m = &own;")
                out.line("(void)m;")
            out.line("(void)s, (void)p;")
            self.flow(out, self.pipeline.initial, None)
            for name, until in self.later:  # it grows meanwhile
                out.line("return;")
                self.flow(out, name, until)
                if until is not None:
                    out.line(f"goto {self.label(until)};")
        out.line()

    def label(self, name: str) -> str:
        """Return the label of a node."""
        return self.names.identifier("node_", name, (self.pipeline.name, name))

    def flow(self, out: Writer, name: str | None, until: str | None) -> None:
        """Write the nodes from `name` up to, but without, `until`."""
        while name is not None and name != until:
            node = self.pipeline.nodes[name]
            label = self.label(name)
            if name in self.written:
                out.line(f"goto {label};")
                return
            if self.depth > _DEEPEST:
                out.line(f"goto {label};")
                self.later.append((name, until))
                self.jumped_to |= {name, until} if until is not None else {name}
                return
            self.written.add(name)
            if self.entries.get(name, 0) > 1 or name in self.jumped_to:
                out.label(label)
            meeting = self.meeting[name]
            self.node(out, node, meeting)
            name = meeting

    def node(self, out: Writer, node: Node, meeting: str | None) -> None:
        """Write a node and the branches that it opens."""
        match node:
            case Branch():
                out.source(node.source)
                expressions = ExpressionWriter(self.layout, f"condition {node.name}")
                condition = expressions.condition(node.condition)
                if out.traced:
                    condition = self.traced(out, node, condition, expressions)
                self.branches(out, [(condition, node.when_true), (None, node.when_false)], meeting)
            case ActionNode():
                if node.action.parameters:
                    raise ProgramError(f"{node.name}: action {node.action.name} needs parameters")
                out.source(node.source)
                out.line(f"{self.actions.call(node.action, 'NULL')};")
                self.leave_on_exit(out, node.action.id in self.actions.has_exit)
            case Table():
                self.table(out, node, meeting)

    def traced(self, out: Writer, branch: Branch, condition: str, expressions: ExpressionWriter) -> str:
        """Write a trace record of a branch, and return the variable with its condition."""
        number = self.actions.numbers.of(branch)
        self.layout.trace_invalid(out, branch.condition)
        recorded: list[str] = []
        valid: list[str] = []
        for place, field in enumerate(condition_fields(self.layout.program, branch.condition)):
            if place < MOST_VALID:
                valid.append(f"(uint64_t)({self.layout.is_valid(field.header)}) << {place}")
            recorded += c_words(expressions.value(field).code, self.layout.program.field_type(field).width)
        out.line(f"const bool holds_{number} = {condition};")
        out.trace(RecordKind.BRANCH, number, f"holds_{number}", " | ".join(valid) or "0", *recorded)
        return f"holds_{number}"

    def table(self, out: Writer, table: Table, meeting: str | None) -> None:
        """Write the application of a table, and the branches on its result."""
        call = self.tables.call(table)
        exits = any(a.id in self.actions.has_exit for a in table.actions)
        nodes = table.next_nodes
        if len(set(table.successors) - {table.default_next}) == 0 and table.default_next == meeting:
            out.line(f"{call};")
            self.leave_on_exit(out, exits)
            return
        choices: list[tuple[str | None, str | None]] = []
        result = self.names.identifier("", f"result_{table.name}", (self.pipeline.name, "result", table.name))
        out.line(f"const struct result {result} = {call};")
        self.leave_on_exit(out, exits)
        if "__HIT__" in nodes or "__MISS__" in nodes:
            choices.append((f"{result}.hit", nodes.get("__HIT__", table.default_next)))
            choices.append((None, nodes.get("__MISS__", table.default_next)))
        else:
            targets: dict[str | None, list[int]] = {}
            for number, action in enumerate(table.actions):
                targets.setdefault(nodes.get(action.name, table.default_next), []).append(number)
            for target, numbers in targets.items():
                tests = " || ".join(f"{result}.action == {n}" for n in numbers)
                choices.append((tests, target))
            choices[-1] = (None, choices[-1][1])
        self.branches(out, choices, meeting)

    def branches(
        self, out: Writer, choices: list[tuple[str | None, str | None]], meeting: str | None
    ) -> None:
        """Write `if`, `else if`, `else`, without the branches that lead directly to the meeting point."""
        choices = list(choices)
        if len({target for _, target in choices}) == 1:
            target = choices[0][1]
            if target != meeting:
                self.flow(out, target, meeting)
            return
        if len(choices) == 2 and choices[0][1] == meeting:
            condition = choices[0][0]
            assert condition is not None
            choices = [(f"!({condition})", choices[1][1])]
        elif choices[-1][1] == meeting and choices[-1][0] is None:
            choices.pop()
        head = "if"
        self.depth += 1
        for condition, target in choices:
            test = f"{head} ({_bare(condition)})" if condition is not None else "else"
            with out.block(test):
                if target != meeting:
                    self.flow(out, target, meeting)
            head = "else if"
        self.depth -= 1

    def leave_on_exit(self, out: Writer, needed: bool) -> None:
        """Write a return for an action that may exit."""
        if needed:
            out.line("if (p->exit)")
            out.line("    return;")


def _bare(condition: str) -> str:
    """Return the condition without parentheses around the whole of it."""
    if not condition.startswith("("):
        return condition
    depth = 0
    for position, character in enumerate(condition):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return condition[1:-1] if position == len(condition) - 1 else condition
    return condition


def _meeting_points(pipeline: Pipeline) -> dict[str, str | None]:
    """Return the immediate post-dominator of each node: the first node on every path from it; None is the end."""
    order = _topological(pipeline)
    depth: dict[str | None, int] = {None: 0}
    parent: dict[str | None, str | None] = {}
    for name in reversed(order):
        targets = list(dict.fromkeys(pipeline.nodes[name].successors)) or [None]
        meeting = targets[0]
        for other in targets[1:]:
            while meeting != other:
                if depth[meeting] >= depth[other]:
                    meeting = parent[meeting]
                else:
                    other = parent[other]
        parent[name] = meeting
        depth[name] = depth[meeting] + 1
    return {name: parent[name] for name in order}


def _topological(pipeline: Pipeline) -> list[str]:
    """Return the nodes, each before its successors.

    Raises:
        ProgramError: If there is a loop.
    """
    order: list[str] = []
    state: dict[str, int] = {}
    for root in pipeline.nodes:
        stack = [(root, iter(_next_names(pipeline, root)))] if root not in state else []
        if stack:
            state[root] = 1
        while stack:
            name, following = stack[-1]
            for successor in following:
                if state.get(successor) == 1:
                    raise ProgramError(f"pipeline {pipeline.name}: a loop through {successor}")
                if successor not in state:
                    state[successor] = 1
                    stack.append((successor, iter(_next_names(pipeline, successor))))
                    break
            else:
                state[name] = 2
                order.append(name)
                stack.pop()
    return order[::-1]


def _next_names(pipeline: Pipeline, name: str) -> list[str]:
    return [s for s in pipeline.nodes[name].successors if s is not None]
