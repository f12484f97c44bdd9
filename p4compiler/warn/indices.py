"""Warnings about constant indices beyond the end of a register, counter or meter."""

from __future__ import annotations

from fanin.p4compiler import ir, types
from fanin.p4compiler.externs.registry import EXTERNS
from fanin.p4compiler.source import Reporter
from fanin.p4compiler.warn.packets import statements


def warn_of_indices(block: ir.Block, reporter: Reporter) -> None:
    """Warn about accesses that do nothing, because their constant index is out of range."""
    for s in statements(block):
        if not isinstance(s, ir.CallExtern) or not isinstance(s.instance, ir.Instance):
            continue
        extern = EXTERNS.get(s.name)
        if extern is None or extern.index is None:
            continue
        index, size = s.arguments[extern.index], s.instance.arguments[0]
        if isinstance(index, ir.Constant) and isinstance(size, ir.Constant) and index.value >= size.value:
            assert isinstance(s.instance.type, types.ExternInstance)
            kind, name = s.instance.type.extern.name, s.instance.name.rpartition(".")[2]
            message = f"{kind} '{name}' has the cells 0 to {size.value - 1}: an access to {index.value} does nothing"
            hint = f"make it larger, or use an index up to {size.value - 1}"
            reporter.warn(index.span, message, hint, option="index-out-of-range")
