"""Data flow: facts about places, followed through branches, calls, tables, actions and parser states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import reduce

from fanin.p4compiler import ir, types
from fanin.p4compiler.rewrite import Path, children

Facts = frozenset[Path]  # the places about which something is known
Outcomes = dict[ir.Action, Facts | None]  # by the action of a table that ran

NOTHING: Facts = frozenset()


class Flow(ABC):
    """Data flow analysis over statements, of the checked program and of the flat one.

    A subclass defines the facts: what changes them, and what is known where two paths join. None instead of facts means
    that the code is unreachable. A place in a loop, or in code called twice, is visited several times.
    """

    def __init__(self) -> None:
        self.exits: list[Facts] = []  # the facts at each `exit`
        self._returns: list[list[Facts]] = []
        self._leaving: list[list[Facts]] = []  # for each enclosing loop, the facts at each `break`
        self._continuing: list[list[Facts]] = []

    # For subclasses to override

    @abstractmethod
    def join(self, one: Facts, other: Facts) -> Facts:
        """Return the facts where two paths join."""

    @abstractmethod
    def read(self, e: ir.Expr, facts: Facts) -> None:
        """Handle the reading of a place."""

    @abstractmethod
    def written(self, target: ir.Expr, facts: Facts) -> Facts:
        """Return the facts after an unknown value is written to a place."""

    def assigned(self, target: ir.Expr, value: ir.Expr, facts: Facts) -> Facts:  # noqa: ARG002 - a subclass may need it
        """Return the facts after `target = value`, where the value has been read already."""
        return self.written(target, facts)

    @abstractmethod
    def ended(self, parameters: tuple[ir.Variable, ...], facts: Facts) -> None:
        """Handle the end of a block or action with these parameters."""

    def declared(self, variable: ir.Variable, facts: Facts) -> Facts:  # noqa: ARG002 - a subclass may need it
        """Return the facts after a variable is declared without a value."""
        return facts

    def tested(self, header: ir.Expr, facts: Facts) -> tuple[Facts | None, Facts | None]:  # noqa: ARG002 - a subclass may need it
        """Return the facts where a header was found valid, and where it was found invalid."""
        return facts, facts

    def header(self, s: ir.CallHeader, facts: Facts) -> Facts:  # noqa: ARG002 - a subclass may need it
        """Return the facts after a call of a header's method."""
        return facts

    def extern(self, s: ir.CallExtern, facts: Facts) -> Facts:
        """Return the facts after a call of an extern."""
        return self.call(s.directions, s.arguments, facts)

    # Statements

    def body(self, statements: Iterable[ir.Stmt], facts: Facts) -> Facts | None:
        """Return the facts after a body, including the paths that leave it with a return."""
        self._returns.append([])
        end = self.statements(statements, facts)
        return self.merged([end, *self._returns.pop()])

    def statements(self, statements: Iterable[ir.Stmt], facts: Facts | None) -> Facts | None:
        """Return the facts after statements."""
        for s in statements:
            if facts is None:
                return None
            facts = self.statement(s, facts)
        return facts

    def statement(self, s: ir.Stmt, facts: Facts) -> Facts | None:
        """Return the facts after a statement."""
        match s:
            case ir.Declare(variable=variable, initial=initial):
                if initial is None:
                    return self.declared(variable, facts)
                target = ir.Ref(variable.type, variable.span, variable)
                return self.assigned(target, initial, self.value(initial, facts))
            case ir.Assign(target=target, value=value):
                facts = self.value(value, facts)
                return self.assigned(target, value, self.indices(target, facts))
            case ir.If(condition=condition, chosen=chosen, other=other):
                yes, no = self.branch(condition, facts)
                return self.merged([self.statements(chosen, yes), self.statements(other, no)])
            case ir.Scope(body=inner):
                return self.body(inner, facts)
            case ir.Return(value=value):
                self._returns[-1].append(self.value(value, facts) if value is not None else facts)
                return None
            case ir.Loop(body=inner, update=update):
                return self.loop(inner, update, facts)
            case ir.Break():
                self._leaving[-1].append(facts)
                return None
            case ir.Continue():
                self._continuing[-1].append(facts)
                return None
            case ir.Exit():
                self.exits.append(facts)
                return None
            case ir.ApplyTable(table=table, cases=cases):
                return self._switch_action(self.table(table, facts), cases)
            case ir.SwitchValue(subject=subject, cases=cases):
                facts = self.value(subject, facts)
                ends = [self.statements(inner, facts) for _, inner in cases]
                default = any(None in labels for labels, _ in cases)
                return self.merged(ends if default else [*ends, facts])
            case ir.CallAction(action=action, arguments=arguments):
                return self.action(action, arguments, facts)
            case ir.CallFunction(call=call):
                return self.value(call, facts)
            case ir.ApplyBlock(instance=instance, arguments=arguments):
                assert isinstance(instance.type, types.BlockInstance)
                directions = tuple(p.direction for p in instance.type.block.parameters)
                return self.call(directions, arguments, facts)
            case ir.CallExtern():
                return self.extern(s, facts)
            case ir.CallHeader(header=header):
                return self.header(s, self.indices(header, facts))

    def loop(self, body: tuple[ir.Stmt, ...], update: tuple[ir.Stmt, ...], facts: Facts) -> Facts | None:
        """Return the facts after a loop with any number of rounds."""
        begin = facts
        while True:
            self._leaving.append([])
            self._continuing.append([])
            end = self.merged([self.statements(body, begin), *self._continuing.pop()])
            again = self.merged([facts, self.statements(update, end)])
            left = self._leaving.pop()
            if again is None or again == begin:
                return self.merged(left)
            begin = again

    def action(self, action: ir.Action, arguments: tuple[ir.Expr, ...], facts: Facts) -> Facts | None:
        """Return the facts after an action.

        Args:
            action: The action.
            arguments: Its arguments; for a table's action only those of parameters with a direction.
            facts: The facts before it.
        """
        parameters = action.parameters[: len(arguments)]
        facts = self._read_arguments(tuple(p.direction for p in parameters), arguments, facts)
        for parameter in parameters:
            if parameter.direction == "out":
                facts = self.declared(parameter, facts)
        end = self.body(action.body, facts)
        if end is None:
            return None
        self.ended(parameters, end)
        for parameter, argument in zip(parameters, arguments, strict=True):
            if parameter.direction in ("out", "inout"):
                end = self.written(argument, end)
        return end

    def table(self, table: ir.Table, facts: Facts) -> Outcomes:
        """Return the facts after a table is applied, by the action that ran."""
        for element in table.key:
            facts = self.value(element.expr, facts)
        return {call.action: self.action(call.action, call.arguments, facts) for call in table.actions}

    def _switch_action(
        self,
        outcomes: Outcomes,
        cases: tuple[tuple[tuple[ir.Action | None, ...], tuple[ir.Stmt, ...]], ...],
    ) -> Facts | None:
        rest = dict(outcomes)
        default: tuple[ir.Stmt, ...] = ()
        ends = []
        for labels, inner in cases:
            chosen = [rest.pop(label) for label in labels if label is not None]
            if None in labels:
                default = inner
            ends.append(self.statements(inner, self.merged(chosen)))
        return self.merged([*ends, self.statements(default, self.merged(rest.values()))])

    def call(self, directions: tuple[str, ...], arguments: tuple[ir.Expr, ...], facts: Facts) -> Facts:
        """Return the facts after a call whose body is not followed."""
        facts = self._read_arguments(directions, arguments, facts)
        for direction, argument in zip(directions, arguments, strict=True):
            if direction in ("out", "inout"):
                facts = self.written(argument, facts)
        return facts

    def _read_arguments(
        self, directions: tuple[str, ...], arguments: tuple[ir.Expr, ...], facts: Facts
    ) -> Facts:
        for direction, argument in zip(directions, arguments, strict=True):
            facts = self.indices(argument, facts) if direction == "out" else self.value(argument, facts)
        return facts

    # Expressions

    def value(self, e: ir.Expr, facts: Facts) -> Facts:
        """Return the facts after an expression is evaluated."""
        match e:
            case ir.Binary(op="&&" | "||") | ir.Unary(op="!") | ir.TableHit():
                return self._one(*self.branch(e, facts))
            case ir.Mux(condition=condition, chosen=chosen, other=other):
                yes, no = self.branch(condition, facts)
                return self._one(
                    self.value(chosen, yes) if yes is not None else None,
                    self.value(other, no) if no is not None else None,
                )
            case ir.Call(function=function, arguments=arguments):
                return self.call(tuple(p.direction for p in function.parameters), arguments, facts)
            case ir.IsValid():
                return facts
            case ir.Ref() | ir.Field() | ir.Element() | ir.StackPart():
                facts = self.indices(e, facts)
                self.read(e, facts)
                return facts
        for child in children(e):
            facts = self.value(child, facts)
        return facts

    def indices(self, target: ir.Expr, facts: Facts) -> Facts:
        """Return the facts after the computed indices of a place are read."""
        match target:
            case ir.Element(base=base, index=index):
                return self.value(index, self.indices(base, facts))
            case ir.Field(base=base) | ir.Slice(base=base) | ir.StackPart(base=base):
                return self.indices(base, facts)
        return facts

    def branch(self, condition: ir.Expr, facts: Facts) -> tuple[Facts | None, Facts | None]:
        """Return the facts where a condition is true, and where it is false."""
        match condition:
            case ir.Constant(value=known):
                return (facts, None) if known else (None, facts)
            case ir.Unary(op="!", operand=operand):
                yes, no = self.branch(operand, facts)
                return no, yes
            case ir.Binary(op="&&", left=left, right=right):
                first, no = self.branch(left, facts)
                yes, second = self.branch(right, first) if first is not None else (None, None)
                return yes, self.merged([no, second])
            case ir.Binary(op="||", left=left, right=right):
                yes, first = self.branch(left, facts)
                second, no = self.branch(right, first) if first is not None else (None, None)
                return self.merged([yes, second]), no
            case ir.TableHit(table=table):
                return self._hit(table, self.table(table, facts))
            case ir.IsValid(header=header):
                return self.tested(header, self.indices(header, facts))
        facts = self.value(condition, facts)
        return facts, facts

    def _hit(self, table: ir.Table, outcomes: Outcomes) -> tuple[Facts | None, Facts | None]:
        scopes = {call.action: {a.name for a in call.annotations} for call in table.actions}
        hit = [end for action, end in outcomes.items() if "defaultonly" not in scopes[action]]
        if table.default_constant:
            return self.merged(hit), outcomes[table.default.action]
        return self.merged(hit), self.merged(
            end for action, end in outcomes.items() if "tableonly" not in scopes[action]
        )

    # Parsers

    def states(self, states: tuple[ir.State, ...], facts: Facts) -> dict[str, Facts]:
        """Return the facts at the beginning of each reachable state, including `accept` and `reject`."""
        by_name = {state.name: state for state in states}
        begin = {"start": facts}
        todo = ["start"]
        while todo:
            state = by_name[todo.pop()]
            end = self.body(state.body, begin[state.name])
            if end is None:
                continue
            for subject in state.subjects:
                end = self.value(subject, end)
            for target in {case.target for case in state.cases}:
                met = self.join(begin[target], end) if target in begin else end
                if begin.get(target) != met:
                    begin[target] = met
                    todo += [target] if target in by_name else []
        return begin

    # Where paths join

    def merged(self, ends: Iterable[Facts | None]) -> Facts | None:
        """Return the facts where several paths join; None if none of them is reachable."""
        reached = [end for end in ends if end is not None]
        return reduce(self.join, reached) if reached else None

    def _one(self, *ends: Facts | None) -> Facts:
        """Return the facts where several paths join, at least one of which is reachable."""
        end = self.merged(ends)
        assert end is not None
        return end
