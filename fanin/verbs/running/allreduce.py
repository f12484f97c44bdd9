"""`fanin allreduce`: all-reduces on a running network, timed and checked."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.cli_errors import failing, failure
from fanin.native.text import counted
from fanin.options import Network, vector_sizes
from fanin.testbed.running import find_network
from fanin.topologies.errors import NetworkError

if TYPE_CHECKING:
    from fanin.assurance.bench.joined import JoinedOutcome


def allreduce(
    sizes: Annotated[
        list[str],
        typer.Option(help="Sizes of the vectors; may be repeated", metavar="SIZE,…"),
    ] = ["64 kB", "1 MB", "4 MB"],  # noqa: B006 - typer's way
    repetitions: Annotated[
        int, typer.Option(min=1, help="Number of all-reduces of each size, after one to warm up")
    ] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each size")] = False,
    supervisor: Network = None,
) -> None:
    """All-reduce vectors on a running network; check every sum.

    Each host runs a worker, and the job gets a lease from the controller. The first columns are those of nccl-tests:
    `time` is the mean of all repetitions, and `#wrong` counts elements outside their bound, in which case the exit
    status is 1.

    Examples:
        fanin allreduce
        fanin allreduce --sizes "64 kB,1 MB" --repetitions 3
    """
    from fanin.assurance.bench.allreduce_worker import Order
    from fanin.assurance.bench.collectives import HEADINGS
    from fanin.assurance.bench.joined import all_reduce
    from fanin.progress import Steps
    from fanin.table import new_table, print_records, print_table

    orders = [Order(size // 4, repetitions) for size in vector_sizes(sizes)]
    table = new_table([], *HEADINGS, "least us", "most us", "resent")

    def show(outcome: JoinedOutcome) -> None:
        progress.advance()
        table.add_row(*_cells(outcome))
        if as_json:
            print_records([asdict(outcome)])

    with failing("allreduce", NetworkError):
        network = find_network(supervisor=supervisor)
        try:
            with Steps("sizes", len(orders), shown=not as_json) as progress:
                outcomes = all_reduce(network, orders, show)
        finally:  # what was measured before a worker failed, or before Ctrl-C
            if table.rows and not as_json:
                print_table(table)
    if wrong := sum(outcome.wrong for outcome in outcomes):
        raise failure("allreduce", f"{counted(wrong, 'element')} of sums outside the bound")


def _cells(outcome: JoinedOutcome) -> list[str]:
    from fanin.assurance.bench.collectives import CollectiveTime

    time = CollectiveTime(
        "all-reduce", "in-network", outcome.workers, outcome.bytes, outcome.seconds, outcome.wrong
    )
    extremes = (f"{1e6 * each(outcome.seconds):,.2f}" for each in (min, max))
    return [*time.cells, *extremes, f"{outcome.retransmissions:,}"]
