"""`fanin bench virtual`: the speed of the simulator."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.cli_errors import failing
from fanin.native.extras import install_command
from fanin.options import MOST_CORES, ResultsFolder
from fanin.output import say
from fanin.verbs.benchmarks.options import AsJson

if TYPE_CHECKING:
    from fanin.assurance.bench.htsim import FlowRun
    from fanin.assurance.bench.virtual import BenchPoint


def virtual(
    most: Annotated[int, typer.Option(help="Largest number of workers")] = 1024,
    cores: Annotated[
        int, typer.Option(min=1, max=MOST_CORES, help="Cores that share the work, in turns with one core")
    ] = 1,
    ns3_python: Annotated[
        Path | None,
        typer.Option(help="Python that has ns-3; $FANIN_NS3_PYTHON or this one by default"),
    ] = None,
    htsim: Annotated[
        Path | None,
        typer.Option(help="Program htsim_eqds of csg-htsim, to compare with it"),
    ] = None,
    results: ResultsFolder = Path("results/bench"),
    as_json: AsJson = False,
) -> None:
    """Measure the simulator, next to ns-3 and htsim.

    It has 8 to 1,024 workers.

    The workers all-reduce 4 MiB in racks of 32. The comparisons with ns-3 and htsim use flows between hosts.

    Examples:
        fanin bench virtual --most 64 --cores 2
        fanin bench virtual --most 8 --htsim csg-htsim/sim/datacenter/htsim_eqds
    """
    # Imported here to keep --help and the refusal of wrong options fast.
    from fanin.assurance.bench.htsim import HEADINGS as FLOW_HEADINGS
    from fanin.assurance.bench.htsim import HtsimError
    from fanin.assurance.bench.htsim import bench as bench_htsim
    from fanin.assurance.bench.ns3.beside import RUN_HEADINGS, Ns3Error, Run
    from fanin.assurance.bench.ns3.beside import bench as bench_ns3
    from fanin.assurance.bench.pythons import NS3, PythonError, find_python
    from fanin.assurance.bench.virtual import HEADINGS, WORKERS, write
    from fanin.assurance.bench.virtual import bench as bench_virtual
    from fanin.progress import Steps
    from fanin.table import new_table, print_records, print_table

    table = new_table(["workers"], *HEADINGS)

    def show(point: BenchPoint) -> None:
        progress.advance()
        table.add_row(str(point.workers), *point.cells)
        if as_json:
            print_records([asdict(point)])

    runs = new_table(["simulator"], *RUN_HEADINGS)

    def show_run(name: str, run: Run) -> None:
        runs.add_row(name, *run.cells)
        if as_json:
            print_records([{"simulator": name, **asdict(run)}])

    with failing("bench virtual", PythonError, status=2):
        python = find_python(ns3_python, NS3)
    counts = [count for count in WORKERS if count <= most]
    with Steps("numbers of workers", len(counts) * (1 + (cores > 1)), shown=not as_json) as progress:
        points = bench_virtual(counts, cores, show)
    write(points, results)
    if not as_json:
        print_table(table)
    say(f"{results}/virtual.json", err=as_json)
    if python is None:
        say(
            f"ns-3 is not installed; type {install_command('ns3')}, or give a Python that has it with --ns3-python",
            err=as_json,
        )
    else:
        with failing("bench virtual", Ns3Error):
            written = bench_ns3(python, show_run, results)
        if not as_json:
            print_table(runs)
        say(written, err=as_json)
    if htsim is not None:
        flows = new_table(["case"], *FLOW_HEADINGS)

        def show_flows(run: FlowRun) -> None:
            flows.add_row(run.case, *run.cells)
            if as_json:
                print_records([asdict(run)])

        with failing("bench virtual", HtsimError):
            say(bench_htsim(htsim, show_flows, results), err=as_json)
        if not as_json:
            print_table(flows)
    if not all(point.exact for point in points):
        raise typer.Exit(1)
