"""Typing of parsers and controls (P4_16 specification, chapters 13 and 14)."""

from __future__ import annotations

from fanin.p4compiler import ir, nodes, types
from fanin.p4compiler.check.callables import CallableChecker
from fanin.p4compiler.check.expressions import ExpressionChecker
from fanin.p4compiler.check.instances import InstanceChecker
from fanin.p4compiler.check.keys import key_values
from fanin.p4compiler.check.scopes import Scopes
from fanin.p4compiler.check.statements import StatementChecker
from fanin.p4compiler.check.tables import TableChecker
from fanin.p4compiler.psa import externs as psa
from fanin.p4compiler.source import CompileError, Span, error, suggestion


class BlockChecker:
    """Type checker for parsers and controls and everything they declare.

    Errors in the program are raised as CompileError.
    """

    def __init__(
        self,
        scopes: Scopes,
        expressions: ExpressionChecker,
        instances: InstanceChecker,
        statements: StatementChecker,
        callables: CallableChecker,
    ) -> None:
        self.scopes = scopes
        self.expressions = expressions
        self.types = expressions.types
        self.constants = expressions.constants
        self.instances = instances
        self.statements = statements
        self.callables = callables
        self.tables = TableChecker(scopes, expressions, instances)

    def block(self, node: nodes.Control | nodes.Parser) -> ir.Block:
        """Check a parser or control and return it with its declarations and its body or states."""
        annotations = self.constants.annotations(node.annotations)
        declared: list[ir.Declared] = []
        value_sets: list[ir.ValueSet] = []
        prologue: list[ir.Stmt] = []
        body: tuple[ir.Stmt, ...] = ()
        states: tuple[ir.State, ...] = ()
        self.instances.declared = declared
        try:
            with self.scopes.nested(self.scopes.top), self.scopes.declaring(node.locals):
                constructor = self.callables.parameters(node.head.constructor or (), constructor=True)
                parameters = self.callables.parameters(node.head.parameters)
                for local in node.locals:
                    try:
                        self.local(local, declared, value_sets, prologue)
                    except CompileError as failure:
                        self.scopes.reporter.add(failure)
                        self.statements.define_for_recovery(local)
                if isinstance(node, nodes.Control):
                    body = self.statements.statements(node.body.statements)
                else:
                    states = self.states(node)
        finally:
            self.instances.declared = None
        return ir.Block(
            node.head.kind,
            node.name,
            parameters,
            constructor,
            node.name_span,
            annotations,
            tuple(declared),
            tuple(value_sets),
            tuple(prologue),
            body,
            states,
        )

    def local(
        self,
        node: nodes.Node,
        declared: list[ir.Declared],
        value_sets: list[ir.ValueSet],
        prologue: list[ir.Stmt],
    ) -> None:
        """Check one declaration and add it to the list it belongs to."""
        match node:
            case nodes.Variable():
                prologue.append(self.statements.variable(node))
            case nodes.Constant():
                self.statements.declare_constant(node)
            case nodes.Instance():
                instance = self.instances.instance(node)
                self.scopes.declare(node.name, node.name_span, instance)
                if str(instance.type) == psa.STATE:
                    state = self.instances.checksum_state(instance)
                    prologue.append(ir.Declare(node.span, state, ir.Constant(state.type, node.span, 0)))
            case nodes.Action():
                action = self.callables.action(node, top_level=False)
                self.scopes.declare(node.name, node.name_span, action)
                declared.append(action)
            case nodes.Table():
                table = self.tables.table(node)
                self.scopes.declare(node.name, node.name_span, table)
                declared.append(table)
            case nodes.ValueSet():
                value_set = self.value_set(node)
                self.scopes.declare(node.name, node.name_span, value_set)
                value_sets.append(value_set)
            case _:
                raise error(node.span, "this cannot be declared here")

    def value_set(self, node: nodes.ValueSet) -> ir.ValueSet:
        """Check the declaration of a value set."""
        of = self.types.resolve(node.type)
        if not isinstance(types.scalar(of), types.Bits | types.Struct | types.Tuple):
            raise error(node.type.span, f"a value set of {of} is not supported")
        size = self.constants.compile_time(node.size, "a value set's size")
        return ir.ValueSet(node.name, of, size, node.name_span, self.constants.annotations(node.annotations))

    # Parsers

    def states(self, node: nodes.Parser) -> tuple[ir.State, ...]:
        """Check the states of a parser."""
        for state in node.states:
            self.scopes.declare_member(_states_of(node), state.name, state.name_span, state)
        names = [s.name for s in node.states]
        if "start" not in names:
            raise error(node.name_span, f"parser '{node.name}' has no state 'start'")
        for state in node.states:
            if names.count(state.name) > 1 or state.name in ("accept", "reject"):
                raise error(state.name_span, f"state '{state.name}' is declared twice")
        states = []
        for state in node.states:
            try:
                with self.scopes.nested():
                    states.append(self.state(state, node, names))
            except CompileError as failure:
                self.scopes.reporter.add(failure)
        if len(states) == len(node.states) and not _may_end(states):
            hint = "write transition accept; where the parser is done"
            raise error(node.name_span, f"parser '{node.name}' never comes to accept or reject", hint)
        return tuple(states)

    def state(self, node: nodes.State, parser: nodes.Parser, names: list[str]) -> ir.State:
        """Check one state.

        Args:
            node: The state's syntax tree.
            parser: The parser that it belongs to.
            names: The names of all states of the parser.
        """
        body: list[ir.Stmt] = []
        for statement in node.statements:
            body += self.statements.statement(statement)
        targets = [*names, "accept", "reject"]
        transition = node.transition
        if not isinstance(transition, nodes.Select):
            target = transition.name if transition is not None else "reject"
            span = transition.span if transition is not None else node.name_span
            if transition is None:
                message = f"state '{node.name}' has no transition: it goes to reject, which behaves like accept here"
                hint = "end it with transition accept; or another state"
                self.scopes.reporter.warn(span, message, hint, option="parser-transition")
            self.scopes.use_member(_states_of(parser), target, span)
            if target not in targets:
                raise _no_state(target, span, targets)
            cases: tuple[ir.SelectCase, ...] = (ir.SelectCase((), target, span),)
            return ir.State(node.name, tuple(body), (), cases, node.name_span)
        for case in transition.cases:
            self.scopes.use_member(_states_of(parser), case.state, case.state_span)
        subjects = [self.subject(s) for s in transition.subjects]
        cases = tuple(self.select_case(case, subjects, targets) for case in transition.cases)
        return ir.State(node.name, tuple(body), tuple(subjects), cases, node.name_span)

    def subject(self, node: nodes.Expr) -> ir.Expr:
        """Check an expression that a select matches on."""
        value = self.expressions.expr(node)
        if isinstance(value.type, types.Int) or types.width(value.type) is None:
            raise error(node.span, f"a select over {value.type} is not supported", "select over its fields")
        return value

    def select_case(
        self, node: nodes.SelectCase, subjects: list[ir.Expr], targets: list[str]
    ) -> ir.SelectCase:
        """Check one case of a select."""
        if node.state not in targets:
            raise _no_state(node.state, node.state_span, targets)
        sets = [self._value_set_named(key) for key in node.keys]
        if len(sets) == 1 and sets[0] is not None:  # the value set matches all subjects at once
            _check_matches(sets[0], subjects, node.keys[0].span)
            return ir.SelectCase((ir.KeyValue(value_set=sets[0]),), node.state, node.span)
        others = tuple(
            key if value_set is None else nodes.Anything(key.span)
            for key, value_set in zip(node.keys, sets, strict=True)
        )
        keys = list(key_values(self.constants, others, subjects, node.span))
        for place, value_set in enumerate(sets):
            if value_set is not None:
                _check_matches(value_set, subjects[place : place + 1], node.keys[place].span)
                keys[place] = ir.KeyValue(value_set=value_set)
        return ir.SelectCase(tuple(keys), node.state, node.span)

    def _value_set_named(self, node: nodes.Expr) -> ir.ValueSet | None:
        """Return the value set that a key names, or None if the key is something else."""
        if isinstance(node, nodes.Name):
            symbol = self.scopes.lookup(node.name, node.span, node.rooted)
            return symbol if isinstance(symbol, ir.ValueSet) else None
        return None


def _states_of(parser: nodes.Parser) -> tuple[str, str]:
    """Return the owner of a parser's states in an index."""
    return "state", parser.name


def _no_state(name: str, span: Span, known: list[str]) -> Exception:
    """Return the error for a transition to a state that the parser does not have."""
    hint = suggestion(name, known) or f"declare it: state {name} {{ ... }}"
    return error(span, f"there is no state '{name}'", hint, cause=("state", name))


def _may_end(states: list[ir.State]) -> bool:
    """Return whether a path leads from `start` out of the parser. A parser also ends if no case of a select matches."""
    by_name = {state.name: state for state in states}
    seen: set[str] = set()
    todo = ["start"]
    while todo:
        name = todo.pop()
        state = by_name.get(name)
        if state is None or not any(all(k.anything for k in case.keys) for case in state.cases):
            return True
        if name not in seen:
            seen.add(name)
            todo += [case.target for case in state.cases]
    return False


def _check_matches(value_set: ir.ValueSet, subjects: list[ir.Expr], span: Span) -> None:
    """Check that the widths of a value set are those of the expressions it is matched with."""
    if _widths(value_set.type) != [types.width(subject.type) for subject in subjects]:
        wanted = ", ".join(str(subject.type) for subject in subjects)
        raise error(span, f"a value set of {value_set.type} cannot match {wanted}", other=value_set.span)


def _widths(of: types.Type) -> list[int | None]:
    """Return the widths of the numbers in a type, including those in nested structs and tuples."""
    if isinstance(of, types.Struct | types.Tuple):
        return [width for field in of.fields for width in _widths(field.type)]
    return [types.width(of)]
