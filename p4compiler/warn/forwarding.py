"""Warnings about packets for which the program chooses no port: they leave through port 0."""

from __future__ import annotations

from collections.abc import Iterable

from fanin.p4compiler import ir
from fanin.p4compiler.rewrite import Path, overlap, path, writes
from fanin.p4compiler.source import Reporter
from fanin.p4compiler.warn.flow import Facts, Flow, Outcomes
from fanin.p4compiler.warn.packets import statements

_CHOOSING = ("egress_spec", "mcast_grp")  # the fields by which a program chooses where a packet goes
_AGAIN = ("resubmit", "recirculate")  # externs that send the packet through the program again


def warn_of_forwarding(program: ir.FlatProgram, reporter: Reporter) -> None:
    """Warn if the ingress never chooses a port, or a table that does so does nothing on a miss."""
    ingress = program.blocks[ir.Role.INGRESS]
    chosen: list[Path] = [(program.roots.standard_metadata, field) for field in _CHOOSING]
    before = [s for state in program.blocks[ir.Role.PARSER].states for s in state.body]
    bodies = [before, ingress.body, *(action.body for action in ingress.actions)]
    if any(_starts_again(program.blocks[role]) for role in ir.PIPELINES):
        return
    if not any(_chooses(body, chosen) for body in bodies):
        control = ingress.parameters[-1].name
        message = f"{ingress.name} never sets egress_spec: all packets leave through port 0"
        hint = f"write {control}.egress_spec = port; or mark_to_drop({control});"
        reporter.warn(ingress.span, message, hint, option="egress-spec")
        return
    if _chooses(before, chosen):
        return
    flow = _Missed(chosen)
    end = flow.merged([flow.body(ingress.body, frozenset({_UNDECIDED})), *flow.exits])
    for table, *_ in (end or frozenset()) - {_UNDECIDED}:
        assert isinstance(table, ir.Table)
        name = table.name.rpartition(".")[2]
        message = f"on a miss, table '{name}' does nothing, and the packet leaves through port 0"
        if table.implementation is None:
            hint = "write default_action = ...; in the table, unless the control plane sets one"
        else:  # its default action has no effect
            hint = f"write if (!{name}.apply().hit) {{ ... }}"
        reporter.warn(table.span, message, hint, option="no-default-action")


_UNDECIDED: Path = ("undecided",)


class _Missed(Flow):
    """Data flow of the tables that have missed, without an action, since a port was last chosen."""

    def __init__(self, chosen: list[Path]) -> None:
        super().__init__()
        self.chosen = chosen

    def join(self, one: Facts, other: Facts) -> Facts:
        """Return the tables that may have missed on either path."""
        return one | other

    def read(self, e: ir.Expr, facts: Facts) -> None:
        """Do nothing: only writes matter."""

    def written(self, target: ir.Expr, facts: Facts) -> Facts:
        where = path(target)
        return frozenset() if where and any(overlap(where, c) for c in self.chosen) else facts

    def ended(self, parameters: tuple[ir.Variable, ...], facts: Facts) -> None:
        """Do nothing: no parameter matters."""

    def table(self, table: ir.Table, facts: Facts) -> Outcomes:
        outcomes = super().table(table, facts)
        chooses = any(_chooses(call.action.body, self.chosen) for call in table.actions)
        implied = table.default.action
        if (
            facts
            and chooses
            and any(_is_implied(call, table) for call in table.actions)
            and not table.entries
        ):
            outcomes[implied] = frozenset({(table,)})
        return outcomes


def _is_implied(call: ir.ActionCall, table: ir.Table) -> bool:
    """Return whether an action is the table's default only because the program names none."""
    return call.action is table.default.action and any(
        a.name == "defaultonly" and a.span == table.span for a in call.annotations
    )


def _chooses(body: Iterable[ir.Stmt], chosen: list[Path]) -> bool:
    return any(overlap(where, c) for where in writes(body) for c in chosen)


def _starts_again(block: ir.Block) -> bool:
    """Return whether a block sends packets through the program again."""
    return any(isinstance(s, ir.CallExtern) and s.name.startswith(_AGAIN) for s in statements(block))
