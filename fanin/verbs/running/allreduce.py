"""`fanin allreduce`: all-reduces on a running network, timed and checked."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.cli_errors import failing, failure
from fanin.options import Network, vector_sizes
from fanin.output import say
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

    Each host runs a worker, and the job gets a lease from the controller. The exit status is 1 if an element of a sum
    is outside its bound.

    Examples:
        fanin allreduce
        fanin allreduce --sizes "64 kB,1 MB" --repetitions 3
    """
    from fanin.assurance.bench.allreduce_worker import Order
    from fanin.assurance.bench.joined import all_reduce
    from fanin.table import print_records

    orders = [Order(size // 4, repetitions) for size in vector_sizes(sizes)]

    def show(outcome: JoinedOutcome) -> None:
        if as_json:
            print_records([asdict(outcome)])
        else:
            say(_row(outcome))

    with failing("allreduce", NetworkError):
        network = find_network(supervisor=supervisor)
        if not as_json:
            say(_HEADING.format("size", "minimum", "median", "maximum", "rate", "resent", "sums"))
        outcomes = all_reduce(network, orders, show)
    if wrong := sum(outcome.wrong for outcome in outcomes):
        raise failure("allreduce", f"{wrong} elements of sums lie outside their bound")


_HEADING = "{:>9}  {:>9}  {:>9}  {:>9}  {:>10}  {:>6}  {}"


def _row(outcome: JoinedOutcome) -> str:
    from fanin.topologies.units import BYTES, RATES, TIMES, quantity_text

    median = statistics.median(outcome.seconds)
    times = (min(outcome.seconds), median, max(outcome.seconds))
    return _HEADING.format(
        quantity_text(outcome.bytes, BYTES),
        *(quantity_text(seconds, TIMES) for seconds in times),
        quantity_text(8 * outcome.bytes / median, RATES),
        outcome.retransmissions,
        f"{outcome.wrong} elements out of bounds" if outcome.wrong else "within bounds",
    )
