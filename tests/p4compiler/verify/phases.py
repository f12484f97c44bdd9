"""Invariants of all programs after each phase of the compiler. If one does not hold, the compiler has a bug."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from fanin.p4compiler.phases import Phase
from fanin.p4compiler.source import Reporter
from tests.p4compiler.verify.flat import verify_flat, verify_lowered
from tests.p4compiler.verify.graph import verify_graphs
from tests.p4compiler.verify.syntax import verify_syntax
from tests.p4compiler.verify.typed import verify_checked

INVARIANTS: dict[str, Callable[[Any], Iterator[str]]] = {
    "parse": verify_syntax,
    "check": verify_checked,
    "inline": verify_flat,
    "lower": verify_lowered,
    "graph": verify_graphs,
}


class BrokenPhaseError(Exception):
    """A phase returned an invalid result. str() lists the problems."""


def verified(phase: Phase) -> Phase:
    """Return a phase that raises BrokenPhaseError if its result is not what the next phase needs."""
    return replace(phase, run=partial(_run, phase))


def _run(phase: Phase, tree: Any, reporter: Reporter) -> Any:
    made = phase.run(tree, reporter)
    if problems := list(INVARIANTS[phase.name](made)):
        raise BrokenPhaseError("\n".join(f"after {phase.name}: {problem}" for problem in problems))
    return made
