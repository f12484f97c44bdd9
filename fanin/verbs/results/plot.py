"""`fanin plot`: a figure of one column of results against another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fanin.cli_errors import complain, failing, failure
from fanin.experiments.scenario.styles import Kind, Spread, Style
from fanin.native.text import printable
from fanin.options import file_to_write, pairs, several
from fanin.output import say

if TYPE_CHECKING:
    from pydantic import ValidationError

    from fanin.experiments.results.drawing.series import Series
    from fanin.experiments.results.measured import Row
    from fanin.experiments.scenario.tables.figure import Plot

_MOST_QUEUES: Final = 8  # in a figure
_FEW_VALUES, _LONGEST = 3, 60  # values of a column that --columns shows, and their characters


def plot(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Folder of results, or a file in it")],
    x: Annotated[str | None, typer.Option(help="Column on the x axis")] = None,
    y: Annotated[
        str | None, typer.Option(help="Column on the y axis, except for cdf; median_seconds by default")
    ] = None,
    kind: Annotated[
        Kind, typer.Option(help="lines (bars if x is text), boxes, or cumulative distributions of x")
    ] = "lines",
    by: Annotated[
        list[str],
        typer.Option(metavar="COLUMN,…", help="Columns with a line for each value; may be repeated"),
    ] = [],  # noqa: B006 - typer's way
    where: Annotated[
        list[str], typer.Option(metavar="COLUMN=VALUE,…", help="Only rows with these values; may be repeated")
    ] = [],  # noqa: B006
    log: Annotated[
        list[str],
        typer.Option(metavar="x,y", help="Axes with a logarithmic scale; may be repeated"),
    ] = [],  # noqa: B006
    spread: Annotated[
        Spread | None,
        typer.Option(
            help="Spread shown by shades and error bars; minmax by default",
        ),
    ] = None,
    closed_form: Annotated[
        bool, typer.Option("--closed-form", help="Also draw closed_form_seconds, the analytical model")
    ] = False,
    order: Annotated[
        list[str], typer.Option(metavar="LINE", help="Line to draw first; may be repeated")
    ] = [],  # noqa: B006
    labels: Annotated[
        list[str], typer.Option(metavar="LINE=NAME", help="New name of a line; may be repeated")
    ] = [],  # noqa: B006
    title: Annotated[str | None, typer.Option(help="Title of the figure")] = None,
    style: Annotated[Style, typer.Option(help="Style for a page, one of two columns, or a slide")] = "page",
    size: Annotated[
        str | None,
        typer.Option(
            metavar="WIDTHxHEIGHT", help="Size in inches, such as 3.4x2.4; set by --style otherwise"
        ),
    ] = None,
    queues: Annotated[
        bool,
        typer.Option("--queues", help="Draw sampled queues over time instead of columns"),
    ] = False,
    columns: Annotated[
        bool, typer.Option("--columns", help="List the columns that have values, and draw nothing")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --columns: print a line of JSON for each column")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            parser=file_to_write,
            metavar="FILE",
            help="File to write (.png, .svg, .pdf); Y-X.png in RESULTS by default",
        ),
    ] = None,
) -> None:
    """Plot one column of results against another.

    The figure shows medians and the spread of repetitions. With --queues, it shows the bytes in the queue of each link
    over time; the scenario must sample queues (queue_samples).

    Examples:
        fanin plot results/small-virtual --x loss --by algorithm
        fanin plot results/small-virtual --columns
    """
    # Imported here to keep --help and the refusal of wrong options fast.
    from pydantic import ValidationError

    from fanin.experiments.results.drawing.plot import draw
    from fanin.experiments.results.drawing.series import PlotError, mixed, require_lines, select, series
    from fanin.experiments.results.files import ResultsError, read_rows
    from fanin.experiments.scenario.tables.figure import Plot

    if columns:
        with failing("plot", ResultsError, status=2):
            _list_columns(read_rows(results), as_json)
        return
    if queues:
        options = {"--x": x, "--y": y, "--kind": kind != "lines", "--by": by, "--spread": spread}
        if wrong := [option for option, given in (options | {"--closed-form": closed_form}).items() if given]:
            raise failure("plot", f"--queues: draws a line for each queue over time; leave {wrong[0]} out", 2)
        x, y = "sampled_seconds", "sampled_bytes"
    elif x is None:
        raise failure(
            "plot", "--x: missing; give a column of the results, or --queues; --columns lists the columns", 2
        )
    said: dict[str, Any] = {
        "kind": kind,
        "x": x,
        "y": y or (None if kind == "cdf" else "median_seconds"),
        "by": several("--by", by),
        "where": pairs("plot", "--where", where, "COLUMN=VALUE"),
        "log": several("--log", log),
        "closed_form": closed_form,
        "order": order,
        "labels": _labels(labels),
        "title": None if title is None else printable(title),
        "style": style,
        "size": size,
    }
    if spread is not None:
        said["spread"] = spread
    names: list[str] = []
    try:
        wanted = Plot.model_validate(said)
        if queues:
            lines, wanted = _queue_lines(results, wanted)
            name = "queues.png"
        else:
            rows = select(read_rows(results), wanted.where)
            lines, names = series(rows, wanted), mixed(rows, wanted)
            name = "-".join(dict.fromkeys((wanted.measured, "cdf" if kind == "cdf" else x))) + ".png"
        require_lines(wanted, lines)
        path = output or (results if results.is_dir() else results.parent) / name
        draw(lines, wanted, path)
    except ValidationError as error:
        raise failure("plot", _explained(error, ",".join(log)), 2) from None
    except PlotError as error:
        raise failure("plot", f"{results}: {error}", 2) from None
    except ResultsError as error:
        raise failure("plot", error, 2) from None
    if names:
        complain(
            "plot", f"points mix rows that differ in {', '.join(names)}; separate them with --by or --where"
        )
    say(path)


def _list_columns(rows: Sequence[Row], as_json: bool) -> None:
    """Print the columns that have values, and which these are."""
    from fanin.experiments.results.axes import value_text
    from fanin.experiments.results.files import columns_of
    from fanin.table import new_table, print_records, print_table

    values = {
        name: list(
            dict.fromkeys(value_text(name, row.get(name)) for row in rows if row.get(name) is not None)
        )
        for name in columns_of(rows)
    }
    found = {name: each for name, each in values.items() if each}
    if as_json:
        print_records({"column": name, "values": each} for name, each in found.items())
        return
    table = new_table(["column", "values"])
    for name, each in found.items():
        few = ", ".join(each[:_FEW_VALUES]) + (f", … ({len(each)} values)" if len(each) > _FEW_VALUES else "")
        table.add_row(name, few if len(few) <= _LONGEST else f"{few[:_LONGEST]}…")
    print_table(table)


def _queue_lines(results: Path, wanted: Plot) -> tuple[list[Series], Plot]:
    """Return a line for each of the deepest queues, and the figure that tells them apart."""
    from fanin.experiments.results.drawing.series import queue_series, select, varied
    from fanin.experiments.results.files import read_queues

    rows = select(read_queues(results), wanted.where)
    wanted = wanted.model_copy(update={"by": ("link", *varied(rows))})
    lines = queue_series(rows, wanted)
    if len(lines) > _MOST_QUEUES:
        complain(
            "plot", f"shows the {_MOST_QUEUES} deepest of {len(lines)} queues; for others, --where near=NODE"
        )
    return lines[:_MOST_QUEUES], wanted


def _labels(texts: Sequence[str]) -> dict[str, str]:
    """Return the new names of lines; names may have commas."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if not (name and value):
            raise failure("plot", f"--labels {text}: write LINE=NAME", 2)
        found[name] = printable(value)
    return found


def _explained(error: ValidationError, log: str) -> str:
    """Return the first wrong option and how to correct it."""
    first = error.errors()[0]
    if first["loc"][:1] == ("log",):
        return f"--log {log}: write x, y or x,y"
    text = str(first.get("ctx", {}).get("error", first["msg"]))
    return f"--{first['loc'][0]} {first['input']}: {text}" if first["loc"] else f"--{text}"
