"""Inlining of expressions: names resolved in the flat program, calls moved out, parameters bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fanin.p4compiler import fold, ir, types
from fanin.p4compiler.names import Names
from fanin.p4compiler.rewrite import (
    Path,
    children,
    has_effects,
    is_fixed,
    map_children,
    overlap,
    path,
    scoped,
    touches,
    writes,
)
from fanin.p4compiler.source import Span


@dataclass(slots=True)
class Context:
    """Context of the statements being inlined, which maps names to their meaning."""

    prefix: str
    bindings: dict[ir.Variable, ir.Expr]
    instances: dict[ir.Instance | ir.Variable, ir.Instance] = field(default_factory=dict)
    tables: dict[ir.Table, ir.Table] = field(default_factory=dict)
    value_sets: dict[ir.ValueSet, ir.ValueSet] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    in_action: bool = False
    in_parser: bool = False
    result: ir.Variable | None = None  # of the function being inlined


StatementWriter = Callable[[tuple[ir.Stmt, ...], Context], tuple[ir.Stmt, ...]]


class ValueInliner:
    """Inliner for expressions. `statements` inlines the statements of called functions."""

    def __init__(self, roots: ir.Roots, names: Names, statements: StatementWriter) -> None:
        self.roots = roots
        self.names = names
        self.statements = statements
        self.key_setup: dict[ir.Table, tuple[ir.Stmt, ...]] = {}  # statements that compute a table's key

    # Names

    def variable(self, name: str, of: types.Type, span: Span) -> ir.Variable:
        """Create a local variable with a unique name."""
        return ir.Variable(self.names.numbered(name), of, span)

    # Expressions

    def substitute(self, e: ir.Expr, context: Context) -> ir.Expr:
        """Replace the variables of an expression without calls by their meaning in this context."""
        if isinstance(e, ir.Ref):
            bound = context.bindings.get(e.variable, e)
            return ir.Ref(bound.type, e.span, bound.variable) if isinstance(bound, ir.Ref) else bound
        if isinstance(e, ir.Object):
            return ir.Object(e.type, e.span, context.instances[e.object])
        if isinstance(e, ir.TableHit):
            return ir.TableHit(e.type, e.span, context.tables[e.table])
        return map_children(e, lambda child: self.substitute(child, context))

    def value(self, e: ir.Expr, before: list[ir.Stmt], context: Context) -> ir.Expr:
        """Inline an expression, with calls and table applications moved to statements in `before`."""
        if not has_effects(e):
            return self.substitute(e, context)
        match e:
            case ir.TableHit(type=of, span=span):
                result = self.variable("hit", of, span)
                target = ir.Ref(of, span, result)
                yes, no = (ir.Assign(span, target, ir.Constant(of, span, v)) for v in (1, 0))
                before += self.key_setup.get(context.tables[e.table], ())
                before.append(ir.If(span, self.substitute(e, context), (yes,), (no,)))
                return target
            case ir.Call():
                return self.function_call(e, before, context)
            case ir.Binary(span=span, op="&&" | "||" as op, left=left, right=right):
                chosen = self.variable("tmp", e.type, span)
                target = ir.Ref(e.type, span, chosen)
                before.append(ir.Assign(span, target, self.value(left, before, context)))
                inner: list[ir.Stmt] = []
                inner.append(ir.Assign(span, target, self.value(right, inner, context)))
                condition = target if op == "&&" else fold.unary(span, "!", target)
                before.append(ir.If(span, condition, tuple(inner), ()))
                return target
            case ir.Mux(span=span, condition=condition, chosen=first, other=second):
                result = self.variable("tmp", e.type, span)
                target = ir.Ref(e.type, span, result)
                test = self.value(condition, before, context)
                branches = []
                for branch in (first, second):
                    body: list[ir.Stmt] = []
                    body.append(ir.Assign(span, target, self.value(branch, body, context)))
                    branches.append(tuple(body))
                before.append(ir.If(span, test, branches[0], branches[1]))
                return target
        operands = list(children(e))
        if isinstance(e, ir.Element):  # a place, not a value: only its index is computed
            values = iter([self.value(operand, before, context) for operand in operands])
        else:
            values = iter(self.values(operands, before, context))
        return map_children(e, lambda _: next(values))

    def values(self, operands: list[ir.Expr], before: list[ir.Stmt], context: Context) -> list[ir.Expr]:
        """Inline several expressions, evaluated from left to right."""
        result: list[ir.Expr] = []
        for position, operand in enumerate(operands):
            value = self.value(operand, before, context)
            later = any(has_effects(o) for o in operands[position + 1 :])
            if later and not isinstance(value, ir.Constant | ir.Text | ir.Aggregate):
                value = self.saved(value, before)
            result.append(value)
        return result

    def pinned(self, target: ir.Expr, before: list[ir.Stmt]) -> ir.Expr:
        """Return the same place with computed indices saved in variables, so that later writes do not move it."""
        if isinstance(target, ir.Element) and not isinstance(target.index, ir.Constant):
            index = self.saved(target.index, before)
            return ir.Element(target.type, target.span, self.pinned(target.base, before), index)
        if isinstance(target, ir.Element | ir.Field | ir.Slice):
            return map_children(target, lambda child: self.pinned(child, before))
        return target

    def saved(self, value: ir.Expr, before: list[ir.Stmt]) -> ir.Expr:
        """Save a value in a new variable."""
        target = ir.Ref(value.type, value.span, self.variable("tmp", value.type, value.span))
        before.append(ir.Assign(value.span, target, value))
        return target

    def function_call(self, e: ir.Call, before: list[ir.Stmt], context: Context) -> ir.Expr:
        """Inline a function's body into `before` and return the expression that holds its result."""
        function = e.function
        result = None if isinstance(e.type, types.Void) else self.variable("retval", e.type, e.span)
        inner = Context(
            context.prefix, {}, context.instances, in_action=True, in_parser=context.in_parser, result=result
        )
        arguments = self.arguments(directions(function.parameters), e.arguments, before, context)
        after = self.bind(function.parameters, arguments, inner, before)
        before += scoped(e.span, self.statements(function.body, inner))
        before += after
        return ir.Ref(e.type, e.span, result) if result is not None else ir.Constant(types.Bool(), e.span, 0)

    # Parameters

    def arguments(
        self,
        directions: tuple[str, ...],
        arguments: tuple[ir.Expr, ...],
        before: list[ir.Stmt],
        context: Context,
    ) -> list[ir.Expr]:
        """Inline arguments, evaluated from left to right. Left values stay left values."""
        result: list[ir.Expr] = []
        for position, (direction, argument) in enumerate(zip(directions, arguments, strict=True)):
            value = self.value(argument, before, context)
            if any(has_effects(a) for a in arguments[position + 1 :]):
                if direction in ("out", "inout"):
                    value = self.pinned(value, before)
                elif not isinstance(value, ir.Constant | ir.Text):
                    value = self.saved(value, before)
            result.append(value)
        return result

    def bind(
        self,
        parameters: tuple[ir.Variable, ...],
        arguments: list[ir.Expr],
        inner: Context,
        before: list[ir.Stmt],
        body: tuple[ir.Stmt, ...] = (),
    ) -> list[ir.Stmt]:
        """Bind parameters to their arguments: to the argument itself where that makes no difference, else to a copy.

        Args:
            parameters: The parameters.
            arguments: Their arguments, already inlined.
            inner: The context of the body, which receives the bindings.
            before: Receives the statements that copy arguments.
            body: Statements that see outer variables as well as the parameters, such as an action's body.

        Returns:
            The statements that copy results back.
        """
        # The body is not yet rewritten: its names are those of the enclosing block.
        seen = [p for p in (self.outer_path(w, inner) for w in touches(body)) if p is not None]
        changed = [p for p in (self.outer_path(w, inner) for w in writes(body)) if p is not None]
        writing = [p.direction in ("out", "inout") for p in parameters]
        written = [path(a) if is_written else None for a, is_written in zip(arguments, writing, strict=True)]
        after: list[ir.Stmt] = []
        for position, (parameter, argument) in enumerate(zip(parameters, arguments, strict=True)):
            others = [w for i, w in enumerate(written) if i != position and w is not None]
            if writing[position]:
                if _is_apart(argument, others + seen):
                    if parameter.direction == "out":
                        before += self.reset(argument)
                    inner.bindings[parameter] = argument
                else:
                    inner.bindings[parameter] = self.copied_back(parameter, argument, before, after)
            elif isinstance(argument, ir.Constant | ir.Object) or _is_apart(argument, others + changed):
                inner.bindings[parameter] = argument
            else:
                copy = self.copy_of(parameter, argument.span)
                before.append(ir.Assign(argument.span, copy, argument))
                inner.bindings[parameter] = copy
        return after

    def copied_back(
        self, parameter: ir.Variable, argument: ir.Expr, before: list[ir.Stmt], after: list[ir.Stmt]
    ) -> ir.Ref:
        """Return a variable that replaces a written parameter, and copy it to the argument in `after`."""
        argument = self.pinned(argument, before)
        copy = self.copy_of(parameter, argument.span)
        if parameter.direction == "inout":
            before.append(ir.Assign(argument.span, copy, argument))
        else:
            before += self.reset(copy)
        after.append(ir.Assign(argument.span, argument, copy))
        return copy

    def copy_of(self, parameter: ir.Variable, span: Span) -> ir.Ref:
        """Create a variable that replaces a parameter."""
        variable = self.variable(parameter.name, parameter.type, parameter.span)
        return ir.Ref(parameter.type, span, variable)

    def outer_path(self, where: Path, context: Context) -> Path | None:
        """Return a place in terms of the flat program; None for a parameter or variable of the body itself."""
        variable = where[0]
        assert isinstance(variable, ir.Variable)
        bound = context.bindings.get(variable)
        if bound is None:
            return where if variable in self.roots else None
        outer = path(bound)
        return None if outer is None else (*outer, *where[1:])

    def reset(self, target: ir.Expr) -> list[ir.Stmt]:
        """Return statements that make all headers in a new variable invalid."""
        match target.type:
            case types.Header():
                return [ir.CallHeader(target.span, "setInvalid", target)]
            case types.Struct(fields=fields) | types.Tuple(fields=fields) | types.Union(fields=fields):
                inner = [self.reset(ir.Field(f.type, target.span, target, f.name)) for f in fields]
                return [s for statements in inner for s in statements]
            case types.Stack(element=element, size=size):
                index = [ir.Constant(types.Bits(32), target.span, i) for i in range(size)]
                elements = [self.reset(ir.Element(element, target.span, target, i)) for i in index]
                return [s for statements in elements for s in statements]
        return []


def _is_apart(argument: ir.Expr, others: list[Path]) -> bool:
    """Return whether the argument is a place known at compile time that overlaps none of the others."""
    place = path(argument)
    return is_fixed(argument) and place is not None and not any(overlap(place, other) for other in others)


def directions(parameters: tuple[ir.Variable, ...]) -> tuple[str, ...]:
    """Return the directions of parameters."""
    return tuple(p.direction for p in parameters)
