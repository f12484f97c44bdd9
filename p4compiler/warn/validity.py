"""Warnings about fields of headers that are invalid on every path to them, from the parser to the end of egress."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from fanin.p4compiler import ir, types
from fanin.p4compiler.rewrite import Path, bodies, is_fixed, path
from fanin.p4compiler.source import Reporter, Span
from fanin.p4compiler.warn.flow import NOTHING, Facts, Flow

_CONDITIONAL = ("verify_checksum", "update_checksum")  # read nothing if their first argument is false


def warn_of_invalid_headers(program: ir.FlatProgram, reporter: Reporter) -> None:
    """Warn about fields whose header is certainly invalid, so that they have no defined value.

    A header that is valid on some paths causes no warning: the control plane may know which path is taken.
    """
    flow = _Invalid()
    blocks = program.blocks
    begin = frozenset(p for root in program.roots for p in _headers(root.type, (root,)))
    ends = flow.states(blocks[ir.Role.PARSER].states, begin)
    facts = flow.merged(ends.get(name) for name in ("accept", "reject"))
    for role in (ir.Role.VERIFY_CHECKSUM, ir.Role.INGRESS, ir.Role.EGRESS, ir.Role.COMPUTE_CHECKSUM):
        if facts is None:
            break
        if role is ir.Role.EGRESS and any(map(_clones, blocks.values())):
            facts = NOTHING  # a cloned packet arrives with the headers it had elsewhere
        facts = flow.merged([flow.body(blocks[role].body, facts), *flow.exits])
        flow.exits.clear()
    for block in blocks.values():
        for body in (block.body, *(action.body for action in block.actions)):
            _warn_of_order(body, flow, reporter)
    # One cause often makes a header invalid at many places, such as all fields of a checksum.
    places: dict[tuple[str, bool], list[Span]] = {}
    for (span, is_written), header in flow.invalid.items():
        places.setdefault((header, is_written), []).append(span)
    for (header, is_written), (span, *others) in places.items():
        what = "what is written to it is undefined" if is_written else "its fields have no defined value"
        more = f", and to {len(others)} more place{'s' * (len(others) > 1)}" if others else ""
        message = f"header '{header}' is invalid on every path to here{more}: {what}"
        hint = f"extract {header}, or call {header}.setValid(), before this"
        reporter.warn(span, message, hint, option="invalid-header")


def _warn_of_order(body: tuple[ir.Stmt, ...], flow: _Invalid, reporter: Reporter) -> None:
    """Warn about fields that are written just before their header's setValid(), where it may be invalid."""
    fields: dict[Path, ir.Field] = {}  # the first field written, by header
    for s in body:
        match s:
            case ir.Assign(target=ir.Field(base=base) as field) if isinstance(base.type, types.Header):
                where = path(base)
                if where is not None and is_fixed(base):
                    fields.setdefault(where, field)
            case ir.CallHeader(method="setValid", header=header):
                first = fields.pop(path(header) or (), None)
                if first is not None and (first.span, True) not in flow.invalid:
                    name = _header_text(first)
                    message = f"{first.span.fragment()} is written before {name}.setValid(), so its value is undefined"
                    hint = f"move {name}.setValid(); before this"
                    reporter.warn(first.span, message, hint, option="invalid-header")
            case ir.Assign() | ir.CallExtern():
                pass
            case _:
                fields.clear()
        for inner in bodies(s):
            _warn_of_order(inner, flow, reporter)


class _Invalid(Flow):
    """Data flow of the headers that are certainly invalid.

    `invalid` maps each place, with reads and writes kept apart, to the name of a header that was always invalid there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.invalid: dict[tuple[Span, bool], str] = {}
        self._sound: set[tuple[Span, bool]] = set()

    def join(self, one: Facts, other: Facts) -> Facts:
        """Return the headers that are invalid on both paths."""
        return one & other

    def read(self, e: ir.Expr, facts: Facts) -> None:
        self._access(e, facts, is_written=False)

    def written(self, target: ir.Expr, facts: Facts) -> Facts:
        self._access(target, facts, is_written=True)
        where = path(target)
        if where is None or types.width(target.type) is not None:  # a number has no headers in it
            return facts
        return frozenset(p for p in facts if p[: len(where)] != where)

    def ended(self, parameters: tuple[ir.Variable, ...], facts: Facts) -> None:
        """Do nothing: a header that is invalid at the end is not emitted."""

    def assigned(self, target: ir.Expr, value: ir.Expr, facts: Facts) -> Facts:
        after = self.written(target, facts)
        if after is facts:
            return facts
        to, source = path(target), path(value)
        if isinstance(value, ir.Invalid) and to is not None and is_fixed(target):
            return after | {to}
        if to is None or source is None or not (is_fixed(target) and is_fixed(value)):
            return after
        copied = (p[len(source) :] for p in facts if p[: len(source)] == source)
        return after | {(*to, *rest) for rest in copied}

    def tested(self, header: ir.Expr, facts: Facts) -> tuple[Facts | None, Facts | None]:
        where = path(header)
        if where is None or not is_fixed(header) or not isinstance(header.type, types.Header):
            return facts, facts
        return (None if where in facts else facts), facts | {where}

    def header(self, s: ir.CallHeader, facts: Facts) -> Facts:
        where = path(s.header)
        if s.method == "setInvalid" and where is not None and is_fixed(s.header):
            return facts | {where}
        return self.written(s.header, facts)

    def extern(self, s: ir.CallExtern, facts: Facts) -> Facts:
        if s.name.startswith(_CONDITIONAL):
            holds, _ = self.branch(s.arguments[0], facts)
            if holds is not None:
                super().extern(s, holds)
            return facts
        return super().extern(s, facts)

    def _access(self, e: ir.Expr, facts: Facts, *, is_written: bool) -> None:
        while isinstance(e, ir.Slice):
            e = e.base
        if not isinstance(e, ir.Field) or not isinstance(e.base.type, types.Header):
            return
        where, site = path(e.base), (e.span, is_written)
        if not is_fixed(e.base) or where not in facts:
            self._sound.add(site)
            self.invalid.pop(site, None)
        elif site not in self._sound:
            self.invalid[site] = _header_text(e)


def _headers(of: types.Type, where: Path) -> Iterator[Path]:
    """Yield the places of the headers in a value of this type."""
    match of:
        case types.Header():
            yield where
        case types.Struct(fields=fields) | types.Tuple(fields=fields) | types.Union(fields=fields):
            for field in fields:
                yield from _headers(field.type, (*where, field.name))
        case types.Stack(element=element, size=size):
            for index in range(size):
                yield from _headers(element, (*where, index))


def _clones(block: ir.Block) -> bool:
    """Return whether a block clones packets."""
    todo = [*block.body, *chain.from_iterable(action.body for action in block.actions)]
    while todo:
        s = todo.pop()
        if isinstance(s, ir.CallExtern) and s.name.startswith("clone"):
            return True
        todo += chain.from_iterable(bodies(s))
    return False


def _header_text(field: ir.Field) -> str:
    """Return a field's header as the program writes it; inside a macro, the name it has in its struct."""
    text, dot, _ = field.span.fragment().rpartition(".")
    if dot and field.span.expansion is None:
        return text
    return field.base.name if isinstance(field.base, ir.Field) else str(field.base.type)
