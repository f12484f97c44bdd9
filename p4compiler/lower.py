"""Lowering: flat blocks -> statements that BMv2 has primitives for.

Afterwards structs are handled field by field, slices are not assigned, switches over values are ifs, arguments of
externs and keys of tables are simple, and parsers use lookahead only in assignments.
"""

from __future__ import annotations

from dataclasses import replace

from fanin.p4compiler import fold, ir, types
from fanin.p4compiler.externs.registry import EXTERNS
from fanin.p4compiler.names import Names
from fanin.p4compiler.rewrite import (
    children,
    expressions,
    field_of,
    is_fixed,
    is_simple_key,
    leaves,
    map_children,
    overlap,
    path,
    reads,
    same,
    walk,
)
from fanin.p4compiler.source import Span, error


def lower(program: ir.FlatProgram) -> ir.FlatProgram:
    """Lower a program.

    Raises:
        CompileError: If the target does not support it.
    """
    names = Names()
    blocks = {
        role: _Lowerer(names, simple=role in ir.PIPELINES).block(block)
        for role, block in program.blocks.items()
    }
    return replace(program, blocks=blocks)


# The deepest expression in the JSON: json and the switch's reader call themselves for each level.
MAX_DEPTH = 60


def _element(stack: ir.Expr, index: int) -> ir.Expr:
    """Build an access to a stack element. An aggregate yields the element itself."""
    if isinstance(stack, ir.Aggregate):
        return stack.elements[index]
    assert isinstance(stack.type, types.Stack)
    place = ir.Constant(types.Bits(32), stack.span, index)
    return ir.Element(stack.type.element, stack.span, stack, place)


class _Lowerer:
    def __init__(self, names: Names, simple: bool) -> None:
        self.names = names
        self.simple = simple  # whether extern arguments must be simple (in actions)
        self.data: tuple[ir.Variable, ...] = ()  # of the action being lowered
        self.actions: dict[ir.Action, ir.Action] = {}
        # Applied tables, and the statements before each application. Keys of other tables are not lowered.
        self.tables: dict[ir.Table, ir.Table] = {}
        self.keys: dict[ir.Table, tuple[ir.Stmt, ...]] = {}
        self.depths: dict[ir.Expr, int] = {}  # of expressions with operands, as far as they are lowered

    def block(self, block: ir.Block) -> ir.Block:
        for action in block.actions:
            self.data = action.parameters
            self.actions[action] = replace(action, body=self.statements(action.body))
        self.data = ()
        states = tuple(map(self.state, block.states))
        body = self.statements(block.body)
        return replace(block, declared=tuple(map(self.declaration, block.declared)), body=body, states=states)

    def state(self, state: ir.State) -> ir.State:
        before: list[ir.Stmt] = []
        subjects = tuple(self.simple_value(self.expr(s, before), before) for s in state.subjects)
        return replace(state, subjects=subjects, body=(*self.statements(state.body), *before))

    def declaration(self, declared: ir.Declared) -> ir.Declared:
        match declared:
            case ir.Action():
                return self.actions[declared]
            case ir.Table():
                return self.tables.get(declared) or self.table(declared, declared.key)
        return declared

    def table(self, table: ir.Table, key: tuple[ir.KeyElement, ...]) -> ir.Table:
        """Return the table with this key and the lowered actions."""
        entries = table.entries
        if entries is not None:
            entries = tuple(replace(e, call=self.action_call(e.call)) for e in entries)
        actions = tuple(map(self.action_call, table.actions))
        return replace(
            table, key=key, actions=actions, default=self.action_call(table.default), entries=entries
        )

    def action_call(self, call: ir.ActionCall) -> ir.ActionCall:
        return replace(call, action=self.actions[call.action])

    def variable(self, name: str, of: types.Type, span: Span) -> ir.Ref:
        """Create a variable."""
        return ir.Ref(of, span, ir.Variable(self.names.serial(name), of, span))

    # Expressions

    def expr(self, e: ir.Expr, before: list[ir.Stmt]) -> ir.Expr:
        """Rewrite an expression in terms of scalars, with preceding statements added to `before`."""
        match e:
            case ir.Ref() | ir.Constant() | ir.Text():
                return e
            case ir.Binary(op="==" | "!=" as op, left=left, right=right, span=span):
                if not _is_scalar(left.type):
                    same = self.equal(span, self.expr(left, before), self.expr(right, before))
                    return same if op == "==" else fold.unary(span, "!", same)
            case ir.TableHit(type=of, span=span, table=table):
                return ir.TableHit(of, span, self.applied(table, before))
            case ir.Lookahead():
                return self.lookahead(e, before)
            case ir.Field(base=ir.Lookahead() as base, name=name, type=of):
                position = [f.name for f in _fields(base.type)].index(name)
                return field_of(self.expr(base, before), name, of, position)
            case ir.Field(base=ir.Mux() as base, name=name, type=of):
                position = [f.name for f in _fields(base.type)].index(name)
                return self.expr(field_of(base, name, of, position), before)
        return self.shallow(map_children(e, lambda child: self.expr(child, before)), before)

    def shallow(self, e: ir.Expr, before: list[ir.Stmt]) -> ir.Expr:
        """Return the expression with operands that are nested too deeply computed beforehand, in variables."""
        depth = 1 + max((self.depths.get(child, 0) for child in children(e)), default=0)
        if depth > MAX_DEPTH:
            e = map_children(e, lambda child: self.early(child, before))
            depth = 1
        self.depths[e] = depth
        return e

    def early(self, e: ir.Expr, before: list[ir.Stmt]) -> ir.Expr:
        """Return a variable that holds a number; anything else is returned unchanged."""
        if self.depths.get(e, 0) < MAX_DEPTH or not _is_scalar(e.type) or isinstance(e.type, types.Int):
            return e
        variable = self.variable("tmp", e.type, e.span)
        before.append(ir.Assign(e.span, variable, e))
        return variable

    def equal(self, span: Span, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        """Build a comparison. Structs, headers and stacks are compared part by part."""
        boolean = types.Bool()
        match left.type:
            case types.Header(fields=fields):
                if isinstance(left, ir.Aggregate | ir.Invalid):
                    left, right = right, left
                if isinstance(right, ir.Invalid):
                    return fold.unary(span, "!", ir.IsValid(boolean, span, left))
                parts = [
                    self.equal(span, field_of(left, f.name, f.type, i), field_of(right, f.name, f.type, i))
                    for i, f in enumerate(fields)
                ]
                first = ir.IsValid(boolean, span, left)
                if isinstance(right, ir.Aggregate):
                    return _all(span, [first, *parts])
                second = ir.IsValid(boolean, span, right)
                none = _all(span, [fold.unary(span, "!", valid) for valid in (first, second)])
                return fold.binary(span, boolean, "||", none, _all(span, [first, second, *parts]))
            case types.Stack(size=size):
                pairs = [(_element(left, i), _element(right, i)) for i in range(size)]
            case types.Struct() | types.Tuple():
                pairs = list(zip(leaves(left), leaves(right), strict=True))
            case _ if _is_scalar(left.type):
                return fold.binary(span, boolean, "==", left, right)
            case _:
                raise error(span, f"comparing values of type {left.type} is not supported")
        return _all(span, [self.equal(span, a, b) for a, b in pairs])

    def lookahead(self, e: ir.Lookahead, before: list[ir.Stmt]) -> ir.Expr:
        """Save the bits ahead in a variable, and cut the fields of a header or struct out of it."""
        total = _total_width(e.type)
        if total is None or total == 0:
            raise error(e.span, f"lookahead of {e.type} is not supported")
        bits = types.Bits(total)
        variable = self.variable("lookahead", bits, e.span)
        before.append(ir.Assign(e.span, variable, ir.Lookahead(bits, e.span)))
        return _cut(e.span, e.type, variable, [total])

    def simple_value(self, e: ir.Expr, before: list[ir.Stmt]) -> ir.Expr:
        """Return the expression if it is a constant or a field, else a variable that holds it."""
        match e:
            case ir.Constant() | ir.Text() | ir.Ref() | ir.Field() | ir.Element():
                return e
            case ir.StackPart() if e.part != "lastIndex":
                return e
            case ir.Aggregate(type=of, span=span, elements=elements):
                return ir.Aggregate(of, span, tuple(self.listed(x, before) for x in elements))
        variable = self.variable("tmp", e.type, e.span)
        before.append(ir.Assign(e.span, variable, e))
        return variable

    def listed(self, e: ir.Expr, before: list[ir.Stmt]) -> ir.Expr:
        """Return a simple value for an element of a list, where BMv2 does not accept action data."""
        if isinstance(e, ir.Ref) and e.variable in self.data:
            return self.held(e, before)
        return self.simple_value(e, before)

    def in_variables(self, e: ir.Expr, before: list[ir.Stmt]) -> ir.Expr:
        """Return the data of a digest in variables where it is no field, because the switch sends only fields."""
        if isinstance(e, ir.Aggregate):
            return ir.Aggregate(e.type, e.span, tuple(self.in_variables(x, before) for x in e.elements))
        if isinstance(e, ir.Ref) and e.variable in self.data:
            return self.held(e, before)
        if not isinstance(e, ir.Constant) or types.width(e.type) is None:
            return e
        variable = self.variable("tmp", e.type, e.span)
        before.append(ir.Assign(e.span, variable, e))
        return variable

    # Statements

    def statements(self, statements: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
        result: list[ir.Stmt] = []
        for s in statements:
            self.statement(s, result)
        return tuple(result)

    def statement(self, s: ir.Stmt, out: list[ir.Stmt]) -> None:
        union = next((u for e in expressions(s) if (u := _computed_union(e))), None) if self.simple else None
        if union is not None:
            self.at_each_index(s, union, out)
            return
        match s:
            case ir.Assign(span=span, target=target, value=value):
                self.assign(span, self.expr(target, out), self.expr(value, out), out)
            case ir.If(span=span, condition=condition, chosen=chosen, other=other):
                test = self.expr(condition, out)
                yes, no = self.statements(chosen), self.statements(other)
                if isinstance(test, ir.Constant):
                    out += yes if test.value else no
                elif yes or no or _is_hit(test):
                    out.append(ir.If(span, test, yes, no))
            case ir.Scope(span=span, body=body):
                out.append(ir.Scope(span, self.statements(body)))
            case ir.Loop(span=span, body=body, update=update):
                out.append(ir.Loop(span, self.statements(body), self.statements(update)))
            case ir.ApplyTable(span=span, table=table, cases=cases):
                applied = self.applied(table, out)
                new = tuple(
                    (tuple(a and self.actions[a] for a in labels), self.statements(body))
                    for labels, body in cases
                )
                out.append(ir.ApplyTable(span, applied, new))
            case ir.CallAction(span=span, action=action):
                out.append(ir.CallAction(span, self.actions[action], ()))
            case ir.SwitchValue():
                self.switch(s, out)
            case ir.CallExtern():
                self.call_extern(s, out)
            case ir.CallHeader(span=span, method=method, header=header, count=count):
                new_header = self.expr(header, out)
                out.append(ir.CallHeader(span, method, new_header, count))
            case _:
                out.append(s)

    def at_each_index(self, s: ir.Stmt, union: ir.Element, out: list[ir.Stmt]) -> None:
        """Divide a statement into one for each index of a stack of unions, where BMv2 knows only constant indices.

        Nothing happens if the index is none of the stack's; a condition is then false, and a number 0.
        """
        match s:
            case ir.If(condition=condition):
                return self.statement(replace(s, condition=self.held_at_each_index(condition, out)), out)
            case ir.SwitchValue(subject=subject):
                return self.statement(replace(s, subject=self.held_at_each_index(subject, out)), out)
        index = self.simple_value(self.expr(union.index, out), out)
        assert isinstance(union.base.type, types.Stack)
        divided: tuple[ir.Stmt, ...] = ()
        for number in reversed(range(min(union.base.type.size, 1 << (types.width(index.type) or 0)))):
            here = ir.Constant(index.type, index.span, number)

            def fixed(e: ir.Expr, here: ir.Expr = here) -> ir.Expr:
                if same(e, union):
                    return ir.Element(e.type, e.span, union.base, here)
                return map_children(e, lambda child: fixed(child, here))

            one: ir.Stmt
            match s:
                case ir.Assign(span=span, target=target, value=value):
                    one = ir.Assign(span, fixed(target), fixed(value))
                case ir.CallHeader(header=header):
                    one = replace(s, header=fixed(header))
                case ir.CallExtern(arguments=arguments):
                    one = replace(s, arguments=tuple(map(fixed, arguments)))
                case _:
                    raise error(
                        union.span, "a header union cannot have a computed index here", "use a variable"
                    )
            test = fold.binary(s.span, types.Bool(), "==", index, here)
            divided = (ir.If(s.span, test, self.statements((one,)), divided),)
        out += divided
        return None

    def held_at_each_index(self, e: ir.Expr, out: list[ir.Stmt]) -> ir.Expr:
        """Return a variable that holds a value with a union at a computed index in it."""
        variable = self.variable("tmp", e.type, e.span)
        out.append(ir.Assign(e.span, variable, ir.Constant(e.type, e.span, 0)))
        self.statement(ir.Assign(e.span, variable, e), out)
        return variable

    def assign(self, span: Span, target: ir.Expr, value: ir.Expr, out: list[ir.Stmt]) -> None:
        of = target.type
        if isinstance(target, ir.Slice):
            self.assign_slice(span, target, value, out)
        elif isinstance(value, ir.Invalid):
            out.append(ir.CallHeader(span, "setInvalid", target))
        elif isinstance(of, types.Header) and not isinstance(value, ir.Aggregate | ir.Mux):
            out.append(ir.Assign(span, target, value))
        elif isinstance(of, types.Struct | types.Tuple | types.Header) or (
            isinstance(of, types.Stack) and isinstance(value, ir.Aggregate)
        ):
            self.assign_parts(span, target, value, out)
        elif isinstance(of, types.Union) and is_fixed(target) and is_fixed(value):
            for f in of.fields:  # BMv2's assign_union loses the values
                to, member = (ir.Field(f.type, e.span, e, f.name) for e in (target, value))
                self.assign(span, to, member, out)
        elif isinstance(of, types.Stack) and isinstance(of.element, types.Union):
            for i in range(of.size):
                self.assign(span, _element(target, i), _element(value, i), out)
        else:
            out.append(ir.Assign(span, target, value))

    def assign_parts(self, span: Span, target: ir.Expr, value: ir.Expr, out: list[ir.Stmt]) -> None:
        """Assign part by part: a struct, or a header or stack that is an aggregate."""
        of = target.type
        if isinstance(of, types.Header) and isinstance(value, ir.Mux):
            branches = []
            for branch in (value.chosen, value.other):
                body: list[ir.Stmt] = []
                self.assign(span, target, branch, body)
                branches.append(tuple(body))
            out.append(ir.If(span, value.condition, branches[0], branches[1]))
            return
        parts: list[tuple[ir.Expr, ir.Expr]]
        if isinstance(of, types.Stack):
            parts = [(_element(target, i), _element(value, i)) for i in range(of.size)]
        else:
            parts = [
                (ir.Field(f.type, target.span, target, f.name), field_of(value, f.name, f.type, i))
                for i, f in enumerate(_fields(of))
            ]
        where = path(target)
        if not isinstance(value, ir.Field | ir.Ref) and where is not None:
            # `{ a, b } = { b, a }` reads everything before it writes anything.
            shared = any(overlap(where, read) for _, v in parts for read in reads(v))
            if shared:
                parts = [(t, self.held(v, out)) for t, v in parts]
        if isinstance(of, types.Header):
            out.append(ir.CallHeader(span, "setValid", target))
        for part, part_value in parts:
            self.assign(span, part, part_value, out)

    def held(self, value: ir.Expr, out: list[ir.Stmt]) -> ir.Expr:
        if isinstance(value, ir.Constant):
            return value
        variable = self.variable("tmp", value.type, value.span)
        self.assign(value.span, variable, value, out)
        return variable

    def assign_slice(self, span: Span, target: ir.Slice, value: ir.Expr, out: list[ir.Stmt]) -> None:
        """Assign `x[h:l] = v` as `x = x & ~mask | v << l`."""
        base = target.base
        if isinstance(base, ir.Slice):
            inner = ir.Slice(target.type, span, base.base, base.low + target.high, base.low + target.low)
            self.assign_slice(span, inner, value, out)
            return
        bits = types.scalar(base.type)
        assert isinstance(bits, types.Bits)
        whole = types.Bits(bits.width)
        mask = ((1 << (target.high - target.low + 1)) - 1) << target.low
        kept = fold.binary(
            span,
            whole,
            "&",
            fold.cast(span, whole, base),
            ir.Constant(whole, span, ~mask & ((1 << bits.width) - 1), 16),
        )
        wide = fold.cast(span, whole, value)
        shift = ir.Constant(types.Int(), span, target.low)
        moved = fold.binary(span, whole, "<<", wide, shift) if target.low else wide
        joined = fold.binary(span, whole, "|", kept, moved)
        out.append(ir.Assign(span, base, fold.cast(span, base.type, joined)))

    def switch(self, s: ir.SwitchValue, out: list[ir.Stmt]) -> None:
        subject = self.simple_value(self.expr(s.subject, out), out)
        if not isinstance(subject, ir.Constant):
            variable = self.variable("switch", subject.type, s.span)
            out.append(ir.Assign(s.span, variable, subject))
            subject = variable
        boolean = types.Bool()
        rest: tuple[ir.Stmt, ...] = ()
        for labels, body in s.cases:
            if None in labels:
                rest = self.statements(body)
        for labels, body in reversed(s.cases):
            tests = [
                fold.binary(s.span, boolean, "==", subject, label) for label in labels if label is not None
            ]
            if tests and None not in labels:
                test = tests[0]
                for other in tests[1:]:
                    test = fold.binary(s.span, boolean, "||", test, other)
                rest = (ir.If(s.span, test, self.statements(body), rest),)
        out += rest

    def call_extern(self, s: ir.CallExtern, out: list[ir.Stmt]) -> None:
        arguments: list[ir.Expr] = []
        after: list[ir.Stmt] = []
        extern = EXTERNS.get(s.name)
        simple = self.simple and not (extern is not None and extern.takes_expressions)
        for argument, direction in zip(s.arguments, s.directions, strict=True):
            if direction in ("out", "inout"):
                target = self.expr(argument, out)
                if isinstance(target, ir.Slice):
                    variable = self.variable("tmp", target.type, target.span)
                    if direction == "inout":
                        out.append(ir.Assign(target.span, variable, target))
                    self.assign_slice(target.span, target, variable, after)
                    target = variable
                arguments.append(target)
                continue
            value = self.expr(argument, out)
            if simple or s.name == "packet_in.advance":
                value = self.simple_value(value, out)
            if s.name == "digest" and arguments:  # the data, after the receiver
                value = self.in_variables(value, out)
            arguments.append(value)
        out.append(
            ir.CallExtern(s.span, s.name, s.instance, tuple(arguments), s.directions, s.type_arguments)
        )
        out += after

    # Tables

    def applied(self, table: ir.Table, out: list[ir.Stmt]) -> ir.Table:
        """Return the lowered table, and add the statements that compute its key to `out`."""
        if table not in self.tables:
            computed: list[ir.Stmt] = []
            key = tuple(replace(k, expr=self.key(k.expr, computed)) for k in table.key)
            self.tables[table] = self.table(table, key)
            self.keys[table] = tuple(computed)
        out += self.keys[table]
        return self.tables[table]

    def key(self, e: ir.Expr, before: list[ir.Stmt]) -> ir.Expr:
        """Return an expression that BMv2 can match on."""
        if _computed_union(e):
            return self.held_at_each_index(e, before)
        e = self.expr(e, before)
        if is_simple_key(e):
            return e
        variable = self.variable("key", e.type, e.span)
        before.append(ir.Assign(e.span, variable, e))
        return variable


def _computed_union(e: ir.Expr) -> ir.Element | None:
    """Return a header union at a computed index of a stack in an expression, or None."""
    elements = (part for part in walk(e) if isinstance(part, ir.Element))
    unions = (e for e in elements if isinstance(e.type, types.Union) and not isinstance(e.index, ir.Constant))
    return next(unions, None)


def _is_hit(condition: ir.Expr) -> bool:
    while isinstance(condition, ir.Unary):
        condition = condition.operand
    return isinstance(condition, ir.TableHit)


def _all(span: Span, parts: list[ir.Expr]) -> ir.Expr:
    """Join conditions with `&&`, as a balanced tree to limit the nesting."""
    if len(parts) <= 1:
        return parts[0] if parts else ir.Constant(types.Bool(), span, 1)
    half = len(parts) // 2
    return fold.binary(span, types.Bool(), "&&", _all(span, parts[:half]), _all(span, parts[half:]))


def _is_scalar(of: types.Type) -> bool:
    return types.width(of) is not None or isinstance(of, types.Varbit)


def _fields(of: types.Type) -> tuple[types.Field, ...]:
    assert isinstance(of, types.Fields | types.Tuple)
    return of.fields


def _total_width(of: types.Type) -> int | None:
    if isinstance(of, types.Stack):
        element = _total_width(of.element)
        return None if element is None else of.size * element
    if isinstance(of, types.Header | types.Struct | types.Tuple):
        widths = [_total_width(f.type) for f in of.fields]
        return None if None in widths else sum(w for w in widths if w is not None)
    return types.width(of)


def _cut(span: Span, of: types.Type, bits: ir.Expr, remaining: list[int]) -> ir.Expr:
    """Cut a value of type `of` from the remaining bits, highest first."""
    if isinstance(of, types.Header | types.Struct | types.Tuple | types.Stack):
        parts = (of.element,) * of.size if isinstance(of, types.Stack) else (f.type for f in of.fields)
        return ir.Aggregate(of, span, tuple(_cut(span, part, bits, remaining) for part in parts))
    width = types.width(of) or 0
    remaining[0] -= width
    whole = types.width(bits.type)
    part = bits if width == whole else fold.slice_(span, bits, remaining[0] + width - 1, remaining[0])
    return fold.cast(span, of, part)
