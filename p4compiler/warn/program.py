"""All warnings that need the whole program."""

from __future__ import annotations

from fanin.p4compiler import ir
from fanin.p4compiler.reach import reachable
from fanin.p4compiler.source import Reporter
from fanin.p4compiler.warn.forwarding import warn_of_forwarding
from fanin.p4compiler.warn.indices import warn_of_indices
from fanin.p4compiler.warn.keys import warn_of_keys
from fanin.p4compiler.warn.mixups import warn_of_mixups
from fanin.p4compiler.warn.packets import warn_of_packets
from fanin.p4compiler.warn.uninitialized import warn_of_uninitialized
from fanin.p4compiler.warn.unused import warn_of_unused
from fanin.p4compiler.warn.validity import warn_of_invalid_headers


def warn(program: ir.FlatProgram, reporter: Reporter) -> None:
    """Warn about likely mistakes in a program that has been checked and inlined."""
    for callee in reachable(program.source):
        if not isinstance(callee, ir.Action):
            warn_of_uninitialized(callee, reporter)
        if isinstance(callee, ir.Block):
            warn_of_unused(callee, reporter)
            warn_of_keys(callee, reporter)
    for block in program.blocks.values():
        warn_of_indices(block, reporter)
    warn_of_invalid_headers(program, reporter)
    warn_of_forwarding(program, reporter)
    warn_of_packets(program, reporter)
    warn_of_mixups(program, reporter)
