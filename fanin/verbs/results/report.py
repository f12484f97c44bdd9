"""`fanin report`: results as a page to read, to send, and to print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fanin.cli_errors import failing
from fanin.native.files import naming
from fanin.output import say


def report(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="a folder of results, or a file in it")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="the page", show_default="report.html in RESULTS")
    ] = None,
) -> None:
    """Make one page of HTML of results, which needs no other file and no network.

    Tables and figures, predictions beside what was measured, settings, program and machine, and how to run it again.
    """
    # Not above: it takes a second, for which --help and a wrong option should not wait.
    from fanin.experiments.results.files import ResultsError, read_results
    from fanin.experiments.results.html_report import page

    with failing("report", ResultsError, OSError, status=2):
        about, rows = read_results(results)
        path = output or (results if results.is_dir() else results.parent) / "report.html"
        text = page(about, rows, str(results))
        with naming(path):
            path.write_text(text, encoding="utf-8")
    say(path)
