"""The compiler as a whole: a file in, BMv2's JSON and P4Info out."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from traceback import walk_tb
from typing import Any, TypeVar

from fanin.native.collector import without_collector
from fanin.p4compiler import ir, nodes, phases
from fanin.p4compiler.check.program import check
from fanin.p4compiler.compiled import Compiled
from fanin.p4compiler.emit.bmv2json import emit_json
from fanin.p4compiler.emit.p4info import emit_p4info
from fanin.p4compiler.index import NameIndex
from fanin.p4compiler.parse.lex import Token
from fanin.p4compiler.parse.preprocess import KeptIncludes, Lookups, preprocess
from fanin.p4compiler.parse.program import KeptDeclarations, parse
from fanin.p4compiler.psa.expand import expand
from fanin.p4compiler.source import TOO_DEEP, CompileError, Diagnostic, Reporter, SourceFile, Span, error
from fanin.p4compiler.warn.pipeline import Misfit, misfits
from fanin.p4compiler.warn.stages import STAGES

INCLUDE = Path(__file__).parent / "include"
# For programs with deep nesting: Python's recursion limit, and a stack on which it cannot overflow (about 1 KB a call).
_DEEPEST = 20_000
_STACK_BYTES = 256 << 20
_DEEP = threading.Lock()  # both are settings of the whole process
_Result = TypeVar("_Result")


def compile_file(
    path: str | Path,
    *,
    include_dirs: Iterable[str | Path] = (),
    defines: Mapping[str, str] | None = None,
    lookups: Lookups | None = None,
    confined: bool = False,
) -> Compiled:
    """Compile a P4_16 program written for v1model.

    Args:
        path: The program's file.
        include_dirs: Folders to search before the compiler's own core.p4 and v1model.p4.
        defines: Macros by name.
        lookups: Receives all files that the result depends on.
        confined: Whether `#include` finds no file outside of the program's folder and `include_dirs`.

    Returns:
        The JSON, the P4Info and the warnings.

    Raises:
        CompileError: If the program has errors. Its text lists all of them, with place, line, caret and hint.
        OSError: If `path` cannot be read.
    """
    include_dirs = tuple(include_dirs)

    def run() -> Compiled:
        reporter = Reporter()
        tree: Any = _tokens(path, include_dirs, defines, reporter, lookups, confined=confined)
        for phase in phases.PHASES:
            tree = phase.run(tree, reporter)
        made = emit_json(tree, str(path), reporter)
        states = {
            state.name: (state.span, *(statement.span for statement in state.body))
            for state in tree.flat.blocks[ir.Role.PARSER].states
        }
        config = json.dumps(made, separators=(",", ":")).encode()
        return Compiled(config, emit_p4info(tree), _in_order(reporter.warnings), states)

    with without_collector():  # garbage takes a tenth of the time to look for
        return _at_any_depth(path, run)


def dump_after(
    name: str,
    path: str | Path,
    *,
    include_dirs: Iterable[str | Path] = (),
    defines: Mapping[str, str] | None = None,
) -> tuple[str, tuple[Diagnostic, ...]]:
    """Run the compiler up to the phase of this name.

    Args:
        name: The name of a phase, one of `phases.PHASE_NAMES`.
        path: The program's file.
        include_dirs: Folders to search before the compiler's own.
        defines: Macros by name.

    Returns:
        The program as text after that phase, and the warnings so far.

    Raises:
        ValueError: If there is no such phase.
        CompileError: As for `compile_file`.
        OSError: As for `compile_file`.
    """
    if name not in phases.PHASE_NAMES:
        raise ValueError(f"there is no phase '{name}': the phases are {', '.join(phases.PHASE_NAMES)}")
    include_dirs = tuple(include_dirs)

    def run() -> tuple[str, tuple[Diagnostic, ...]]:
        reporter = Reporter()
        tree: Any = _tokens(path, include_dirs, defines, reporter)
        for phase in phases.PHASES[: phases.PHASE_NAMES.index(name) + 1]:
            tree = phase.run(tree, reporter)
        return phase.dump(tree), _in_order(reporter.warnings)

    return _at_any_depth(path, run)


def lint_file(
    path: str | Path,
    *,
    include_dirs: Iterable[str | Path] = (),
    defines: Mapping[str, str] | None = None,
    stages: int | None = None,
) -> tuple[tuple[Misfit, ...], tuple[Diagnostic, ...]]:
    """Check a program without compiling it to the end.

    Args:
        path: The program's file.
        include_dirs: Folders to search before the compiler's own.
        defines: Macros by name.
        stages: The stages of ingress, and of egress. None takes STAGES.

    Returns:
        What does not fit the pipeline of a switch chip, and the warnings.

    Raises:
        CompileError: As for `compile_file`.
        OSError: As for `compile_file`.
    """
    include_dirs = tuple(include_dirs)

    def run() -> tuple[tuple[Misfit, ...], tuple[Diagnostic, ...]]:
        reporter = Reporter()
        tree: Any = _tokens(path, include_dirs, defines, reporter)
        for phase in phases.PHASES[: phases.PHASE_NAMES.index("inline") + 1]:
            tree = phase.run(tree, reporter)
        return misfits(tree, stages or STAGES), _in_order(reporter.warnings)

    return _at_any_depth(path, run)


@dataclass(slots=True)
class Analysis:
    """Facts about a program that may be incomplete, for an editor.

    Attributes:
        index: What its names mean.
        tree: Its syntax tree without what is broken; None if its text cannot be read as tokens.
        typed: The checked program; None if it has errors.
        errors: The errors. Those of the checker are left out where syntax errors may have caused them.
        reporter: The warnings so far.
        sound: Whether the syntax is right.
    """

    index: NameIndex
    tree: nodes.Program | None
    typed: ir.Program | None
    errors: tuple[Diagnostic, ...]
    reporter: Reporter
    sound: bool = False


@dataclass(slots=True)
class Kept:
    """Parts of the last analysis of a program that the next one may use again."""

    includes: KeptIncludes = field(default_factory=dict)
    declarations: KeptDeclarations = field(default_factory=KeptDeclarations)


def analyze(
    path: str | Path,
    *,
    include_dirs: Iterable[str | Path] = (),
    texts: Mapping[Path, str] | None = None,
    kept: Kept | None = None,
) -> Analysis:
    """Find out as much as possible about a program, without an exception for what is wrong with it.

    Args:
        path: The program's file.
        include_dirs: Folders to search before the compiler's own.
        texts: What stands for the text of files, by their absolute paths.
        kept: Parts of the last analysis of the same program, which are brought up to date.
    """
    kept = kept if kept is not None else Kept()
    places = (*(Path(d) for d in include_dirs), INCLUDE.resolve())

    def run() -> Analysis:
        index, reporter = NameIndex(), Reporter()
        tree: nodes.Program | None = None
        failures: list[CompileError] = []
        sound = False
        try:
            tokens = preprocess(
                Path(path), places, {}, reporter, texts=texts, index=index, kept=kept.includes
            )
            if all(token.text == ";" for token in tokens):
                raise error(_start(path), "the program is empty")
            tree = parse(tokens, failures=failures, kept=kept.declarations)
            sound = not failures
            if not tree.declarations:
                return Analysis(index, tree, None, _diagnostics(failures), reporter)
            whole = expand(tree) if sound else tree
            typed = check(whole, reporter if sound else Reporter(), index)
        except CompileError as failure:
            typed = None
            failures = failures or [failure]
        return Analysis(index, tree, None if failures else typed, _diagnostics(failures), reporter, sound)

    try:
        return _at_any_depth(path, run)
    except CompileError as failure:
        return Analysis(NameIndex(), None, None, tuple(failure.diagnostics), Reporter())


def _diagnostics(failures: Iterable[CompileError]) -> tuple[Diagnostic, ...]:
    return tuple(diagnostic for failure in failures for diagnostic in failure.diagnostics)


def findings(analysis: Analysis) -> tuple[tuple[Misfit, ...], tuple[Diagnostic, ...]]:
    """Return what does not fit a pipeline, and the warnings; nothing of the former about a program with errors.

    Stages are not counted: that takes longer than an editor may.

    Raises:
        CompileError: If an error shows only now, such as two tables with one name in the control plane.
    """
    reporter = analysis.reporter
    if analysis.typed is None:
        return (), _in_order(reporter.warnings)
    typed = analysis.typed
    [phase] = [phase for phase in phases.PHASES if phase.name == "inline"]

    def run() -> tuple[tuple[Misfit, ...], tuple[Diagnostic, ...]]:
        flat = phase.run(typed, reporter)
        return misfits(flat, None), _in_order(reporter.warnings)

    return _at_any_depth(next(iter(analysis.index.paths)), run)


def _in_order(warnings: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(sorted(warnings, key=lambda w: (w.span.file.path, w.span.line, w.span.column)))


def _tokens(
    path: str | Path,
    include_dirs: Iterable[str | Path],
    defines: Mapping[str, str] | None,
    reporter: Reporter,
    lookups: Lookups | None = None,
    *,
    confined: bool = False,
) -> list[Token]:
    places = (*(Path(d) for d in include_dirs), INCLUDE)
    tokens = preprocess(Path(path), places, defines or {}, reporter, lookups, confined=confined)
    if all(token.text == ";" for token in tokens):
        raise error(_start(path), "the program is empty")
    return tokens


def _start(path: str | Path) -> Span:
    return Span(SourceFile(str(path), ()), 1, 0, 1, 0)


def _at_any_depth(path: str | Path, run: Callable[[], _Result]) -> _Result:
    """Run the compiler, once more with a larger stack if the program is nested too deeply for Python's usual one.

    Raises:
        CompileError: If the larger stack does not suffice either; it names the innermost part being processed.
    """
    try:
        return run()
    except RecursionError:
        pass
    try:
        with _DEEP:
            return _with_large_stack(run)
    except RecursionError as failure:
        raise error(_innermost_span(failure, _start(path)), *TOO_DEEP) from None


def _with_large_stack(run: Callable[[], _Result]) -> _Result:
    """Run a function in a thread with a large stack. The recursion limit of the process is raised meanwhile."""
    results: list[_Result] = []
    failures: list[BaseException] = []

    def body() -> None:
        try:
            results.append(run())
        except BaseException as failure:
            failures.append(failure)

    limit, size = sys.getrecursionlimit(), threading.stack_size(_STACK_BYTES)
    sys.setrecursionlimit(max(limit, _DEEPEST))
    try:
        thread = threading.Thread(target=body, name="p4compiler", daemon=True)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(size)
        sys.setrecursionlimit(limit)
    if failures:
        raise failures[0]
    return results[0]


def _innermost_span(failure: RecursionError, otherwise: Span) -> Span:
    """Return the innermost source location in the frames of the traceback."""
    for frame, _ in walk_tb(failure.__traceback__):
        spans = (getattr(value, "span", value) for value in frame.f_locals.values())
        otherwise = next((span for span in spans if isinstance(span, Span)), otherwise)
    return otherwise
