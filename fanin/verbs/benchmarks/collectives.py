"""`fanin bench collectives`: collectives in the columns of nccl-tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.cli_errors import failing, failure
from fanin.native.text import counted
from fanin.options import Network, several
from fanin.verbs.benchmarks.options import AsJson, Sizes, sizes_in_bytes

if TYPE_CHECKING:
    from fanin.assurance.bench.collectives import CollectiveTime
    from fanin.workers.collective import Operation


def collectives(
    operations: Annotated[
        list[str],
        typer.Option(
            help="all-reduce, reduce-scatter, all-gather, broadcast; in virtual time also all-to-all",
            metavar="OPERATION,…",
        ),
    ] = ["all-reduce"],  # noqa: B006 - typer's way
    sizes: Sizes = ["1 KiB", "64 KiB", "1 MiB"],  # noqa: B006
    repetitions: Annotated[int, typer.Option(min=1, help="Repetitions of each size, after one warm-up")] = 5,
    scenario: Annotated[
        str | None,
        typer.Option(help="Measure in virtual time, on the network of the first point of this scenario"),
    ] = None,
    supervisor: Network = None,
    as_json: AsJson = False,
) -> None:
    """Measure collectives, and print the columns of nccl-tests.

    They run on a network that is up, or with --scenario in virtual time, in the network and with a ring between the
    hosts. Sizes are those of whole arrays, `time` is the mean of all repetitions, and `#wrong` counts elements outside
    their bound.

    Examples:
        fanin bench collectives --scenario scenario:small-virtual
        fanin bench collectives --scenario scenario:small-virtual --sizes "1 MiB"
    """
    from typing import get_args

    from fanin.assurance.bench import collectives as of
    from fanin.assurance.bench.collectives_worker import CollectiveOrder
    from fanin.progress import Steps
    from fanin.table import new_table, print_records, print_table
    from fanin.testbed.running import find_network
    from fanin.topologies.errors import NetworkError
    from fanin.workers.collective import Operation

    known: tuple[Operation, ...] = get_args(Operation) if scenario else of.LIVE
    wanted: list[Operation] = []
    for name in several("--operations", operations):
        operation = next((each for each in known if each == name), None)
        if operation is None:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(known)}", param_hint="--operations")
        wanted.append(operation)
    found: list[of.CollectiveTime] = []
    table = new_table(["operation", "algorithm"], *of.HEADINGS)

    def show(time: of.CollectiveTime) -> None:
        progress.advance(note=f"{time.operation}, {time.algorithm}")
        found.append(time)
        table.add_row(time.operation, time.algorithm, *time.cells)
        if as_json:
            bandwidths = {
                "algorithm_bytes_per_second": time.algorithm_bandwidth,
                "bus_bytes_per_second": time.bus_bandwidth,
            }
            print_records([asdict(time) | bandwidths])

    lengths = sizes_in_bytes(sizes)
    with Steps("cases", None, shown=not as_json) as progress:
        if scenario is None:
            with failing("bench collectives", NetworkError):
                network = find_network(supervisor=supervisor)
                workers = len(network.hosts)
                orders = [
                    CollectiveOrder(name, algorithm, of.whole_parts(name, size, workers) // 4, repetitions)
                    for name in wanted
                    for algorithm in ("in-network", "ring")
                    for size in lengths
                ]
                of.measure_live(network, orders, show)
        else:
            _virtual_collectives(scenario, wanted, lengths, repetitions, show)
    if not as_json:
        print_table(table, 2)
    if wrong := sum(time.wrong for time in found):
        raise failure("bench collectives", f"{counted(wrong, 'element')} outside the bound")


def _virtual_collectives(
    scenario: str,
    operations: Sequence[Operation],
    sizes: Sequence[int],
    repetitions: int,
    done: Callable[[CollectiveTime], None],
) -> None:
    from fanin.assurance.bench.collectives import measure_virtual, virtual_point, whole_parts
    from fanin.experiments.scenario.file import ScenarioError, load_scenario
    from fanin.experiments.scenario.shipped import scenario_file
    from fanin.simulator.fabric import load_switch

    with failing("bench collectives", ScenarioError, status=2):
        settings = load_scenario(scenario_file(scenario)).points[0]
    if settings.world == "live":
        raise failure("bench collectives", f"{scenario}: is live; give a scenario in virtual time", status=2)
    cases = [
        (operation, algorithm, whole_parts(operation, size, len(settings.members)), repetitions)
        for operation in operations
        for algorithm in (("ring",) if operation == "all-to-all" else ("in-network", "ring"))
        for size in sizes
    ]
    for case in cases:  # nothing is measured unless all can be
        try:
            virtual_point(settings, *case)
        except ValueError as error:
            raise failure("bench collectives", f"{scenario}: {error}", status=2) from None
    switch = load_switch(settings.implementation.program)
    for case in cases:
        done(measure_virtual(settings, switch, *case))
