"""The compiler as a whole: the phases in the order a program passes through them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from typing import Any

from google.protobuf import text_format

from p4compiler.check.program import check
from p4compiler.emit.bmv2json import emit_json
from p4compiler.emit.p4info import P4Info, emit_p4info
from p4compiler.graph import build_graphs
from p4compiler.inline.program import inline
from p4compiler.lower import lower
from p4compiler.parse.preprocess import preprocess
from p4compiler.parse.program import parse
from p4compiler.source import TOO_DEEP, Diagnostic, Reporter, SourceFile, Span, error

INCLUDE = Path(__file__).parent / "include"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled program: BMv2's JSON, its P4Info, and the warnings that came up."""

    json: dict[str, Any]
    p4info: P4Info
    warnings: tuple[Diagnostic, ...]

    def json_text(self) -> str:
        """The JSON as a file has it."""
        return json.dumps(self.json, indent=2) + "\n"

    def p4info_text(self) -> str:
        """The P4Info in protobuf's text format, as a file has it."""
        head = "# proto-file: p4/config/v1/p4info.proto\n# proto-message: p4.config.v1.P4Info\n\n"
        return head + str(text_format.MessageToString(self.p4info))


def compile_file(
    path: str | Path, *, include_dirs: Iterable[str | Path] = (), defines: Mapping[str, str] | None = None
) -> Compiled:
    """Compile a P4_16 program written for v1model.

    `include_dirs` are looked in before the compiler's own core.p4 and v1model.p4; `defines` are macros. Raises
    CompileError (its text has every error found: place, line, caret, hint), OSError if `path` cannot be read.
    """
    reporter = Reporter()
    places = (*(Path(d) for d in include_dirs), INCLUDE)
    start = Span(SourceFile(str(path), ()), 1, 0, 1, 0)
    try:
        declared = parse(preprocess(Path(path), places, defines or {}, reporter))
        if not declared.declarations:
            raise error(start, "the program is empty")
        program = build_graphs(lower(inline(check(declared, reporter))))
        made = emit_json(program, str(path), reporter)
        return Compiled(made, emit_p4info(program), tuple(reporter.warnings))
    except RecursionError as failure:
        raise error(_innermost_span(failure, start), *TOO_DEEP) from None


def _innermost_span(failure: RecursionError, otherwise: Span) -> Span:
    """The innermost piece of source that was being looked at when the stack was full."""
    for frame, _ in walk_tb(failure.__traceback__):
        spans = (getattr(value, "span", value) for value in frame.f_locals.values())
        otherwise = next((span for span in spans if isinstance(span, Span)), otherwise)
    return otherwise
