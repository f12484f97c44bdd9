"""`fanin report`: results as a page of HTML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fanin.cli_errors import failing, failure
from fanin.native.files import naming
from fanin.output import say


def report(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Folder of results, or a file in it")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File to write; report.html in RESULTS by default")
    ] = None,
    price: Annotated[float, typer.Option(min=0, help="Price of a GPU for an hour, in $")] = 30.0,
    gpus: Annotated[
        list[int],
        typer.Option(
            min=1, help="GPUs to price; may be repeated; 256, 1,024 and 4,096 by default", show_default=False
        ),
    ] = [],  # noqa: B006 - typer's way
) -> None:
    """Write results as one self-contained HTML page.

    It begins with the cause of most lost time, a picture of the step, the price of waiting GPUs, and what to change.
    Then come all causes, tables and figures, predictions and measurements, settings, program and machine, and the
    command that repeats the run.

    Examples:
        fanin report results/small-virtual
        fanin report results/small-virtual --price 2.5 --gpus 64
    """
    # Imported here to keep --help and the refusal of wrong options fast.
    from fanin.experiments.models.cost import CLUSTERS
    from fanin.experiments.report.html_report import page
    from fanin.experiments.results.files import ResultsError, read_results, read_runs

    if output is not None and output.is_dir():
        raise failure(
            "report", f"-o {output}: is a folder; name a file in it, such as {output / 'report.html'}", 2
        )
    with failing("report", ResultsError, OSError, status=2):
        about, _ = read_results(results)
        runs = read_runs(results)
        path = output or (results if results.is_dir() else results.parent) / "report.html"
        text = page(about, runs, str(results), price, gpus or CLUSTERS)
        with naming(path):
            path.write_text(text, encoding="utf-8")
    say(path)
