"""Warnings about fields of invalid headers: on every path from the parser to them, or on some if they are keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    _warn_of_untested_headers(program, flow, reporter)
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


def _warn_of_untested_headers(program: ir.FlatProgram, certain: _Invalid, reporter: Reporter) -> None:
    """Warn about keys and reads of headers that are invalid on some path.

    There is no warning about a key if the program tests the header somewhere: it may know from something else that the
    header is valid here. PSA has no such warnings: its frame parses the headers of ingress or those of egress.
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
    keys = {where for where, _ in flow.keys}
    reads: dict[Path, list[ir.Field]] = {}
    for (where, span), field in flow.reads.items():
        if (
            where not in flow.made | keys | (flow.tested_headers - flow.unconditional)
            and (span, False) not in certain.invalid
        ):
            reads.setdefault(where, []).append(field)
    for field, *others in reads.values():
        header = _header_text(field)
        more = f" (as at {len(others)} more place{'s' * (len(others) > 1)})" if others else ""
        message = (
            f"{field.span.fragment()} is read, but header '{header}' may be invalid here{more}: "
            "in packets without it, its fields have no defined value"
        )
        reporter.warn(field.span, message, f"read it only if {header}.isValid()", option="invalid-header")


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

    Reads are left out if something besides the validity of headers decides about them, such as another field, a
    table's entries, or what an earlier `exit` depends on. The program may know from that that the header is valid.

    Attributes:
        keys: The field and the table, by header and the place of the key.
        reads: The field, by header and the place of the read.
        tested_headers: The headers whose validity is tested somewhere. Reads after the first test are left out.
        unconditional: The headers that are read outside of all conditions.
        made: The headers that a control makes valid or invalid, perhaps for a reason.
    """

    def __init__(self, states: tuple[ir.State, ...]) -> None:
        super().__init__()
        self._states = states
        self.keys: dict[tuple[Path, Span], tuple[ir.Field, ir.Table]] = {}
        self.reads: dict[tuple[Path, Span], ir.Field] = {}
        self.tested_headers: set[Path] = set()
        self.made: set[Path] = set()
        self.unconditional: set[Path] = set()
        self._in_parser = False
        self._branches = 0  # conditions around the present place, of any kind
        self._depends = 0  # conditions around the present place that may imply anything
        self._some_left = False  # some packets do not get here, for a reason that may imply anything

    def read(self, e: ir.Expr, facts: Facts) -> None:
        while isinstance(e, ir.Slice):
            e = e.base
        if self._in_parser or self._depends or self._some_left or not isinstance(e, ir.Field):
            return
        where = path(e.base)
        if where in facts and isinstance(e.base.type, types.Header) and is_fixed(e.base):
            if where in self.tested_headers:
                return
            if not self._branches:
                self.unconditional.add(where)
            self.reads.setdefault((where, e.span), e)

    @contextmanager
    def _depending(self, on: object) -> Iterator[None]:
        """Leave out reads if they depend on something besides the validity of headers."""
        self._depends += bool(on)
        yield
        self._depends -= bool(on)

    def statement(self, s: ir.Stmt, facts: Facts) -> Facts | None:
        match s:
            case ir.Return() | ir.Exit() if self._depends:
                self._some_left = True
            case ir.CallExtern(name="mark_to_drop") if self._branches:
                self._some_left = True  # what happens to a packet after this does not matter
            case ir.If(condition=condition, chosen=chosen, other=other):
                yes, no = self.branch(condition, facts)
                with self._depending(not _tests_validity(condition)):
                    self._branches += 1
                    end = self.merged([self.statements(chosen, yes), self.statements(other, no)])
                    self._branches -= 1
                    return end
        with self._depending(isinstance(s, ir.Loop) or getattr(s, "cases", ())):
            return super().statement(s, facts)

    def states(self, states: tuple[ir.State, ...], facts: Facts) -> dict[str, Facts]:
        self._in_parser = True
        reached = super().states(states, facts)
        self._in_parser = False
        return reached

    def written(self, target: ir.Expr, facts: Facts) -> Facts:
        after = super().written(target, facts)
        if not self._in_parser and isinstance(target.type, types.Header):
            self.made.add(path(target) or ())
        return after

    def header(self, s: ir.CallHeader, facts: Facts) -> Facts:
        self.made.add(path(s.header) or ())
        return super().header(s, facts)

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
        match e:
            case ir.IsValid(header=header):
                self.tested_headers.add(path(header) or ())
            case ir.Mux(condition=condition, chosen=chosen, other=other) if not _tests_validity(condition):
                self.branch(condition, facts)
                with self._depending(condition):
                    return self._one(self.value(chosen, facts), self.value(other, facts))
        return super().value(e, facts)

    def branch(self, condition: ir.Expr, facts: Facts) -> tuple[Facts | None, Facts | None]:
        match condition:
            case ir.IsValid(header=header):
                self.tested_headers.add(path(header) or ())
            case ir.Binary(op="&&" | "||" as op, left=left, right=right) if not _tests_validity(left):
                yes, no = self.branch(left, facts)
                begin = yes if op == "&&" else no
                with self._depending(left):
                    holds, fails = self.branch(right, begin) if begin is not None else (None, None)
                return (holds, self.merged([no, fails])) if op == "&&" else (self.merged([yes, holds]), fails)
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
        branches, self._branches = self._branches, 0  # a table that may drop says nothing about the others
        with self._depending(table.key):
            outcomes = super().table(table, facts)
        self._branches = branches
        return outcomes


def _tests_validity(condition: ir.Expr) -> bool:
    """Return whether a condition depends on nothing but the validity of headers."""
    match condition:
        case ir.IsValid() | ir.Constant():
            return True
        case ir.Unary(op="!", operand=operand):
            return _tests_validity(operand)
        case ir.Binary(op="&&" | "||", left=left, right=right):
            return _tests_validity(left) and _tests_validity(right)
    return False


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
