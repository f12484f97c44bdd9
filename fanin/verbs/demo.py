"""`fanin demo`: training with in-network aggregation and with a ring, in a table and figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fanin import options
from fanin.cli_errors import failing, failure
from fanin.experiments.scenario.tools import ToolError
from fanin.output import say
from fanin.testbed.sandbox import SandboxError, enter
from fanin.topologies.errors import NetworkError
from fanin.topologies.units import percent_text

if TYPE_CHECKING:
    from fanin.experiments.demo import Demo

_MAX_LOSS = 0.5


def demo(
    context: typer.Context,
    workers: options.Workers = 8,
    leaves: options.Leaves = 2,
    spines: options.Spines = 2,
    rate: options.Rate = None,
    topology: options.TopologyFile = None,
    loss: Annotated[
        float,
        typer.Option(
            parser=options.probability,
            metavar="PROBABILITY",
            help="Loss per packet and link in the lossy run, such as 1% or 0.01",
        ),
    ] = 0.01,
    switch: options.Switch = "embedded",
    protocol: options.ProtocolName = None,
    program: options.Program = None,
    compiler: options.ProgramCompiler = "embedded",
    controller: options.ControllerFile = None,
    worker: options.WorkerFile = None,
    offload: options.Offload = True,
    pcap: options.Captures = None,
    results: options.ResultsFolder = Path("results/demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each run")] = False,
) -> None:
    """Train with in-network aggregation and compare with ring.

    The demo builds a leaf-spine network, trains a small model with gradients that are summed inside the switches, and
    repeats it with a ring all-reduce on the same links. Every sum is checked. It needs no options.

    Examples:
        fanin demo
        fanin demo --workers 4 --rate "50 Mb/s" --loss 5%
    """
    if loss > _MAX_LOSS:
        raise typer.BadParameter(f"{loss}: at most {_MAX_LOSS}", param_hint="--loss")
    options.refuse_with_topology(topology, context)
    in_each = options.hosts_per_leaf(workers, leaves)
    with failing("demo", SandboxError):
        enter()

    # Imported here to keep --help and the refusal of wrong options fast.
    from fanin.controller.errors import ControllerError
    from fanin.experiments.demo import demo_points, run_demo
    from fanin.experiments.live.worker_group import RunError
    from fanin.experiments.protocol import OURS, ProtocolError, built_in, folder_of, protocol_of
    from fanin.experiments.scenario.file import ScenarioError, load_network
    from fanin.experiments.scenario.tables.topology import LeafSpine, TopologySettings
    from fanin.experiments.scenario.targets import target
    from fanin.experiments.scenario.user_files import program_of
    from fanin.native.python_file import PythonFileError
    from fanin.p4compiler import CompileError
    from fanin.programs import show_warnings
    from fanin.progress import ProgressObserver
    from fanin.table import print_records
    from fanin.topologies.model import TopologyError

    errors = (PythonFileError, ToolError, CompileError, RunError, NetworkError, ControllerError)
    with (
        failing("demo", ScenarioError, TopologyError, ProtocolError, status=2),
        failing("demo", *errors, KeyboardInterrupt),
    ):
        named = protocol or OURS
        if named not in built_in():
            named = str(folder_of(named))
        chosen = protocol_of(named, program, controller, worker)
        if topology:
            network = load_network(topology)
        else:
            shape = LeafSpine(
                spines=spines,
                leaves=leaves,
                hosts_per_leaf=in_each,
                rate=options.link_rate(rate, target(switch).rate),
            )
            shape.build(offload)  # to report errors with the names of the options
            network = TopologySettings(leaf_spine=shape, offload=offload)
        points = demo_points(
            network,
            loss,
            switch,
            compiler,
            protocol=named,
            program=program,
            controller=controller,
            worker=worker,
        )
        with ProgressObserver(shown=not as_json) as observer:
            observer.stage(f"compiling {chosen.program.name}")
            compiled, *_ = map(program_of, points)  # one program that has what each point needs
            show_warnings(compiled.warnings)
            measured = run_demo(points, compiled, results / "logs", observer, pcap)
    measured.write(results)
    if as_json:
        print_records(measured.records)
    else:
        show(measured)
    if measured.violations:
        names = ", ".join(f"{run.name} {run.settings.algorithm}" for run in measured.violations)
        raise failure("demo", f"sums outside their bound: {names}")
    say(f"Every sum within its bound. Results and figures: {results}/", err=as_json)


def show(measured: Demo) -> None:
    """Print the table, and compare the large all-reduce with the theory."""
    from textwrap import fill

    from fanin.console import console
    from fanin.experiments.results.demo_table import table

    in_network, ring = measured.vectors
    ratio = in_network.measured.median / ring.measured.median
    n = len(ring.settings.members)
    console.print(table(measured.runs))
    if in_network.settings.implementation.ours:
        theory = (
            f"the bytes alone explain {n / (2 * (n - 1)):.2f} (ring moves 2(n-1)/n of the vector each way)"
        )
    else:  # how many bytes it sends depends on the protocol
        sent = [run.measured.wire_bytes_per_worker / 1e3 for run in measured.vectors]
        theory = f"each worker sends and receives {sent[0]:,.0f} kB instead of {sent[1]:,.0f}"
    comparison = (
        f"{ring.name} on these links: in-network takes {ratio:.2f} of ring's time with {n} workers; {theory}."
    )
    say(fill(comparison, 80))
    if by_processors := [run for run in measured.runs if run.measured.limit == "processors"]:
        names = ", ".join(
            f"{run.name} {run.settings.algorithm}"
            + (f" with {percent_text(loss)} loss" if (loss := run.settings.links.mean_loss) else "")
            for run in by_processors
        )
        say(fill(f"Processors, not links, set the time of: {names}", 80))
