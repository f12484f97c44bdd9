"""Findings about what a switch chip's pipeline cannot run, such as multiplication, loops and repeated accesses."""

from __future__ import annotations

from dataclasses import dataclass

from fanin.p4compiler import ir
from fanin.p4compiler.rewrite import Path
from fanin.p4compiler.source import Diagnostic, Span
from fanin.p4compiler.warn.flow import NOTHING, Facts, Flow
from fanin.p4compiler.warn.stages import too_many_stages

_POWERS = {"*": "<<", "/": ">>"}


@dataclass(frozen=True, slots=True)
class Misfit:
    """Something that does not fit a pipeline: its code, and the place with a message."""

    code: str
    diagnostic: Diagnostic


def misfits(program: ir.FlatProgram, stages: int | None) -> tuple[Misfit, ...]:
    """Return what does not fit the pipeline of a switch chip, in the order of the source.

    Args:
        program: The program.
        stages: The stages of ingress, and of egress. None: do not count them, which takes longest.
    """
    found: dict[object, Misfit] = {}
    for role in (ir.Role.INGRESS, ir.Role.EGRESS):
        block = program.blocks[role]
        _Pipeline(found).body(block.body, NOTHING)
        if stages is not None and (many := too_many_stages(block, stages)):
            found["P105", role] = Misfit("P105", many)
    return tuple(
        sorted(found.values(), key=lambda m: (m.diagnostic.span.file.path, *m.diagnostic.span[1:3], m.code))
    )


class _Pipeline(Flow):
    """Follows which registers a packet may have accessed: facts (register, "read" or "write", index)."""

    def __init__(self, found: dict[object, Misfit]) -> None:
        super().__init__()
        self._found = found

    def join(self, one: Facts, other: Facts) -> Facts:
        return one | other

    def read(self, e: ir.Expr, facts: Facts) -> None:
        pass

    def written(self, target: ir.Expr, facts: Facts) -> Facts:  # noqa: ARG002
        return facts

    def ended(self, parameters: tuple[ir.Variable, ...], facts: Facts) -> None:
        pass

    def value(self, e: ir.Expr, facts: Facts) -> Facts:
        if isinstance(e, ir.Binary) and e.op in ("*", "/", "%"):
            self._of_arithmetic(e)
        return super().value(e, facts)

    def loop(self, body: tuple[ir.Stmt, ...], update: tuple[ir.Stmt, ...], facts: Facts) -> Facts | None:
        place = next((s.span for s in (*body, *update)), None)
        if place is not None:
            hint = "write the rounds one after the other, or let the packet pass again with recirculate"
            self._report(
                "P103", place, "this is in a loop: a packet passes each stage of a pipeline once", hint
            )
        return super().loop(body, update, facts)

    def extern(self, s: ir.CallExtern, facts: Facts) -> Facts:
        facts = super().extern(s, facts)
        if s.name not in ("register.read", "register.write") or not isinstance(s.instance, ir.Instance):
            return facts
        kind = s.name.removeprefix("register.")
        name = s.instance.name
        index = s.arguments[1 if kind == "read" else 0].span.fragment()
        before = [fact for fact in facts if fact[0] == name]
        short = name.rpartition(".")[2]
        hint = "read a cell once, compute, and write the same cell once; a second register may hold the rest"
        if any(fact[1] in ("write", kind) for fact in before):
            verb = {"read": "read", "write": "written"}[kind]
            message = f"register '{short}' is {verb} here, after another access on the same path"
            self._report("P104", s.span, message, hint)
        elif other := next((str(fact[2]) for fact in before if fact[2] != index), None):
            message = f"register '{short}' is written at {index}, but was read at {other} on the same path"
            self._report("P104", s.span, message, hint)
        fact: Path = (name, kind, index)
        return facts | {fact}

    def _of_arithmetic(self, e: ir.Binary) -> None:
        known = next((side.value for side in (e.right, e.left) if isinstance(side, ir.Constant)), 0)
        power = known > 0 and known & (known - 1) == 0
        if e.op == "*":
            hint = "add shifted values, or look the product up in a table with constant entries"
        else:
            hint = "compare or subtract, or look the result up in a table with constant entries"
        if power:
            bits = known.bit_length() - 1
            hint = f"mask with & {known - 1}" if e.op == "%" else f"shift by {bits}: {_POWERS[e.op]} {bits}"
        code, what = ("P101", "multiplies") if e.op == "*" else ("P102", "divides")
        self._report(code, e.span, f"{e.span.fragment()} {what}, which a pipeline cannot do", hint)

    def _report(self, code: str, span: Span, message: str, hint: str) -> None:
        diagnostic = Diagnostic(span, message, hint, "warning")
        self._found.setdefault((code, *diagnostic.identity), Misfit(code, diagnostic))
