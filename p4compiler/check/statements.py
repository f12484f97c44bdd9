"""Typing of statements (P4_16 specification, chapter 12)."""

from __future__ import annotations

from fanin.p4compiler import fold, ir, nodes, types
from fanin.p4compiler.check.conversions import check_assignable, is_constant
from fanin.p4compiler.check.expressions import ExpressionChecker
from fanin.p4compiler.check.instances import InstanceChecker
from fanin.p4compiler.check.scopes import Scopes
from fanin.p4compiler.psa import externs as psa
from fanin.p4compiler.rewrite import has_effects, map_children
from fanin.p4compiler.source import CompileError, Span, error


class StatementChecker:
    """Type checker for statements. An error in one statement does not hide errors in others.

    Errors in the program are raised as CompileError.
    """

    def __init__(self, scopes: Scopes, expressions: ExpressionChecker, instances: InstanceChecker) -> None:
        self.scopes = scopes
        self.expressions = expressions
        self.types = expressions.types
        self.conversions = expressions.conversions
        self.constants = expressions.constants
        self.calls = expressions.calls
        self.instances = instances
        # the result type of the enclosing function; None outside of functions
        self.result: types.Type | None = None
        self.loops = 0  # the number of enclosing loops

    def function_body(self, nodes_: tuple[nodes.Statement, ...], result: types.Type) -> tuple[ir.Stmt, ...]:
        """Check the statements of a function that returns `result`."""
        self.result = result
        try:
            return self.statements(nodes_)
        finally:
            self.result = None

    def action_body(self, nodes_: tuple[nodes.Statement, ...]) -> tuple[ir.Stmt, ...]:
        """Check the statements of an action."""
        self.calls.inside = "an action"
        try:
            return self.statements(nodes_)
        finally:
            self.calls.inside = ""

    def statements(self, nodes_: tuple[nodes.Statement, ...]) -> tuple[ir.Stmt, ...]:
        """Check statements in a new scope."""
        result: list[ir.Stmt] = []
        with self.scopes.nested():
            for node in nodes_:
                try:
                    result += self.statement(node)
                except CompileError as failure:
                    self.scopes.reporter.add(failure)
                    self.define_for_recovery(node)
        return tuple(result)

    def define_for_recovery(self, node: nodes.Node) -> None:
        """Declare what a broken declaration would have declared, so that its uses are not reported too."""
        if isinstance(node, nodes.Declaration) and node.name not in self.scopes.current.names:
            self.scopes.broken.add(node.name)
        if isinstance(node, nodes.Variable) and node.name not in self.scopes.current.names:
            try:
                of = self.types.resolve(node.type)
            except CompileError:
                return
            self.scopes.current.names[node.name] = ir.Variable(node.name, of, node.name_span)

    def body(self, node: nodes.Statement | None) -> tuple[ir.Stmt, ...]:
        """Check a branch or block in a new scope."""
        if node is None:
            return ()
        return self.statements(node.statements if isinstance(node, nodes.Block) else (node,))

    def statement(self, node: nodes.Statement) -> list[ir.Stmt]:
        """Check one statement. A block becomes its statements."""
        match node:
            case nodes.Assignment():
                return self.assignment(node)
            case nodes.CallStatement(span, call):
                return self._call_statement(call)
            case nodes.If(span, condition, chosen, other):
                return [ir.If(span, self.condition(condition), self.body(chosen), self.body(other))]
            case nodes.For():
                return self.for_statement(node)
            case nodes.ForIn():
                return self.for_in(node)
            case nodes.Break(span) | nodes.Continue(span):
                if not self.loops:
                    word = "break" if isinstance(node, nodes.Break) else "continue"
                    hint = "a case of a switch ends by itself: leave it out" if word == "break" else None
                    raise error(span, f"{word} outside of a loop", hint)
                return [ir.Break(span) if isinstance(node, nodes.Break) else ir.Continue(span)]
            case nodes.Block():
                return list(self.body(node))
            case nodes.Variable():
                return [self.variable(node)]
            case nodes.Constant():
                self.declare_constant(node)
                return []
            case nodes.Return():
                return [self._return_(node)]
            case nodes.Exit(span):
                if self.result is not None:
                    raise error(
                        span, "exit in a function is not supported", "call it from a control or action"
                    )
                return [ir.Exit(span)]
            case nodes.Switch():
                return [self.switch(node)]
            case nodes.Instance():
                raise error(node.span, "instances are declared outside of statements", "move it before apply")

    def assignment(self, node: nodes.Assignment) -> list[ir.Stmt]:
        """Check an assignment. `target op= value` evaluates the indices of its target once."""
        if isinstance(node.target, nodes.PlusSlice):
            base, low, width = self.expressions.plus_slice_parts(node.target)
            if not isinstance(low, ir.Constant):
                return self._assign_computed_slice(node, base, low, width)
        left = self.expressions.expr(node.target)
        check_assignable(left)
        self.calls.check_returns(node.value, node.target.span)
        right = self.expressions.expr(node.value)
        before: list[ir.Stmt] = []
        if node.op:
            left = self._found_once(left, before)
            right = self.expressions.operation(node.span, node.op, left, right)
        return [*before, ir.Assign(node.span, left, self.conversions.coerce(right, left.type))]

    def _assign_computed_slice(
        self, node: nodes.Assignment, base: ir.Expr, low: ir.Expr, width: int
    ) -> list[ir.Stmt]:
        """Write `x[n +: w] = v` as `x = x & ~(mask << n) | v << n`; bits beyond the highest of x are lost."""
        check_assignable(base)
        span, before = node.span, list[ir.Stmt]()
        right = self.expressions.expr(node.value)
        base = self._found_once(base, before)
        if has_effects(low) or has_effects(right):
            low = self._kept("low", low, before)
        whole, of = types.Bits(types.width(base.type) or 0), types.Bits(width)
        bits = fold.cast(span, whole, base)
        if node.op:
            part = fold.cast(span, of, fold.binary(span, whole, ">>", bits, low))
            right = self.expressions.operation(span, node.op, part, right)
        value = self.conversions.coerce(right, of)
        if has_effects(value):
            value = self._kept("value", value, before)
        mask = ir.Constant(whole, span, (1 << width) - 1, 16)
        others = fold.unary(span, "~", fold.binary(span, whole, "<<", mask, low))
        kept = fold.binary(span, whole, "&", bits, others)
        moved = fold.binary(span, whole, "<<", fold.cast(span, whole, value), low)
        joined = fold.binary(span, whole, "|", kept, moved)
        return [*before, ir.Assign(span, base, fold.cast(span, base.type, joined))]

    def _found_once(self, place: ir.Expr, before: list[ir.Stmt]) -> ir.Expr:
        """Return the same place with indices that have side effects saved in variables."""
        if isinstance(place, ir.Element) and has_effects(place.index):
            index = self._new_variable("index", place.index.type, place.index.span)
            base = self._found_once(place.base, before)
            before.append(ir.Declare(place.index.span, index.variable, place.index))
            return ir.Element(place.type, place.span, base, index)
        return map_children(place, lambda child: self._found_once(child, before))

    def _new_variable(self, name: str, of: types.Type, span: Span) -> ir.Ref:
        return ir.Ref(of, span, ir.Variable(self.calls.names.serial(name), of, span))

    def condition(self, node: nodes.Expr) -> ir.Expr:
        """Check a condition."""
        test = self.expressions.expr(node)
        if not isinstance(test.type, types.Bool):
            text = node.span.fragment() if node.span.expansion is None else "x"
            hint = f"compare it with something: {text} != 0" if isinstance(test.type, types.Bits) else None
            self.scopes.reporter.add(error(node.span, f"a condition is a bool, not {test.type}", hint))
        return test

    # Loops

    def for_statement(self, node: nodes.For) -> list[ir.Stmt]:
        """Check `for (...; ...; ...)`."""
        with self.scopes.nested():
            first = [s for n in node.first for s in self.statement(n)]
            test = self.condition(node.condition)
            update = tuple(s for n in node.update for s in self.statement(n))
            return [*first, self._loop(node.span, test, node.body, update)]

    def for_in(self, node: nodes.ForIn) -> list[ir.Stmt]:
        """Check `for (... in values)`: the values are computed once, and each round sets the variable to the next one.

        The rounds are counted in a hidden variable, so that assignments to the loop variable do not disturb them.
        """
        span, values = node.variable.name_span, node.values
        with self.scopes.nested():
            before: list[ir.Stmt] = []
            if isinstance(values, nodes.Binary) and values.op == "..":
                low, high = self.expressions.expr(values.left), self.expressions.expr(values.right)
                variable = self.variable(node.variable).variable
                if not isinstance(variable.type, types.Bits):
                    message = f"a range is of bit<> or int<>, not of {variable.type}"
                    raise error(node.variable.type.span, message)
                first = self.conversions.coerce(low, variable.type)
                last = self._kept("last", self.conversions.coerce(high, variable.type), before)
                value = counter = self._kept("round", first, before, always=True)
            else:
                stack = self.expressions.expr(values)
                variable = self.variable(node.variable).variable
                if isinstance(stack, ir.Aggregate) and isinstance(stack.type, types.List):
                    return self._for_in_list(node, stack, variable)
                if not isinstance(stack.type, types.Stack) or not isinstance(
                    stack.type.element, types.Header
                ):
                    hint = "loop over numbers (1 .. 4) or over a header stack"
                    raise error(values.span, f"a loop over {stack.type} is not supported", hint)
                copy = self._kept("stack", stack, before)
                first, last = (ir.Constant(types.Bits(32), span, n) for n in (0, stack.type.size - 1))
                counter = self._kept("round", first, before, always=True)
                element = ir.Element(stack.type.element, values.span, copy, counter)
                value = self.conversions.coerce(element, variable.type)
            return [*before, self._rounds(node, variable, counter, last, value)]

    def _for_in_list(self, node: nodes.ForIn, values: ir.Aggregate, variable: ir.Variable) -> list[ir.Stmt]:
        """Check a loop over a list, whose elements are computed before the first round."""
        span = node.variable.name_span
        if types.width(variable.type) is None:
            raise error(node.variable.type.span, f"a loop over a list of {variable.type} is not supported")
        before: list[ir.Stmt] = []
        elements = [
            self._kept("element", self.conversions.coerce(e, variable.type), before) for e in values.elements
        ]
        number = types.Bits(32)
        counter = self._kept("round", ir.Constant(number, span, 0), before, always=True)
        value = elements[-1] if elements else ir.Constant(variable.type, span, 0)
        for position, element in reversed(list(enumerate(elements[:-1]))):
            here = ir.Constant(number, element.span, position)
            value = ir.Mux(
                variable.type,
                element.span,
                ir.Binary(types.Bool(), element.span, "==", counter, here),
                element,
                value,
            )
        loop = self._rounds(node, variable, counter, ir.Constant(number, span, len(elements) - 1), value)
        return [*before, loop] if elements else []

    def _rounds(
        self, node: nodes.ForIn, variable: ir.Variable, counter: ir.Expr, last: ir.Expr, value: ir.Expr
    ) -> ir.Loop:
        """Build a loop of rounds up to `last`, each of which sets the variable to `value`."""
        span, where = node.variable.name_span, node.values.span
        test = ir.Binary(types.Bool(), where, "<=", counter, last)
        done = ir.Binary(types.Bool(), where, "==", counter, last)
        following = ir.Binary(counter.type, span, "+", counter, ir.Constant(counter.type, span, 1))
        update = (ir.If(span, done, (ir.Break(span),), ()), ir.Assign(span, counter, following))
        return self._loop(node.span, test, node.body, update, (ir.Declare(span, variable, value),))

    def _kept(self, name: str, value: ir.Expr, before: list[ir.Stmt], *, always: bool = False) -> ir.Expr:
        """Save a value in a new variable, so that it is computed once. A constant is saved only if `always`."""
        if isinstance(value, ir.Constant) and not always:
            return value
        kept = self._new_variable(name, value.type, value.span)
        before.append(ir.Declare(value.span, kept.variable, value))
        return kept

    def _loop(
        self,
        span: Span,
        test: ir.Expr,
        body: nodes.Statement,
        update: tuple[ir.Stmt, ...],
        begin: tuple[ir.Stmt, ...] = (),
    ) -> ir.Loop:
        """Build a loop that ends when `test` fails.

        Args:
            span: The place of the loop.
            test: The condition, checked at the beginning of each round.
            body: The loop's body, not yet checked.
            update: Statements after the body.
            begin: Statements before the body.
        """
        inside = self.calls.inside
        if self.result is None:
            self.calls.inside = inside or "a loop"
        self.loops += 1
        try:
            leave = ir.If(test.span, test, (), (ir.Break(test.span),))
            return ir.Loop(span, (leave, *begin, *self.body(body)), update)
        finally:
            self.loops -= 1
            self.calls.inside = inside

    def variable(self, node: nodes.Variable) -> ir.Declare:
        """Check the declaration of a variable."""
        of = self.types.resolve(node.type)
        if isinstance(
            of,
            types.Void | types.String | types.Int | types.List | types.ExternInstance | types.BlockInstance,
        ):
            hint = f"give it a width: bit<32> {node.name}" if isinstance(of, types.Int) else None
            raise error(node.type.span, f"a variable cannot be of type {of}", hint)
        if node.initial is not None:
            self.calls.check_returns(node.initial, node.name_span)
        initial = (
            self.conversions.coerce(self.expressions.expr(node.initial), of)
            if node.initial is not None
            else None
        )
        variable = ir.Variable(node.name, of, node.name_span, annotations=node.annotations)
        self.scopes.declare(node.name, node.name_span, variable)
        return ir.Declare(node.span, variable, initial)

    def declare_constant(self, node: nodes.Constant) -> None:
        """Check and declare a constant."""
        of = self.types.resolve(node.type)
        value = self.conversions.coerce(self.expressions.expr(node.value), of)
        if not is_constant(value):
            raise error(
                node.value.span, "a constant's value must be known when compiling", "use literals and consts"
            )
        self.scopes.declare(node.name, node.name_span, value)

    def _return_(self, node: nodes.Return) -> ir.Return:
        if self.calls.inside == "a loop":
            hint = "leave the loop with break, and test a variable after it"
            raise error(node.span, "a return in a loop of an apply block is not supported", hint)
        if node.value is None:
            if self.result is not None and not isinstance(self.result, types.Void):
                raise error(node.span, f"this function returns {self.result}", "write return value;")
            return ir.Return(node.span, None)
        if self.result is None or isinstance(self.result, types.Void):
            raise error(node.value.span, "nothing is returned here", "write return;")
        return ir.Return(node.span, self.conversions.coerce(self.expressions.expr(node.value), self.result))

    # Calls for an effect

    def _call_statement(self, node: nodes.Call) -> list[ir.Stmt]:
        function = node.function
        if isinstance(function, nodes.Member):
            table = self.calls.applied_table(node)
            if table is not None:
                return [ir.ApplyTable(node.span, table)]
            instance = self.applied_block(function)
            if instance is not None:
                self.calls.check_may_apply(node.span, "a control")
                values = self.calls.block_arguments(node, instance.name, self._block_parameters(instance))
                return [ir.ApplyBlock(node.span, instance, values)]
            header = self.calls.header_method(node, function)
            if header is not None:
                if function.name == "isValid":
                    raise error(node.span, "isValid() without using its value", "remove it")
                first = node.arguments[0].value if node.arguments else None
                count = (
                    self.constants.compile_time(first, "how far a stack is moved") if first is not None else 0
                )
                return [ir.CallHeader(node.span, function.name, header, count)]
            if self.calls.size_method(node, function) is not None:
                return []
            call, result = self.calls.extern_method(node, function)
            if call.name == "packet_in.lookahead":  # only for its check of the packet's length
                variable = ir.Variable("ahead", result, node.span)
                return [ir.Declare(node.span, variable, self.expressions.expr(node))]
            statements = psa.effect(call, result, self.calls.checksum_states)
            return [call] if statements is None else statements
        self.calls.check_former(node)
        symbol = self.calls.called(function)
        if isinstance(symbol, ir.Action):
            return [
                ir.CallAction(
                    node.span,
                    symbol,
                    self.calls.block_arguments(node, symbol.name, symbol.parameters),
                )
            ]
        if isinstance(symbol, ir.Function):
            values = self.calls.block_arguments(node, symbol.name, symbol.parameters)
            return [ir.CallFunction(node.span, ir.Call(symbol.result, node.span, symbol, values))]
        if isinstance(symbol, list):
            call, _ = self.calls.extern_call(node, symbol[0].name, None, symbol, {})
            if call.name == "static_assert":
                self.calls.static_assert(call)
                return []
            return [call]
        raise error(function.span, "this cannot be called")

    def _block_parameters(self, instance: ir.Instance | ir.Variable) -> tuple[ir.Variable, ...]:
        """Return the parameters of a parser or control, taken from its type if it is itself a parameter."""
        if isinstance(instance, ir.Instance) and instance.block is not None:
            return instance.block.parameters
        assert isinstance(instance.type, types.BlockInstance)
        parameters = instance.type.block.parameters
        return tuple(ir.Variable(p.name, p.type, instance.span, p.direction) for p in parameters)

    def applied_block(self, function: nodes.Member) -> ir.Instance | ir.Variable | None:
        """Return the parser or control whose apply is called, or None. `C.apply` creates an instance."""
        if function.name != "apply":
            return None
        if isinstance(function.base, nodes.TypeExpr) and isinstance(function.base.type, nodes.NamedType):
            named = function.base.type
            block = self.scopes.lookup(named.name, named.span)
            if isinstance(block, ir.Block):
                if block.constructor:
                    hint = f"declare an instance: {block.name}(...) name;"
                    raise error(function.span, f"'{block.name}' has constructor parameters", hint)
                return self.instances.anonymous(block, named)
        if isinstance(function.base, nodes.Name):
            symbol = self.scopes.lookup(function.base.name, function.base.span, function.base.rooted)
            if isinstance(symbol, ir.Instance) and symbol.block is not None:
                return symbol
            if isinstance(symbol, ir.Variable) and isinstance(symbol.type, types.BlockInstance):
                return symbol
        return None

    # Switches

    def switch(self, node: nodes.Switch) -> ir.Stmt:
        """Check a switch over the action that ran, or over a value."""
        subject = node.subject
        if (
            isinstance(subject, nodes.Member)
            and subject.name == "action_run"
            and isinstance(subject.base, nodes.Call)
        ):
            table = self.calls.applied_table(subject.base)
            if table is not None:
                return self._switch_action(node, table)
        value = self.expressions.expr(subject)
        if not isinstance(types.scalar(value.type), types.Bits):
            raise error(subject.span, f"a switch over {value.type} is not supported")
        cases: list[tuple[tuple[ir.Expr | None, ...], tuple[ir.Stmt, ...]]] = []
        seen: dict[int, Span] = {}
        for labels, body in self.cases(node):
            known = tuple(
                None if isinstance(n, nodes.Anything) else self.constants.constant(n, value.type, "a label")
                for n in labels
            )
            for constant, label in zip(known, labels, strict=True):
                if constant is not None:
                    if constant.value in seen:
                        raise error(label.span, "duplicate label", other=seen[constant.value])
                    seen[constant.value] = label.span
            cases.append((known, self.body(body)))
        return ir.SwitchValue(node.span, value, tuple(cases))

    def _switch_action(self, node: nodes.Switch, table: ir.Table) -> ir.ApplyTable:
        cases = []
        seen: dict[ir.Action | None, Span] = {}
        for labels, body in self.cases(node):
            actions = []
            for label in labels:
                action = None
                if isinstance(label, nodes.Name):
                    symbol = self.scopes.lookup(label.name, label.span, label.rooted, "action")
                    if not isinstance(symbol, ir.Action) or all(
                        call.action is not symbol for call in table.actions
                    ):
                        hint = f"its actions are {', '.join(call.action.name for call in table.actions)}"
                        raise error(
                            label.span, f"'{label.name}' is not an action of table '{table.name}'", hint
                        )
                    action = symbol
                elif not isinstance(label, nodes.Anything):
                    raise error(label.span, "a label is an action of the table, or default")
                if action in seen:
                    raise error(label.span, "duplicate label", other=seen[action])
                seen[action] = label.span
                actions.append(action)
            cases.append((tuple(actions), self.body(body)))
        return ir.ApplyTable(node.span, table, tuple(cases))

    def cases(self, node: nodes.Switch) -> list[tuple[list[nodes.Expr], nodes.Block]]:
        """Return the cases, each with all labels that fall through to it."""
        result: list[tuple[list[nodes.Expr], nodes.Block]] = []
        labels: list[nodes.Expr] = []
        default: Span | None = None
        for case in node.cases:
            if default is not None:
                hint = "move the default to the end"
                raise error(case.label.span, "no label comes after default", hint, other=default)
            if isinstance(case.label, nodes.Anything):
                default = case.label.span
            labels.append(case.label)
            if case.body is not None:
                result.append((labels, case.body))
                labels = []
        return result
