"""What `fanin run` and `fanin sweep` have in common: a scenario's points measured, shown, and written."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.scenario.file import ScenarioError, load_scenario
from fanin.failing import INTERRUPTED, failing, failure
from topologies.sandbox import SandboxError, enter

if TYPE_CHECKING:
    from rich.table import Table

    from experiments.results.measured import Row

ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO.toml", help="what to run")]
Changes = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE,…", help="overrides the file; may be given several times"),
]
Results = Annotated[
    Path | None, typer.Option(help="where the results go", show_default="results/ and the scenario's name")
]

_WIDEST = 300  # columns of a table: rather beyond the terminal's width than folded


def measure(verb: str, file: Path, changes: Sequence[str], results: Path | None, *, afresh: bool) -> None:
    """Run all points, those of earlier results left out unless `afresh`; show and write what came out.

    Raises:
        typer.Exit: 2 for a scenario that cannot be, 1 if a point failed or a sum is wrong, 130 after Ctrl-C.
    """
    with failing(verb, ScenarioError, status=2):
        scenario = load_scenario(file, changes)
    if any(point.world == "live" for point in scenario.points):
        with failing(verb, SandboxError):
            enter()

    # Not above: what precedes enter() runs twice, and these take a second to import.
    from rich.console import Console

    from experiments.results.files import Journal, write_results
    from experiments.results.plot import PlotError, draw, series
    from experiments.scenario.tools import ToolError
    from experiments.sweep import run_points
    from fanin.console import console
    from fanin.progress import PointsProgress
    from p4compiler import CompileError

    folder = results or Path("results", scenario.frame.name)
    journal = Journal(folder)
    if afresh:
        journal.clear()
    try:
        with (
            failing(verb, ToolError, CompileError),
            PointsProgress(scenario.frame.name, len(scenario.points)) as progress,
        ):
            rows = run_points(scenario.points, journal, folder / "logs", progress)
    except KeyboardInterrupt:
        where = [] if results is None else ["--results", str(results)]
        again = shlex.join(["fanin", "sweep", str(file), *(f"--set={change}" for change in changes), *where])
        message = f"interrupted; what is finished is kept. Go on with: {again}"
        raise failure(verb, message, INTERRUPTED) from None
    about = {"name": scenario.frame.name, "scenario": scenario.text, "set": list(changes)}
    write_results(rows, about, folder)
    good = [row for row in rows if row["error"] is None]
    if good:
        Console(width=_WIDEST).print(_table(scenario.varied, good))
    if good and scenario.frame.plot:
        figure = folder / f"{scenario.frame.name}.png"
        try:
            draw(series(good, scenario.frame.plot), scenario.frame.plot, figure)
        except PlotError as error:
            raise failure(verb, f"{file}: plot: {error}", 2) from None
        console.print(f"Figure: {figure}")
    console.print(f"Results: {folder}/results.json and results.parquet", soft_wrap=True)
    _judge(verb, scenario.varied, rows)


def _table(varied: Sequence[str], rows: Sequence[Row]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name in varied:
        table.add_column(name)
    for heading in ("median ms", "p95 ms", "Mb/s", "kB each", "resent", "wrong"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            *(_short(row[name]) for name in varied),
            f"{row['median_seconds'] * 1e3:.4g}",
            f"{row['p95_seconds'] * 1e3:.4g}",
            f"{row['goodput_bits_per_second'] / 1e6:,.1f}",
            f"{row['wire_bytes_per_worker'] / 1e3:,.0f}",
            f"{row['retransmissions']:,}",
            f"{row['violations']:,}",
        )
    return table


def _judge(verb: str, varied: Sequence[str], rows: Sequence[Row]) -> None:
    """typer.Exit, if a point failed or a sum lies outside its bound."""
    complaints = []
    for row in rows:
        settings = [f"{name}={_short(row[name])}" for name in varied if row[name] is not None]
        point = ", ".join(settings) or "the run"
        if row["error"] is not None:
            complaints.append(f"{point}: {row['error']}")
        elif row["violations"]:
            complaints.append(f"{point}: {row['violations']} elements of sums lie outside their bound")
    if complaints:
        raise failure(verb, "\n".join([f"{len(complaints)} of {len(rows)} points failed", *complaints]))


def _short(value: object) -> str:
    return f"{value:,.6g}" if isinstance(value, float) else "" if value is None else str(value)
