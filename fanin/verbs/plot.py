"""`fanin plot`: any column of results against any other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fanin.failing import complain, failure


def plot(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="a folder of results, or a file in it")],
    x: Annotated[str, typer.Option(help="the column across")],
    y: Annotated[str, typer.Option(help="the column up")] = "median_seconds",
    by: Annotated[str, typer.Option(metavar="COLUMN,…", help="a line for each of their values")] = "",
    where: Annotated[
        list[str], typer.Option(metavar="COLUMN=VALUE,…", help="only these rows; may be given several times")
    ] = [],  # noqa: B006 - typer's way
    log: Annotated[str, typer.Option(metavar="x,y", help="axes with a logarithmic scale")] = "",
    title: Annotated[str | None, typer.Option(help="above the figure")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help=".png, .svg or .pdf", show_default="Y-X.png in RESULTS"),
    ] = None,
) -> None:
    """Draw a column of results over another: medians, and from the smallest to the largest of repetitions."""
    # Not above: it takes a second, and every verb imports this module.
    from pydantic import ValidationError

    from experiments.results.files import ResultsError, read_rows
    from experiments.results.plot import PlotError, draw, mixed, select, series
    from experiments.scenario.file import Plot

    conditions = dict(condition.partition("=")[::2] for condition in where)
    folder = results if results.is_dir() else results.parent
    path = output or folder / f"{y}-{x}.png"
    try:
        axes = {"x": x, "y": y, "by": _words(by), "log": _words(log), "title": title}
        wanted = Plot.model_validate(axes)
        rows = select(read_rows(results), {name: values.split(",") for name, values in conditions.items()})
        draw(series(rows, wanted), wanted, path)
    except ValidationError:
        raise failure("plot", f"--log {log}: is x, y or x,y", 2) from None
    except (PlotError, ResultsError) as error:
        raise failure("plot", error, 2) from None
    if names := mixed(rows, wanted):
        complain("plot", f"points mix rows that differ in {', '.join(names)}: --by or --where")
    typer.echo(path)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)
