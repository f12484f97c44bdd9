"""Inlining: the six blocks with everything they instantiate and call -> flat blocks with the control plane's names.

Nested parsers and controls, actions called from statements, and functions are expanded where they are applied. The
architecture's headers and metadata, local variables, extern objects, actions and tables remain.
"""

from __future__ import annotations

from dataclasses import replace

from fanin.p4compiler import fold, ir, types
from fanin.p4compiler.inline.parsers import ParserInliner, tidy
from fanin.p4compiler.inline.values import Context, ValueInliner, directions
from fanin.p4compiler.names import Names
from fanin.p4compiler.nodes import Annotations, annotation_text
from fanin.p4compiler.rewrite import has_effects, scoped
from fanin.p4compiler.source import Span, error


def inline(program: ir.Program) -> ir.FlatProgram:
    """Inline everything in a program.

    Raises:
        CompileError: If the target does not support the result.
    """
    parser = program.blocks[ir.Role.PARSER].block
    assert parser is not None
    roots = ir.Roots(
        *(
            ir.Variable(name, parameter.type, parser.span)
            for name, parameter in zip(ir.Roots._fields, parser.parameters[1:], strict=True)
        )
    )
    shared = {i: replace(i, name=full_name("", i.name, i.annotations)) for i in program.instances}
    names = Names()
    blocks = {role: _Inliner(roots, shared, names).top(instance) for role, instance in program.blocks.items()}
    return ir.FlatProgram(blocks, roots, tuple(shared.values()), program)


# A few lines can apply and call more than fits into any memory: each control applies the one before twice.
MAX_STATEMENTS = 1 << 16


class _Inliner:
    def __init__(self, roots: ir.Roots, shared: dict[ir.Instance, ir.Instance], names: Names) -> None:
        self.values = ValueInliner(roots, names, self.statements)
        self.parsers = ParserInliner(self.values, self.enter)
        self.roots = roots
        self.shared = shared
        self.value_sets: list[ir.ValueSet] = []
        self.applied: set[ir.Instance] = set()
        self.made: dict[tuple[str, ir.Instance], ir.Instance] = {}
        self.specialized: dict[tuple[object, ...], ir.Action] = {}
        # Position among all declarations. Keys are objects as declared (with the path to their block), and as created.
        # Positions in an inlined block start at the position of its instance.
        self.places: dict[object, tuple[int, ...]] = {}
        self.declared: list[ir.Declared] = []
        self.count = 0  # of statements

    def top(self, instance: ir.Instance) -> ir.Block:
        block = instance.block
        assert block is not None
        bindings: dict[ir.Variable, ir.Expr] = {}
        rest = iter(self.roots)
        for parameter in block.parameters:
            if not isinstance(parameter.type, types.ExternInstance):
                bindings[parameter] = ir.Ref(parameter.type, parameter.span, next(rest))
        body = self.enter(instance, block.name, bindings, {})  # as in p4c, whatever its @name
        states = tidy(self.parsers.states)
        named = {k.value_set for state in states for case in state.cases for k in case.keys}
        return ir.Block(
            block.kind,
            block.name,
            block.parameters,
            (),
            block.span,
            block.annotations,
            tuple(sorted(self.declared, key=self.places.__getitem__)),
            tuple(v for v in self.value_sets if v in named),
            (),
            scoped(block.span, body),
            tuple(states),
        )

    def enter(
        self,
        instance: ir.Instance,
        prefix: str,
        bindings: dict[ir.Variable, ir.Expr],
        states: dict[str, str],
    ) -> tuple[ir.Stmt, ...]:
        """Inline a block: add its objects to the flat block, and its states if it is a parser.

        Args:
            instance: The parser or control.
            prefix: The prefix of the control plane's names.
            bindings: The values of parameters.
            states: New names of a parser's states.

        Returns:
            The statements of a control.
        """
        block = instance.block
        assert block is not None
        bindings = bindings | dict(zip(block.constructor, instance.arguments, strict=True))
        given = {v: b.object for v, b in bindings.items() if isinstance(b, ir.Object)}
        objects = {v: i for v, i in given.items() if isinstance(i, ir.Instance)}
        context = Context(
            prefix, bindings, self.shared | objects, in_parser=block.kind == "parser", states=states
        )
        place = self.places.get(instance, ())
        self.places |= {
            (prefix, declared): (*place, number) for number, declared in enumerate(block.declared)
        }
        for inner in block.instances:
            if (prefix, inner) not in self.made:
                self.made[prefix, inner] = self.make(inner, context)
            context.instances[inner] = self.made[prefix, inner]
        for old in block.value_sets:
            context.value_sets[old] = replace(old, name=full_name(prefix, old.name, old.annotations))
            self.value_sets.append(context.value_sets[old])
        prologue = self.statements(block.prologue, context)
        if block.kind == "parser":
            self.parsers.parser_states(block, prologue, context)
            return ()
        for table in block.tables:
            context.tables[table] = self.table(table, context)
        return (*prologue, *self.statements(block.body, context))

    def make(self, inner: ir.Instance, context: Context) -> ir.Instance:
        """Create an object that a block declares. A block applied in two places has it only once."""
        arguments = tuple(self.values.substitute(a, context) for a in inner.arguments)
        for argument in arguments:
            if not isinstance(argument, ir.Constant | ir.Text | ir.Object):
                raise error(argument.span, "a constructor's argument must be known when compiling")
        name = full_name(context.prefix, inner.name, inner.annotations)
        made = replace(inner, name=name, arguments=arguments)
        self.places[made] = self.places[context.prefix, inner]
        if inner.block is None:
            self.declared.append(made)
        return made

    # Statements

    def statements(self, statements: tuple[ir.Stmt, ...], context: Context) -> tuple[ir.Stmt, ...]:
        result: list[ir.Stmt] = []
        for s in statements:
            self.statement(s, result, context)
        return tuple(result)

    def statement(self, s: ir.Stmt, out: list[ir.Stmt], context: Context) -> None:
        self.count += 1
        if self.count > MAX_STATEMENTS:
            raise error(
                s.span,
                f"the program has more than {MAX_STATEMENTS:,} statements where it is applied and called",
                "apply and call less: each place gets a copy of its own",
            )
        match s:
            case ir.Assign(span=span, target=target, value=value):
                new_target = self.values.value(target, out, context)
                if has_effects(value):
                    new_target = self.values.pinned(new_target, out)
                out.append(ir.Assign(span, new_target, self.values.value(value, out, context)))
            case ir.Declare(span=span, variable=variable, initial=initial):
                first = self.values.value(initial, out, context) if initial is not None else None
                made = self.values.variable(variable.name, variable.type, variable.span)
                target = ir.Ref(made.type, variable.span, made)
                context.bindings[variable] = target
                if first is not None:
                    out.append(ir.Assign(span, target, first))
                else:
                    out += self.values.reset(target)
            case ir.CallExtern(span=span, name=name, arguments=arguments):
                values = tuple(self.values.arguments(s.directions, arguments, out, context))
                instance = context.instances[s.instance] if s.instance is not None else None
                out.append(ir.CallExtern(span, name, instance, values, s.directions, s.type_arguments))
            case ir.CallHeader(span=span, method=method, header=header, count=count):
                out.append(ir.CallHeader(span, method, self.values.value(header, out, context), count))
            case ir.If():
                self.if_statement(s, out, context)
            case ir.ApplyTable(span=span, table=table, cases=cases):
                self.apply_table(span, table, cases, out, context)
            case ir.SwitchValue(span=span, subject=subject, cases=value_cases):
                test = self.values.value(subject, out, context)
                new_cases = tuple((labels, self.statements(body, context)) for labels, body in value_cases)
                out.append(ir.SwitchValue(span, test, new_cases))
            case ir.CallAction():
                self.call_action(s, out, context)
            case ir.CallFunction(call=call):
                self.values.function_call(call, out, context)
            case ir.ApplyBlock():
                self.apply_block(s, out, context)
            case ir.Return(span=span, value=value):
                if value is not None:
                    assert context.result is not None
                    result = ir.Ref(context.result.type, span, context.result)
                    out.append(ir.Assign(span, result, self.values.value(value, out, context)))
                out.append(ir.Return(span, None))
            case ir.Scope(span=span, body=body):
                out += scoped(span, self.statements(body, context))
            case ir.Loop(span=span, body=body, update=update):
                if context.in_parser:
                    raise error(span, "a loop in a parser is not supported", "write it with states")
                # It becomes part of an action, and so do the actions that it calls.
                inner = replace(context, in_action=True)
                out.append(ir.Loop(span, self.statements(body, inner), self.statements(update, inner)))
            case ir.Break() | ir.Continue():
                out.append(s)
            case ir.Exit():
                if context.in_parser:
                    raise error(s.span, "exit in a parser", "use a transition")
                out.append(s)

    def if_statement(self, s: ir.If, out: list[ir.Stmt], context: Context) -> None:
        condition, negated = s.condition, False
        while isinstance(condition, ir.Unary):
            condition, negated = condition.operand, not negated
        if isinstance(condition, ir.TableHit):
            out += self.values.key_setup.get(context.tables[condition.table], ())
            test = self.values.substitute(condition, context)
            if negated:
                test = fold.unary(s.condition.span, "!", test)
        else:
            test = self.values.value(s.condition, out, context)
        if isinstance(test, ir.Constant):
            out += self.statements(s.chosen if test.value else s.other, context)
            return
        chosen, other = self.statements(s.chosen, context), self.statements(s.other, context)
        out.append(ir.If(s.span, test, chosen, other))

    def apply_table(
        self,
        span: Span,
        table: ir.Table,
        cases: tuple[tuple[tuple[ir.Action | None, ...], tuple[ir.Stmt, ...]], ...],
        out: list[ir.Stmt],
        context: Context,
    ) -> None:
        new = context.tables[table]
        actions: dict[ir.Action | None, ir.Action | None] = {None: None}
        actions |= {a.action: b.action for a, b in zip(table.actions, new.actions, strict=True)}
        mapped = tuple(
            (tuple(actions[label] for label in labels), self.statements(body, context))
            for labels, body in cases
        )
        out += self.values.key_setup.get(new, ())
        out.append(ir.ApplyTable(span, new, mapped))

    def call_action(self, s: ir.CallAction, out: list[ir.Stmt], context: Context) -> None:
        arguments = self.values.arguments(directions(s.action.parameters), s.arguments, out, context)
        inner = Context(
            context.prefix, dict(context.bindings), context.instances, context.tables, in_action=True
        )
        after = self.values.bind(s.action.parameters, arguments, inner, out, s.action.body)
        body = scoped(s.span, self.statements(s.action.body, inner))
        if context.in_action:
            out += body
        else:
            action = self.add_action(s.action, (), body, context.prefix)
            out.append(ir.CallAction(s.span, action, ()))
        out += after

    def apply_block(self, s: ir.ApplyBlock, out: list[ir.Stmt], context: Context) -> None:
        instance = context.instances[s.instance]
        block = instance.block
        assert block is not None
        if block.kind == "parser":
            self.parsers.apply_parser(s, instance, out, context)
            return
        if instance in self.applied and block.tables:
            hint = "apply a second instance of it there"
            raise error(s.span, f"'{s.instance.name}' is applied at more than one place", hint)
        self.applied.add(instance)
        arguments = self.values.arguments(directions(block.parameters), s.arguments, out, context)
        inner = Context("", {})
        after = self.values.bind(block.parameters, arguments, inner, out)
        out += scoped(s.span, self.enter(instance, instance.name, inner.bindings, {}))
        out += after

    # Actions and tables

    def add_action(
        self, action: ir.Action, parameters: tuple[ir.Variable, ...], body: tuple[ir.Stmt, ...], prefix: str
    ) -> ir.Action:
        # An action of the top level belongs to no control and keeps its name.
        name = full_name("" if action.top_level else prefix, action.name, action.annotations)
        made = replace(action, name=name, parameters=parameters, body=body)
        self.places[made] = (-1,) if action.top_level else self.places[prefix, action]
        self.declared.append(made)
        return made

    def table(self, table: ir.Table, context: Context) -> ir.Table:
        setup: list[ir.Stmt] = []
        calls = [self.table_action(call, setup, context) for call in table.actions]
        actions = {old.action: new.action for old, new in zip(table.actions, calls, strict=True)}
        key = []
        for element in table.key:
            expr = self.values.value(element.expr, setup, context)
            key.append(replace(element, expr=expr))
        size = self.values.substitute(table.size, context) if table.size is not None else None
        entries = None
        if table.entries is not None:
            entries = tuple(replace(e, call=self.bound(e.call, actions)) for e in table.entries)
        counters, meters, implementation = (
            context.instances[i] if i is not None else None
            for i in (table.counters, table.meters, table.implementation)
        )
        made = replace(
            table,
            name=full_name(context.prefix, table.name, table.annotations),
            key=tuple(key),
            actions=tuple(calls),
            default=self.bound(table.default, actions),
            entries=entries,
            size=size,
            counters=counters,
            meters=meters,
            implementation=implementation,
        )
        self.places[made] = self.places[context.prefix, table]
        self.declared.append(made)
        if setup:
            self.values.key_setup[made] = tuple(setup)
        return made

    def bound(self, call: ir.ActionCall, actions: dict[ir.Action, ir.Action]) -> ir.ActionCall:
        return replace(call, action=actions[call.action])

    def table_action(self, call: ir.ActionCall, setup: list[ir.Stmt], context: Context) -> ir.ActionCall:
        """Return the action that a table calls, with bound parameters removed. Entries set the others."""
        action = call.action
        directed = tuple(p.direction for p in action.parameters if p.direction)
        arguments = self.values.arguments(directed, call.arguments, setup, context)
        key = (action, *(id(a) for a in arguments), context.prefix)
        if key not in self.specialized:
            self.specialized[key] = self.specialize(action, arguments, context)
        return ir.ActionCall(self.specialized[key], (), call.span, call.annotations)

    def specialize(self, action: ir.Action, arguments: list[ir.Expr], context: Context) -> ir.Action:
        directed = tuple(p for p in action.parameters if p.direction)
        data = tuple(p for p in action.parameters if not p.direction)
        inner = Context(
            context.prefix, dict(context.bindings), context.instances, context.tables, in_action=True
        )
        before: list[ir.Stmt] = []
        after = self.values.bind(directed, arguments, inner, before, action.body)
        body = (*before, *scoped(action.span, self.statements(action.body, inner)), *after)
        return self.add_action(action, data, body, context.prefix)


def full_name(prefix: str, name: str, annotations: Annotations) -> str:
    """Return the control plane's name of an object: prefix and name. @name replaces the name, or all after a dot."""
    given = annotation_text(annotations, "name")
    if given is not None and given.startswith("."):
        return given[1:]
    return f"{prefix}.{given or name}" if prefix else given or name
