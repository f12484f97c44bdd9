"""`fanin allreduce`: all-reduces on a network that is up, timed and checked."""

from __future__ import annotations

import json
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
    from fanin.assurance.bench.joined import Outcome


def allreduce(
    sizes: Annotated[
        list[str],
        typer.Option(
            help="sizes of the vectors, as in scenarios; may be given several times", metavar="SIZE,…"
        ),
    ] = ["64 kB", "1 MB", "4 MB"],  # noqa: B006 - typer's way
    repetitions: Annotated[int, typer.Option(min=1, help="how often each, after once to warm up")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="a line of JSON for each size")] = False,
    supervisor: Network = None,
) -> None:
    """All-reduce vectors through a network that is up, with a worker on each host, and check every sum.

    The workers get a lease from the network's controller. The exit status is 1 if an element of a sum is not within
    its bound.
    """
    from fanin.assurance.bench.allreduce_worker import Order
    from fanin.assurance.bench.joined import all_reduce

    orders = [Order(size // 4, repetitions) for size in vector_sizes(sizes)]

    def show(outcome: Outcome) -> None:
        say(json.dumps(asdict(outcome)) if as_json else _row(outcome))

    with failing("allreduce", NetworkError):
        network = find_network(supervisor=supervisor)
        if not as_json:
            say(_HEADING.format("size", "least", "median", "most", "rate", "sent again", "sums"))
        outcomes = all_reduce(network, orders, show)
    if wrong := sum(outcome.wrong for outcome in outcomes):
        raise failure("allreduce", f"{wrong} elements of sums lie outside their bound")


_HEADING = "{:>12}  {:>10}  {:>10}  {:>10}  {:>12}  {:>10}  {}"


def _row(outcome: Outcome) -> str:
    from fanin.topologies.units import BYTES, RATES, TIMES, quantity_text

    median = statistics.median(outcome.seconds)
    times = (min(outcome.seconds), median, max(outcome.seconds))
    return _HEADING.format(
        quantity_text(outcome.bytes, BYTES),
        *(quantity_text(seconds, TIMES) for seconds in times),
        quantity_text(8 * outcome.bytes / median, RATES),
        outcome.retransmissions,
        f"{outcome.wrong} elements outside their bound" if outcome.wrong else "within their bounds",
    )
