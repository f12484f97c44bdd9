"""Inlining of parsers: nested parsers and `if` become states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fanin.p4compiler import ir, types
from fanin.p4compiler.inline.values import Context, ValueInliner, directions
from fanin.p4compiler.names import Names
from fanin.p4compiler.source import error

_ENDS = ("accept", "reject")
Enter = Callable[
    [ir.Instance, str, dict[ir.Variable, ir.Expr], dict[str, str]], tuple[ir.Stmt, ...]
]  # instance, prefix of names, values of parameters, new names of states


class ParserInliner:
    """Inliner that turns parsers into flat lists of states.

    What the target does not support is raised as CompileError. `enter` inlines a block, including a nested parser.
    """

    def __init__(self, values: ValueInliner, enter: Enter) -> None:
        self.values = values
        self.enter = enter
        self.names = Names(_ENDS)
        self.states: list[ir.State] = []
        self.subparsers: dict[ir.Stmt, tuple[ir.Instance, Context]] = {}

    def parser_states(self, block: ir.Block, prologue: tuple[ir.Stmt, ...], context: Context) -> None:
        """Add the states of a parser, renamed as in `context.states`; states missing there keep their names."""
        names = {name: name for name in (*_ENDS, *(s.name for s in block.states))} | context.states
        self.names.take(names.values())
        for state in block.states:
            body = self.values.statements(state.body, context)
            after: list[ir.Stmt] = []
            subjects = tuple(
                self.values.saved(subject, after) if isinstance(subject, ir.Constant) else subject
                for subject in self.values.values(list(state.subjects), after, context)
            )
            if state.name == "start":
                body = prologue + body
            cases = tuple(
                ir.SelectCase(tuple(_key(k, context) for k in c.keys), names[c.target], c.span)
                for c in state.cases
            )
            end = ir.State(names[state.name], (), subjects, cases, state.span)
            self.split((*body, *after), end)

    def apply_parser(
        self, s: ir.ApplyBlock, instance: ir.Instance, out: list[ir.Stmt], context: Context
    ) -> None:
        """Leave a marker where a nested parser is applied. `split` replaces it with the parser's states."""
        block = instance.block
        assert block is not None
        arguments = self.values.arguments(directions(block.parameters), s.arguments, out, context)
        inner = Context("", {})
        after = self.values.bind(block.parameters, arguments, inner, out)
        mark = ir.ApplyBlock(s.span, instance, ())
        self.subparsers[mark] = (instance, inner)
        out.append(mark)
        out += after

    def split(self, statements: tuple[ir.Stmt, ...], end: ir.State) -> None:
        """Add a state with these statements and the transition of `end`, split at each if and nested parser."""
        for position, s in enumerate(statements):
            if isinstance(s, ir.If | ir.ApplyBlock):
                before, rest = statements[:position], statements[position + 1 :]
                join = (
                    replace(end, name=self.names.unique(f"{end.name}_join")) if rest or end.subjects else None
                )
                target = join.name if join is not None else end.cases[0].target
                if isinstance(s, ir.If):
                    self.branch(s, before, end, target)
                else:
                    self.enter_parser(s, before, end, target)
                if join is not None:
                    self.split(rest, join)
                return
            if isinstance(s, ir.Scope | ir.Return):
                hint = "end it with its only return"
                raise error(s.span, "a function with more than one return is not supported in a parser", hint)
        self._select(replace(end, body=statements))

    def _select(self, state: ir.State) -> None:
        """Add a state, split where a case has a value set among other keys: BMv2 matches value sets only alone."""
        place = next((i for i, c in enumerate(state.cases) if len(c.keys) > 1 and _sets(c)), None)
        if place is None:
            self.states.append(state)
            return
        case, later = state.cases[place], state.cases[place + 1 :]
        anything = (ir.KeyValue(0, 0),)
        rest = self.names.unique(f"{state.name}_rest") if later else None
        checks: list[tuple[tuple[ir.Expr, ...], tuple[ir.KeyValue, ...]]] = [
            ((subject,), (key,))
            for subject, key in zip(state.subjects, case.keys, strict=True)
            if key.value_set is not None
        ]
        others = [i for i, key in enumerate(case.keys) if key.value_set is None]
        if others:
            checks.append((tuple(state.subjects[i] for i in others), tuple(case.keys[i] for i in others)))
        names = [self.names.unique(f"{state.name}_match") for _ in checks]
        first = ir.SelectCase(anything * len(state.subjects), names[0], case.span)
        self.states.append(replace(state, cases=(*state.cases[:place], first)))
        for name, target, (subjects, keys) in zip(names, [*names[1:], case.target], checks, strict=True):
            cases = [ir.SelectCase(keys, target, case.span)]
            if rest is not None:
                cases.append(ir.SelectCase(anything * len(subjects), rest, case.span))
            self.states.append(ir.State(name, (), subjects, tuple(cases), case.span))
        if rest is not None:
            self._select(ir.State(rest, (), state.subjects, later, state.span))

    def branch(self, s: ir.If, before: tuple[ir.Stmt, ...], end: ir.State, target: str) -> None:
        """Add an `if` as a select on its condition."""
        names = []
        for kind, body in (("true", s.chosen), ("false", s.other)):
            if body:
                names.append(self.names.unique(f"{end.name}_{kind}"))
                self.split(body, ir.State(names[-1], (), (), (ir.SelectCase((), target, s.span),), s.span))
            else:
                names.append(target)
        boolean = types.Bool()
        test = ir.Ref(boolean, s.span, self.values.variable("tmp", boolean, s.span))
        assign = ir.Assign(s.condition.span, test, s.condition)
        cases = (
            ir.SelectCase((ir.KeyValue(1),), names[0], s.span),
            ir.SelectCase((ir.KeyValue(0, 0),), names[1], s.span),
        )
        self.states.append(ir.State(end.name, (*before, assign), (test,), cases, end.span))

    def enter_parser(self, s: ir.ApplyBlock, before: tuple[ir.Stmt, ...], end: ir.State, target: str) -> None:
        """Add the states of a nested parser between the statements before it and what follows."""
        instance, inner = self.subparsers[s]
        block = instance.block
        assert block is not None
        local = instance.name.rpartition(".")[2]
        states = {state.name: self.names.unique(f"{local}_{state.name}") for state in block.states}
        start = (ir.SelectCase((), states["start"], s.span),)
        self.states.append(ir.State(end.name, before, (), start, end.span))
        self.enter(instance, instance.name, inner.bindings, states | {"accept": target})


def _sets(case: ir.SelectCase) -> bool:
    """Return whether a case has a value set among its keys."""
    return any(key.value_set is not None for key in case.keys)


def _key(key: ir.KeyValue, context: Context) -> ir.KeyValue:
    return replace(key, value_set=context.value_sets[key.value_set]) if key.value_set is not None else key


def tidy(states: list[ir.State]) -> list[ir.State]:
    """Return the reachable states, with each state merged into its only predecessor where that always leads to it."""
    by_name = {state.name: state for state in states}
    seen: dict[str, int] = {}
    todo = ["start"]
    while todo:
        name = todo.pop()
        seen[name] = seen.get(name, 0) + 1
        if name in by_name and seen[name] == 1:
            todo += [case.target for case in by_name[name].cases]
    merged: set[str] = set()
    result = []
    for state in states:
        if state.name not in seen or state.name in merged:
            continue
        while not state.subjects:
            target = state.cases[0].target
            following = by_name.get(target)
            if following is None or seen[target] > 1 or target in ("start", state.name):
                break
            merged.add(target)
            body = (*state.body, *following.body)
            state = replace(state, body=body, subjects=following.subjects, cases=following.cases)
        result.append(state)
    return [state for state in result if state.name not in merged]
