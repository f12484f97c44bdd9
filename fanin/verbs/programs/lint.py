"""`fanin lint`: what would not fit a hardware pipeline, and likely mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fanin.cli_errors import failure
from fanin.output import say
from fanin.programs import Define, Include, macros


def lint(
    programs: Annotated[
        list[Path], typer.Argument(metavar="PROGRAM...", exists=True, dir_okay=False, help="P4_16 source")
    ],
    include: Include = None,
    define: Define = None,
    stages: Annotated[
        int | None, typer.Option(min=1, help="Stages of ingress, and of egress (default: 20)")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each finding")] = False,
) -> None:
    """Find what a hardware pipeline cannot run, and mistakes.

    A switch chip passes each packet through its stages once. It has no multiplication, no division and no loops, gives
    a packet one access to each register, and needs a stage for each step that depends on another. BMv2 and fanin run
    such programs, so nothing else reports this.

    The exit status is 0 if there is nothing to report, 1 if there is, and 2 if a program cannot be read.

    Examples:
        fanin lint program.p4
        fanin lint p4src/fanin.p4 --json
    """
    # Imported here to keep --help fast.
    from fanin.p4compiler import CompileError, lint_file, page_of

    count = 0
    for program in programs:
        try:
            misfits, warnings = lint_file(
                program, include_dirs=include or (), defines=macros(define), stages=stages
            )
        except CompileError as error:
            say(error, err=True)
            raise typer.Exit(1) from None
        except OSError as error:
            raise failure("lint", f"{program}: cannot be read: {error.strerror}", 2) from None
        found = [(each.code, each.diagnostic, page_of(each.code)) for each in misfits]
        found += [(each.option or "warning", each, page_of(each.option)) for each in warnings]
        count += len(found)
        for code, diagnostic, page in found:
            if as_json:
                span = diagnostic.span
                record = {"file": span.file.path, "line": span.line, "column": span.column + 1, "code": code}
                say(
                    json.dumps(
                        record | {"message": diagnostic.message, "hint": diagnostic.hint, "page": page}
                    )
                )
            else:
                say(f"{diagnostic}\n  {code}: see {page}")
    if count:
        raise typer.Exit(1)
