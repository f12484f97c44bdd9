"""Tools for phases that rewrite the typed program: mapping over expressions, and the places statements access."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields

from fanin.p4compiler import fold, ir, types
from fanin.p4compiler.source import Span

Path = tuple[object, ...]  # a variable, then names of fields and numbers of elements


def map_children(e: ir.Expr, f: Callable[[ir.Expr], ir.Expr]) -> ir.Expr:
    """Return the expression with `f` applied to its operands and constants folded; itself if nothing changed."""
    match e:
        case (
            ir.Ref() | ir.Object() | ir.Constant() | ir.Text() | ir.Lookahead() | ir.Invalid() | ir.TableHit()
        ):
            return e
        case ir.Field(type=of, span=span, base=base, name=name):
            new = f(base)
            return e if new is base else ir.Field(of, span, new, name)
        case ir.Binary(type=of, span=span, op=op, left=left, right=right):
            a, b = f(left), f(right)
            return e if a is left and b is right else fold.binary(span, of, op, a, b)
        case ir.Cast(type=of, span=span, operand=operand):
            new = f(operand)
            return e if new is operand else fold.cast(span, of, new)
        case ir.Unary(span=span, op=op, operand=operand):
            new = f(operand)
            return e if new is operand else fold.unary(span, op, new)
        case ir.Slice(span=span, base=base, high=high, low=low):
            new = f(base)
            return e if new is base else fold.slice_(span, new, high, low)
        case ir.Mux(span=span, condition=condition, chosen=chosen, other=other):
            c, a, b = f(condition), f(chosen), f(other)
            return e if c is condition and a is chosen and b is other else fold.mux(span, c, a, b)
        case ir.Element(type=of, span=span, base=base, index=index):
            a, b = f(base), f(index)
            return e if a is base and b is index else ir.Element(of, span, a, b)
        case ir.StackPart(type=of, span=span, base=base, part=part):
            return ir.StackPart(of, span, f(base), part)
        case ir.IsValid(type=of, span=span, header=header):
            new = f(header)
            return e if new is header else ir.IsValid(of, span, new)
        case ir.Aggregate(type=of, span=span, elements=elements):
            return ir.Aggregate(of, span, tuple(map(f, elements)))
        case ir.Call(type=of, span=span, function=function, arguments=arguments):
            return ir.Call(of, span, function, tuple(map(f, arguments)))


def children(e: ir.Expr) -> tuple[ir.Expr, ...]:
    """Return the operands of an expression."""
    match e:
        case ir.Field(base=base) | ir.Slice(base=base) | ir.StackPart(base=base):
            return (base,)
        case ir.Binary(left=left, right=right):
            return (left, right)
        case ir.Cast(operand=operand) | ir.Unary(operand=operand):
            return (operand,)
        case ir.Mux(condition=condition, chosen=chosen, other=other):
            return (condition, chosen, other)
        case ir.Element(base=base, index=index):
            return (base, index)
        case ir.IsValid(header=header):
            return (header,)
        case ir.Aggregate(elements=elements):
            return elements
        case ir.Call(arguments=arguments):
            return arguments
    return ()


def leaves(e: ir.Expr) -> list[ir.Expr]:
    """Return a struct's innermost fields: scalars, headers and stacks. Anything else is returned alone."""
    match e.type:
        case types.Struct(fields=fields) | types.Tuple(fields=fields):
            inner = [leaves(field_of(e, f.name, f.type, position)) for position, f in enumerate(fields)]
            return [leaf for found in inner for leaf in found]
    return [e]


def field_of(e: ir.Expr, name: str, of: types.Type, position: int) -> ir.Expr:
    """Build an access to a field. An aggregate yields the element itself, `?:` one access for each branch."""
    if isinstance(e, ir.Aggregate):
        return e.elements[position]
    if isinstance(e, ir.Mux):
        chosen, other = (field_of(branch, name, of, position) for branch in (e.chosen, e.other))
        return fold.mux(e.span, e.condition, chosen, other)
    return ir.Field(of, e.span, e, name)


def walk(e: ir.Expr) -> Iterator[ir.Expr]:
    """Yield the expression and everything in it."""
    todo = [e]
    while todo:
        e = todo.pop()
        yield e
        todo += reversed(children(e))


def has_effects(e: ir.Expr) -> bool:
    """Return whether an expression calls something, so that the time of its evaluation matters."""
    return any(isinstance(part, ir.Call | ir.TableHit) for part in walk(e))


def same(one: ir.Expr, other: ir.Expr) -> bool:
    """Return whether two expressions are equal apart from their places."""
    left, right = children(one), children(other)
    alike = type(one) is type(other) and len(left) == len(right) and _own(one) == _own(other)
    return alike and all(map(same, left, right))


def _own(e: ir.Expr) -> list[object]:
    """Return an expression's own values, without its operands, its place and the base in which a number is written."""
    values = [getattr(e, f.name) for f in fields(e) if f.name not in ("span", "base")]
    return [value for value in values if not isinstance(value, ir.Expression | tuple)]


def path(e: ir.Expr) -> Path | None:
    """Return the place of a left value, as far as it is known at compile time; None for other expressions."""
    match e:
        case ir.Ref(variable=variable):
            return (variable,)
        case ir.Field(base=base, name=name):
            inner = path(base)
            return None if inner is None else inner if _dynamic(base) else (*inner, name)
        case ir.Element(base=base, index=index):
            inner = path(base)
            if inner is None or not isinstance(index, ir.Constant):
                return inner
            return (*inner, index.value)
        case ir.Slice(base=base) | ir.StackPart(base=base):
            return path(base)
    return None


def _dynamic(e: ir.Expr) -> bool:
    return isinstance(e, ir.StackPart) or (isinstance(e, ir.Element) and not isinstance(e.index, ir.Constant))


def is_fixed(e: ir.Expr) -> bool:
    """Return whether a left value's place is known at compile time: no computed index, no slice."""
    match e:
        case ir.Ref():
            return True
        case ir.Field(base=base):
            return is_fixed(base)
        case ir.Element(base=base, index=ir.Constant()):
            return is_fixed(base)
    return False


def is_simple_key(e: ir.Expr) -> bool:
    """Return whether BMv2 can match on it: a field, a header's validity, or a field under a constant mask."""
    match e:
        case ir.IsValid(header=header):
            return isinstance(header.type, types.Header) and is_fixed(header)
        case (
            ir.Binary(op="&", left=left, right=ir.Constant())
            | ir.Binary(op="&", left=ir.Constant(), right=left)
        ):
            return is_fixed(left)
    return is_fixed(e)


def overlap(a: Path, b: Path) -> bool:
    """Return whether two places share storage, because one contains the other."""
    shorter = min(len(a), len(b))
    return a[:shorter] == b[:shorter]


def reads(e: ir.Expr) -> Iterator[Path]:
    """Yield the places that an expression reads."""
    where = path(e)
    if where is not None:
        yield where
    if not is_fixed(e):
        for child in children(e):
            yield from reads(child)


def bodies(s: ir.Stmt) -> tuple[tuple[ir.Stmt, ...], ...]:
    """Return the bodies nested in a statement."""
    match s:
        case ir.If(chosen=chosen, other=other):
            return (chosen, other)
        case ir.Scope(body=body):
            return (body,)
        case ir.Loop(body=body, update=update):
            return (body, update)
        case ir.ApplyTable(cases=cases) | ir.SwitchValue(cases=cases):
            return tuple(body for _, body in cases)
    return ()


def expressions(s: ir.Stmt) -> tuple[ir.Expr, ...]:
    """Return a statement's own expressions, including the target it writes."""
    match s:
        case ir.Declare(initial=initial):
            return (initial,) if initial is not None else ()
        case ir.Assign(target=target, value=value):
            return (target, value)
        case ir.If(condition=condition):
            return (condition,)
        case ir.Return(value=value):
            return (value,) if value is not None else ()
        case ir.SwitchValue(subject=subject):
            return (subject,)
        case (
            ir.CallAction(arguments=arguments)
            | ir.ApplyBlock(arguments=arguments)
            | ir.CallExtern(arguments=arguments)
        ):
            return arguments
        case ir.CallFunction(call=call):
            return call.arguments
        case ir.CallHeader(header=header):
            return (header,)
    return ()


def table_expressions(table: ir.Table) -> Iterator[ir.Expr]:
    """Yield the expressions that applying a table evaluates: its key, and the arguments of its actions."""
    yield from (element.expr for element in table.key)
    for call in table.actions:
        yield from call.arguments


def writes(statements: Iterable[ir.Stmt]) -> Iterator[Path]:
    """Yield the places that statements may write, including those written in called actions and functions."""
    for s in statements:
        targets: Iterable[ir.Expr] = ()
        match s:
            case ir.Assign(target=target):
                targets = (target,)
            case ir.CallHeader(header=header):
                targets = (header,)
            case ir.CallExtern(arguments=arguments, directions=directions):
                targets = [a for a, d in zip(arguments, directions, strict=True) if d in ("out", "inout")]
            case ir.CallAction(action=action, arguments=arguments):
                targets = _written_arguments(action.parameters, arguments)
                yield from writes(action.body)
            case ir.CallFunction(call=call):
                targets = _written_arguments(call.function.parameters, call.arguments)
        for e in expressions(s):
            for part in walk(e):
                if isinstance(part, ir.Call):
                    targets = [*targets, *_written_arguments(part.function.parameters, part.arguments)]
        for target in targets:
            where = path(target)
            if where is not None:
                yield where
        for body in bodies(s):
            yield from writes(body)


def _written_arguments(parameters: tuple[ir.Variable, ...], arguments: tuple[ir.Expr, ...]) -> list[ir.Expr]:
    return [a for p, a in zip(parameters, arguments, strict=True) if p.direction in ("out", "inout")]


def touches(statements: Iterable[ir.Stmt]) -> Iterator[Path]:
    """Yield the places that statements may read or write."""
    for s in statements:
        for e in expressions(s):
            yield from reads(e)
        if isinstance(s, ir.CallAction):
            yield from touches(s.action.body)
        for body in bodies(s):
            yield from touches(body)


def has_return(statements: Iterable[ir.Stmt]) -> bool:
    """Return whether the statements contain a Return of this scope (not of an inner one)."""
    return any(
        isinstance(s, ir.Return) or (not isinstance(s, ir.Scope) and any(map(has_return, bodies(s))))
        for s in statements
    )


def scoped(span: Span, body: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
    """Wrap a body in a scope that its returns leave. A body without returns is not wrapped."""
    if body and isinstance(body[-1], ir.Return):
        return scoped(span, body[:-1])
    return (ir.Scope(span, body),) if has_return(body) else body
