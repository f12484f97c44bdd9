"""`fanin sweep`: a scenario with more settings varied, which continues where it was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fanin import options
from fanin.native.text import counted
from fanin.topologies.units import BYTES, quantity_text

if TYPE_CHECKING:
    from fanin.experiments.scenario.file import Scenario


def sweep(
    scenario: options.ScenarioFile,
    changes: options.Changes = [],  # noqa: B006 - typer's way
    program: options.Program = None,
    controller: options.ControllerFile = None,
    worker: options.WorkerFile = None,
    results: options.Results = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Run points again that have earlier results")
    ] = False,
    processes: options.Processes = None,
    scheduler: options.Scheduler = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print which points would run, for how long, and in how much memory"),
    ] = False,
    as_json: options.PointsAsJson = False,
) -> None:
    """Run a scenario for every combination of settings.

    Points in virtual time run on all cores. Points that earlier sweeps have finished in the same folder are not run
    again.

    Examples:
        fanin sweep scenario:small-virtual --set loss=0,0.01 --set workers=2,4
        fanin sweep lesson:scaling --dry-run
    """
    from fanin.run_points import load, run_scenario

    changes = [*changes, *options.brought(program=program, controller=controller, worker=worker)]
    found = load("sweep", scenario, changes)
    if dry_run:
        _estimate(found, results or Path("results", found.frame.name), restart, processes, as_json)
    else:
        run_scenario(
            "sweep",
            scenario,
            found,
            changes,
            results,
            afresh=restart,
            processes=processes,
            scheduler=scheduler,
            as_json=as_json,
        )


def _estimate(scenario: Scenario, folder: Path, restart: bool, processes: int | None, as_json: bool) -> None:
    """Print the points that would run, and how much time and memory they would take together."""
    from math import isnan

    from fanin.cli_errors import complain, failing
    from fanin.experiments.estimate import UNCERTAINTY, hops_per_second, point_seconds, wall_seconds
    from fanin.experiments.results.files import Journal
    from fanin.experiments.scenario.settings import setting_columns
    from fanin.experiments.scenario.tools import ToolError
    from fanin.experiments.sweep import cores, finished, memory_of, tight, too_large
    from fanin.native.python_file import PythonFileError
    from fanin.output import say
    from fanin.p4compiler import CompileError
    from fanin.run_points import setting_texts
    from fanin.table import new_table, print_records, print_table

    rows = Journal(folder).rows()
    with failing("sweep", PythonFileError, ToolError, CompileError):
        there = set() if restart else set(finished(rows, scenario.points))
    speed, at_a_time = hops_per_second(rows.values()), processes or cores()
    records: list[dict[str, Any]] = []
    live, virtual, memory, unknown = 0.0, [], [], 0
    for point in scenario.points:
        if point.key in there:
            continue
        with failing("sweep", ToolError):
            seconds = point_seconds(point, speed)
        needed = memory_of(point) if point.world == "virtual" else None
        if isnan(seconds):
            unknown += 1
        elif needed is None:
            live += seconds
        else:
            virtual.append(seconds)
            memory.append(needed)
        records.append(setting_columns(point) | {"about_seconds": seconds, "memory_bytes": needed})
    if as_json:
        print_records(records)
    else:
        table = new_table(scenario.varied, "about s", "memory")
        for record in records:
            seconds, needed = record["about_seconds"], record["memory_bytes"]
            table.add_row(
                *setting_texts(scenario.varied, record),
                "" if isnan(seconds) else f"{seconds:,.0f}",
                "" if needed is None else quantity_text(needed, BYTES),
            )
        print_table(table, max(1, len(scenario.varied)))
    simulated = [point for point in scenario.points if point.world == "virtual"]
    if warnings := [text for test in (too_large, tight) for point in simulated if (text := test(point))]:
        complain("sweep", f"warning: {warnings[0]}")
    count = len(scenario.points)
    about = live + wall_seconds(virtual, at_a_time)
    largest = sum(sorted(memory)[-at_a_time:])
    say(
        f"{counted(count, 'point')}, {len(there)} of them already done. "
        f"The rest takes about {about:,.0f} s ({about / UNCERTAINTY:,.0f} to {about * UNCERTAINTY:,.0f} s, and longer "
        "if the machine is busy)"
        + (f", not counting {unknown} of unknown duration" if unknown else "")
        + (f"; {at_a_time} at a time, in up to {quantity_text(largest, BYTES)}" if virtual else "")
        + ". Nothing has been run.",
        err=as_json,
    )
