"""`fanin bench switch`, `inserts` and `start`: the speed of the switch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from fanin.cli_errors import failing
from fanin.options import ResultsFolder
from fanin.output import say
from fanin.testbed.sandbox import SandboxError, enter
from fanin.verbs.benchmarks.options import AsJson


def switch(
    results: ResultsFolder = Path("results/bench"),
    as_json: AsJson = False,
) -> None:
    """Measure the switch, next to a bare loop in C and BMv2.

    The results are also compared with the goals.

    This takes two minutes. BMv2 is left out if it is not installed.

    Examples:
        fanin bench switch
        fanin bench switch --results results/today
    """
    with failing("bench switch", SandboxError):
        enter()

    from fanin.assurance.bench.switch.bench import HEADINGS, Effort, SwitchOutcome, write
    from fanin.assurance.bench.switch.bench import bench as bench_switch
    from fanin.assurance.bench.switch.errors import SwitchBenchError
    from fanin.progress import Steps
    from fanin.table import new_table, print_records, print_table

    table = new_table(["case", "baseline"], *HEADINGS)

    def show(outcome: SwitchOutcome) -> None:
        progress.advance()
        table.add_row(outcome.case.name, outcome.case.baseline, *outcome.cells)
        if as_json:
            print_records([outcome.columns])

    load = os.getloadavg()
    with (
        failing("bench switch", SwitchBenchError, KeyboardInterrupt),
        Steps("cases", None, shown=not as_json) as progress,
    ):
        outcomes, skipped = bench_switch(Effort(), show)
    if not as_json:
        print_table(table, 2)
    for line in skipped:
        say(f"not run: {line}", err=as_json)
    say(write(outcomes, skipped, load, results), err=as_json)


def inserts(
    count: Annotated[int, typer.Option(min=1000, max=1_000_000, help="Entries in each table")] = 100_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each table")] = False,
) -> None:
    """Measure how fast the switch takes P4Runtime entries.

    The baseline parses and reads the same messages and does nothing else. Entries come in batches of 1,000.

    Examples:
        fanin bench inserts
        fanin bench inserts --count 10000
    """
    from fanin.assurance.bench.switch.inserts import insert_outcome
    from fanin.assurance.bench.switch.tables import Routes
    from fanin.progress import Steps
    from fanin.table import new_table, print_records, print_table

    found = {}
    with Steps("tables", 2, shown=not as_json) as progress:
        for kind in ("lpm", "exact"):
            progress.begin(kind)
            found[kind] = insert_outcome(Routes(kind, count))
            progress.advance()
    if as_json:
        print_records(
            {"table": kind, "entries": count, "seconds": one.seconds, "ratio": one.ratio}
            for kind, one in found.items()
        )
        return
    table = new_table(["table"], "entries a second", "times only reading")
    for kind, one in found.items():
        table.add_row(kind, f"{count / one.seconds:,.0f}", f"{one.ratio:.1f}")
    print_table(table)


def start(
    repeats: Annotated[int, typer.Option(min=1, max=1000, help="Starts of each process")] = 9,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each process")] = False,
) -> None:
    """Measure the time and memory until a switch is ready.

    Its program is in the cache. `fanin --help` is measured as well.

    Each figure is a median, with its goal. For comparison, a Python process only loads gRPC and P4Runtime's messages.

    Examples:
        fanin bench start
        fanin bench start --repeats 3
    """
    from fanin.assurance.bench.switch.errors import SwitchBenchError
    from fanin.assurance.bench.switch.start import start_outcomes
    from fanin.assurance.bench.switch.tables import Routes
    from fanin.controller.requirements import PROGRAM
    from fanin.p4compiler import compile_once
    from fanin.progress import Steps
    from fanin.table import new_table, print_records, print_table

    with (
        failing("bench start", SwitchBenchError, KeyboardInterrupt),
        Steps("starts", 1 + repeats, shown=not as_json) as progress,
    ):
        small, large = Routes("lpm", 1).program, compile_once(PROGRAM)
        found = start_outcomes(small.device_config(), large.device_config(), repeats, progress.advance)
    if as_json:
        print_records(
            {
                "process": name,
                "elapsed_seconds": one.use.elapsed,
                "elapsed_goal": one.goal.elapsed,
                "processor_seconds": one.use.processor,
                "processor_goal": one.goal.processor,
                "bytes": one.use.bytes,
                "bytes_goal": one.goal.bytes,
            }
            for name, one in found.items()
        )
        return
    table = new_table(["process"], *(f"{figure}\ngoal" for figure in ("elapsed s", "processor s", "MB")))
    for name, one in found.items():
        figures = (
            (one.use.elapsed, one.goal.elapsed, 2),
            (one.use.processor, one.goal.processor, 2),
            (one.use.bytes and one.use.bytes / 1e6, one.goal.bytes and one.goal.bytes / 1e6, 1),
        )
        table.add_row(
            name,
            *(
                "\n".join(("" if used is None else f"{used:.{digits}f}", "" if goal is None else f"{goal:g}"))
                for used, goal, digits in figures
            ),
        )
    print_table(table)
