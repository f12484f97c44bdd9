"""The phases of the compiler. Each takes the result of the phase before and returns a new one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fanin.p4compiler import ir
from fanin.p4compiler.check.program import check
from fanin.p4compiler.dump.graph import dump_graphs
from fanin.p4compiler.dump.syntax import dump_syntax
from fanin.p4compiler.dump.typed import dump_checked, dump_flat
from fanin.p4compiler.graph import build_graphs
from fanin.p4compiler.inline.control_names import check_control_names
from fanin.p4compiler.inline.program import inline
from fanin.p4compiler.lower import lower
from fanin.p4compiler.parse.program import parse
from fanin.p4compiler.psa.expand import divide_deparsers, expand, is_frame
from fanin.p4compiler.source import Reporter
from fanin.p4compiler.warn.program import warn


@dataclass(frozen=True, slots=True)
class Phase:
    """Phase of the compiler.

    Attributes:
        name: Its name, as `--dump-after` takes it.
        run: The function that carries it out.
        dump: Formats its result as text.
    """

    name: str
    run: Callable[[Any, Reporter], Any]
    dump: Callable[[Any], str]


def _inline(program: ir.Program, reporter: Reporter) -> ir.FlatProgram:
    flat = inline(program)
    if is_frame(flat):
        flat = divide_deparsers(flat)
    check_control_names(flat, reporter)
    warn(flat, reporter)
    return flat


# In the order in which a program passes through them. The first takes the tokens of the preprocessed source.
PHASES = (
    Phase("parse", lambda tokens, _: expand(parse(tokens)), dump_syntax),
    Phase("check", check, dump_checked),
    Phase("inline", _inline, dump_flat),
    Phase("lower", lambda program, _: lower(program), dump_flat),
    Phase("graph", lambda program, _: build_graphs(program), dump_graphs),
)
PHASE_NAMES = tuple(phase.name for phase in PHASES)
