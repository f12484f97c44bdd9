"""A finding about what a switch chip's pipeline cannot run: more steps that depend on each other than it has stages.

The model is that of Jose et al., "Compiling packet programs to reconfigurable switches" (NSDI 2015), but lenient:

- A statement that computes, and an action of a table, take a stage, after those in which their operands are computed.
- What a condition or the key of a table depends on must be there in the stage of the statements that it decides about.
- A copy takes no stage: a compiler renames it.
- `x = x | y`, and the same with `&`, `^` and `+`, waits only for y: such a sum can be computed as a tree.
- A register's stage reads a cell, computes with it, and writes it: until the write, computations with what was read
  take no stage.
- Statements and tables that do not depend on each other share stages, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar, cast

from fanin.p4compiler import ir, types
from fanin.p4compiler.rewrite import Path, children, path
from fanin.p4compiler.source import Diagnostic, Span
from fanin.p4compiler.warn.flow import NOTHING, Facts, Flow, Outcomes

STAGES = 20  # of ingress and of egress, by default: what the largest chips have


_Result = TypeVar("_Result")


class _Ready(NamedTuple):
    """The number of the stage after which a value is there, and the register in whose stage it was computed."""

    stage: int = 0
    register: str = ""


@dataclass(frozen=True, slots=True)
class _Control:
    """The conditions and keys that decide whether a statement runs."""

    ready: _Ready
    by_table: bool
    conditional: bool


def too_many_stages(block: ir.Block, stages: int) -> Diagnostic | None:
    """Return a finding at the first step of a block that would need one more stage, or None."""
    flow = _Stages(stages)
    flow.body(block.body, NOTHING)
    return None if flow.looping else flow.found


class _Stages(Flow):
    """Follows when values are ready: facts (place, stage, register) of those that are not ready at once."""

    def __init__(self, stages: int) -> None:
        super().__init__()
        self.found: Diagnostic | None = None
        self.looping = False
        self._most = stages
        self._control = [_Control(_Ready(), by_table=False, conditional=False)]
        self._index: tuple[Facts, dict[Path, _Ready]] = (NOTHING, {})

    # -- facts ---------------------------------------------------------------------------------------------------

    def join(self, one: Facts, other: Facts) -> Facts:
        if one == other:
            return one
        latest: dict[Path, _Ready] = {}
        for place, stage, register in _known((*one, *other)):
            latest[place] = max(latest.get(place, _Ready()), _Ready(stage, register))
        return frozenset((place, *ready) for place, ready in latest.items())

    def read(self, e: ir.Expr, facts: Facts) -> None:
        pass

    def ended(self, parameters: tuple[ir.Variable, ...], facts: Facts) -> None:
        pass

    def written(self, target: ir.Expr, facts: Facts) -> Facts:
        return self._after(target, self._step(self._control[-1].ready), facts)

    def assigned(self, target: ir.Expr, value: ir.Expr, facts: Facts) -> Facts:
        control = self._control[-1]
        if (other := _added(target, value)) is not None:
            ready = self._latest(self._ready(other, facts), self._index_of(target, facts), control.ready)
            return self._after(target, max(self._step(ready), self._ready(target, facts)), facts, target.span)
        ready = self._latest(self._ready(value, facts), self._index_of(target, facts), control.ready)
        free = not _computes(value) and not control.by_table
        if isinstance(value, ir.Constant) and control.conditional:
            free = False
        return self._after(target, ready if free else self._step(ready), facts, target.span)

    def declared(self, variable: ir.Variable, facts: Facts) -> Facts:
        return self._without((variable,), facts)

    def _after(self, target: ir.Expr, ready: _Ready, facts: Facts, span: Span | None = None) -> Facts:
        """Return the facts after a place gets a value that is ready then."""
        where = path(target)
        if where is None:
            return facts
        if ready.stage > self._most:
            if self.found is None:
                name = (span or target.span).fragment()
                self.found = Diagnostic(
                    span or target.span,
                    f"'{name}' needs stage {ready.stage}, since so many steps depend on each other, and a pipeline has "
                    f"{self._most} stages",
                    "make steps independent, continue in egress, or let the packet pass again with recirculate",
                    "warning",
                )
            ready = _Ready(self._most + 1)
        if isinstance(target, ir.Slice):  # the rest stays
            ready = max(ready, self._ready(target.base, facts))
        facts = self._without(where, facts)
        return facts | {(where, *ready)} if ready.stage else facts

    @staticmethod
    def _without(where: Path, facts: Facts) -> Facts:
        return frozenset(fact for fact in _known(facts) if fact[0][: len(where)] != where)

    # -- when values are ready -----------------------------------------------------------------------------------

    def _ready(self, e: ir.Expr, facts: Facts) -> _Ready:
        """Return when an expression's operands are ready."""
        where = path(e)
        if where is None:
            return self._latest(*(self._ready(child, facts) for child in children(e)))
        if self._index[0] is not facts:
            self._index = facts, {place: _Ready(stage, register) for place, stage, register in _known(facts)}
        known = self._index[1]
        found = [known[where[:end]] for end in range(1, len(where) + 1) if where[:end] in known]
        if isinstance(e.type, types.Struct | types.Header):
            found += [ready for place, ready in known.items() if place[: len(where)] == where]
        return self._latest(self._index_of(e, facts), *found)

    def _index_of(self, target: ir.Expr, facts: Facts) -> _Ready:
        """Return when the computed indices of a place are ready."""
        match target:
            case ir.Element(base=base, index=index):
                return self._latest(self._ready(index, facts), self._index_of(base, facts))
            case ir.Field(base=base) | ir.Slice(base=base) | ir.StackPart(base=base):
                return self._index_of(base, facts)
        return _Ready()

    @staticmethod
    def _latest(*ready: _Ready) -> _Ready:
        """Return when all are ready. A register's stage can compute only with what is ready before it."""
        last = max((each.stage for each in ready), default=0)
        registers = {each.register for each in ready if each.stage == last}
        return _Ready(last, registers.pop() if len(registers) == 1 else "")

    @staticmethod
    def _step(operands: _Ready) -> _Ready:
        """Return when a computation with operands is ready."""
        return operands if operands.register else _Ready(operands.stage + 1)

    # -- statements ----------------------------------------------------------------------------------------------

    def statement(self, s: ir.Stmt, facts: Facts) -> Facts | None:
        """Return the facts after a statement."""
        match s:
            case ir.If(condition=condition):
                decides = self._ready(condition, facts)
            case ir.SwitchValue(subject=subject):
                decides = self._ready(subject, facts)
            case _:
                return super().statement(s, facts)
        return self._under(decides, lambda: super(_Stages, self).statement(s, facts))

    def table(self, table: ir.Table, facts: Facts) -> Outcomes:
        """Return the facts after a table is applied, by the action that ran."""
        ready = self._latest(*(self._ready(element.expr, facts) for element in table.key))
        # A table is not part of a register's stage.
        return self._under(
            _Ready(ready.stage), lambda: super(_Stages, self).table(table, facts), by_table=True
        )

    def _under(self, ready: _Ready, run: Callable[[], _Result], *, by_table: bool = False) -> _Result:
        outer = self._control[-1]
        self._control.append(_Control(self._latest(ready, outer.ready), by_table or outer.by_table, True))
        try:
            return run()
        finally:
            self._control.pop()

    def loop(self, body: tuple[ir.Stmt, ...], update: tuple[ir.Stmt, ...], facts: Facts) -> Facts | None:
        """Return the facts after a loop. Its rounds are not counted: P103 reports it."""
        self.looping = True
        return super().loop(body, update, facts)

    def call(self, directions: tuple[str, ...], arguments: tuple[ir.Expr, ...], facts: Facts) -> Facts:
        """Return the facts after a call whose body is not followed: it takes a stage."""
        inputs = [each for way, each in zip(directions, arguments, strict=True) if way != "out"]
        ready = self._latest(self._control[-1].ready, *(self._ready(each, facts) for each in inputs))
        for way, each in zip(directions, arguments, strict=True):
            if way in ("out", "inout"):
                facts = self._after(each, self._step(ready), facts)
        return facts

    def extern(self, s: ir.CallExtern, facts: Facts) -> Facts:
        """Return the facts after a call of an extern. Until a register is written, its stage computes."""
        if s.name == "mark_to_drop":  # it only sets the port
            port = ir.Field(types.Bits(9), s.span, s.arguments[0], "egress_spec")
            return self._after(port, self._step(self._control[-1].ready), facts)
        if s.name not in ("register.read", "register.write") or not isinstance(s.instance, ir.Instance):
            return super().extern(s, facts)
        name = s.instance.name
        if s.name == "register.write":
            return frozenset(
                (place, stage, "" if register == name else register)
                for place, stage, register in _known(facts)
            )
        target, index = s.arguments
        before = self._latest(self._ready(index, facts), self._control[-1].ready)
        return self._after(target, _Ready(before.stage + 1, name), facts)


def _known(facts: Iterable[Path]) -> Iterable[tuple[Path, int, str]]:
    """Return facts as what they are: a place, a stage, and a register or an empty text."""
    return cast(Iterable[tuple[Path, int, str]], facts)


def _added(target: ir.Expr, value: ir.Expr) -> ir.Expr | None:
    """Return what is added to a place, in any order; None if something else is assigned to it."""
    if isinstance(value, ir.Binary) and value.op in ("|", "&", "^", "+") and (where := path(target)):
        for mine, other in ((value.left, value.right), (value.right, value.left)):
            if path(mine) == where and not isinstance(mine, ir.Slice):
                return other
    return None


def _computes(e: ir.Expr) -> bool:
    """Return whether an expression is more than a copy, or bits of one."""
    match e:
        case ir.Binary(op="++"):
            return any(_computes(child) for child in children(e))
        case ir.Binary() | ir.Unary() | ir.Mux() | ir.Call():
            return True
    return any(_computes(child) for child in children(e))
