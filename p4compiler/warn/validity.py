"""Warnings about fields of invalid headers: on every path from the parser to them, or on some if they are keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from fanin.p4compiler import ir, types
from fanin.p4compiler.psa.expand import is_frame
from fanin.p4compiler.rewrite import Path, bodies, is_fixed, path
from fanin.p4compiler.source import Reporter, Span
from fanin.p4compiler.warn.flow import NOTHING, Facts, Flow, Outcomes

_CONDITIONAL = ("verify_checksum", "update_checksum")  # read nothing if their first argument is false


def warn_of_invalid_headers(program: ir.FlatProgram, reporter: Reporter) -> None:
    """Warn about fields whose header is certainly invalid, so that they have no defined value.

    A header that is valid on some paths causes no warning: the control plane may know which path is taken.
    """
    flow = _Invalid()
    _follow(flow, program, "accept", "reject")
    _warn_of_keys(program, flow, reporter)
    for block in program.blocks.values():
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


def _warn_of_keys(program: ir.FlatProgram, certain: _Invalid, reporter: Reporter) -> None:
    """Warn about keys of headers that are invalid on some path, unless the program tests the header somewhere.

    A program that tests it may know from something else that the header is valid here. PSA has no such warnings: its
    frame parses the headers of ingress or those of egress.
    """
    if is_frame(program):
        return
    flow = _MaybeInvalid(program.blocks[ir.Role.PARSER].states)
    _follow(flow, program, "accept")
    for (where, span), (field, table) in flow.keys.items():
        if where in flow.tested_headers or (field.span, False) in certain.invalid:
            continue
        name, header = table.name.rpartition(".")[2], _header_text(field)
        message = (
            f"{span.fragment()} is a key of {name}, but header '{header}' may be invalid here: "
            "packets without it are looked up by an undefined value"
        )
        hint = f"apply {name} only if {header}.isValid(), or add {header}.isValid() to its key"
        reporter.warn(span, message, hint, option="invalid-header")


def _follow(flow: _Validity, program: ir.FlatProgram, *ends: str) -> None:
    """Follow the headers from these states of the parser to the end of egress."""
    blocks = program.blocks
    begin = frozenset(p for root in program.roots for p in _headers(root.type, (root,)))
    reached = flow.states(blocks[ir.Role.PARSER].states, begin)
    facts = flow.merged(map(reached.get, ends))
    for role in (ir.Role.VERIFY_CHECKSUM, ir.Role.INGRESS, ir.Role.EGRESS, ir.Role.COMPUTE_CHECKSUM):
        if facts is None:
            break
        if role is ir.Role.EGRESS and any(map(_clones, blocks.values())):
            facts = NOTHING  # a cloned packet arrives with the headers it had elsewhere
        facts = flow.merged([flow.body(blocks[role].body, facts), *flow.exits])
        flow.exits.clear()


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


class _Validity(Flow):
    """Data flow of the headers that are invalid."""

    def read(self, e: ir.Expr, facts: Facts) -> None:
        pass

    def written(self, target: ir.Expr, facts: Facts) -> Facts:
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


class _Invalid(_Validity):
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
        return super().written(target, facts)

    def tested(self, header: ir.Expr, facts: Facts) -> tuple[Facts | None, Facts | None]:
        where = path(header)
        if where is None or not is_fixed(header) or not isinstance(header.type, types.Header):
            return facts, facts
        return (None if where in facts else facts), facts | {where}

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


class _MaybeInvalid(_Validity):
    """Data flow of the headers that are invalid on some path.

    `keys` maps such a header, and the place of a key, to its field of this header and the table.
    """

    def __init__(self, states: tuple[ir.State, ...]) -> None:
        super().__init__()
        self._states = states
        self.keys: dict[tuple[Path, Span], tuple[ir.Field, ir.Table]] = {}
        self.tested_headers: set[Path] = set()

    def join(self, one: Facts, other: Facts) -> Facts:
        """Return the headers that are invalid on one of the paths."""
        return one | other

    def tested(self, header: ir.Expr, facts: Facts) -> tuple[Facts | None, Facts | None]:
        where = path(header)
        if where is None:
            return facts, facts
        return frozenset(p for p in facts if p != where and not self._comes_with(where, p)), facts

    def _comes_with(self, header: Path, other: Path) -> bool:
        """Return whether the parser extracts a header only in packets in which it extracts the other, too."""
        without = {state.name: state for state in self._states if other not in _extracted(state)}
        forward = {name: {case.target for case in state.cases} for name, state in without.items()}
        backward: dict[str, set[str]] = {}
        for name, targets in forward.items():
            for target in targets:
                backward.setdefault(target, set()).add(name)
        between = _reachable("start", forward) & _reachable("accept", backward) & without.keys()
        return not any(header in _extracted(without[name]) for name in between)

    def value(self, e: ir.Expr, facts: Facts) -> Facts:
        if isinstance(e, ir.IsValid):
            self.tested_headers.add(path(e.header) or ())
        return super().value(e, facts)

    def branch(self, condition: ir.Expr, facts: Facts) -> tuple[Facts | None, Facts | None]:
        if isinstance(condition, ir.IsValid):
            self.tested_headers.add(path(condition.header) or ())
        return super().branch(condition, facts)

    def extern(self, s: ir.CallExtern, facts: Facts) -> Facts:
        # That a checksum is computed only for valid headers says nothing about tables.
        return facts if s.name.startswith(_CONDITIONAL) else super().extern(s, facts)

    def table(self, table: ir.Table, facts: Facts) -> Outcomes:
        for element in table.key:
            field = element.expr
            while isinstance(field, ir.Slice):
                field = field.base
            if not isinstance(field, ir.Field) or not isinstance(field.base.type, types.Header):
                continue
            where = path(field.base)
            # An entry may leave out a key of another kind where the header is invalid, as those of ACLs do.
            if element.match_kind in ("exact", "lpm") and where in facts and is_fixed(field.base):
                self.keys.setdefault((where, element.expr.span), (field, table))
        return super().table(table, facts)


def _extracted(state: ir.State) -> set[Path | None]:
    """Return the headers that a state extracts."""
    calls = (s for s in state.body if isinstance(s, ir.CallExtern) and s.name == "packet_in.extract")
    return {path(s.arguments[0]) for s in calls}


def _reachable(begin: str, following: Mapping[str, set[str]]) -> set[str]:
    found, todo = {begin}, [begin]
    while todo:
        fresh = following.get(todo.pop(), set()) - found
        found |= fresh
        todo += fresh
    return found


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
