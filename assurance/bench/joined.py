"""All-reduces on a running network, by a worker on each of its hosts (joined_worker.py)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fanin.assurance.bench.allreduce_worker import Order, Report
from fanin.testbed.interrupt import run_until_interrupted
from fanin.testbed.running import JOB_SERVICE, RunningNetwork
from fanin.testbed.worker_process import WorkerProcess
from fanin.topologies.errors import NetworkError
from fanin.workers.job.environment import HOST, SERVICE

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Order = TypeVar("_Order", bound="DataclassInstance")

_GRACE = 3.0  # seconds for the others to report why they ended, after the first


@dataclass(frozen=True, slots=True)
class JoinedOutcome:
    """The results of an order.

    Attributes:
        workers: Number of workers.
        bytes: Size of the vector.
        seconds: Time of each repetition, from the last worker's call to the last result.
        retransmissions: Retransmissions of all workers, including the first all-reduce, which is not in `seconds`.
        wrong: Number of elements of all sums that are outside their bound.
    """

    workers: int
    bytes: int
    seconds: list[float]
    retransmissions: int
    wrong: int


def all_reduce(
    network: RunningNetwork, orders: Sequence[Order], done: Callable[[JoinedOutcome], None]
) -> list[JoinedOutcome]:
    """Execute orders on all hosts; `done` is called with each outcome as soon as it is known.

    Raises:
        NetworkError: The network is gone, or workers failed; with the message of each.
        KeyboardInterrupt: All workers have been ended.
    """
    outcomes = []

    def show(order: Order, reports: Sequence[Report]) -> None:
        outcomes.append(_outcome(order, reports))
        done(outcomes[-1])

    carry_out(network, "fanin.assurance.bench.joined_worker", orders, show)
    return outcomes


def carry_out(
    network: RunningNetwork,
    module: str,
    orders: Sequence[_Order],
    done: Callable[[_Order, Sequence[Report]], None],
) -> None:
    """Have a worker on each host carry out orders; `done` is called with the reports by rank, as soon as all are there.

    Args:
        network: The network.
        module: The worker's module, which is given the orders as JSON and prints a Report for each.
        orders: The orders, which are dataclasses.
        done: Called after each order.

    Raises:
        NetworkError: The network is gone, or workers failed; with the message of each.
        KeyboardInterrupt: All workers have been ended.
    """
    run_until_interrupted(_carry_out(network, module, orders, done))


async def _carry_out(
    network: RunningNetwork,
    module: str,
    orders: Sequence[_Order],
    done: Callable[[_Order, Sequence[Report]], None],
) -> None:
    hosts = list(network.hosts)

    def start(rank: int, argv: Sequence[str], options: dict[str, Any]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(network.inside(argv, hosts[rank]), **options)

    asked = json.dumps([asdict(order) for order in orders])
    argv = [sys.executable, "-P", "-m", module, asked]
    service = str(network.run.folder / JOB_SERVICE)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fanin-"))
        workers: dict[str, WorkerProcess] = {}
        for rank, host in enumerate(hosts):
            environment = {HOST: host, SERVICE: service}
            workers[host] = WorkerProcess(start, rank, argv, Path(folder, f"{host}.err"), environment)
            stack.callback(workers[host].kill)
        for order in orders:
            try:
                reports = await asyncio.gather(*map(_report, workers.values()))
            except EOFError:
                reasons = await asyncio.gather(*map(_failure, workers, workers.values()))
                raise NetworkError("\n  ".join(["the all-reduce failed:", *filter(None, reasons)])) from None
            done(order, reports)


async def _report(worker: WorkerProcess) -> Report:
    """Return the worker's next report.

    Raises:
        EOFError: It has ended.
    """
    line = await worker.hear()
    if not line:
        raise EOFError
    return Report(**json.loads(line))


async def _failure(host: str, worker: WorkerProcess) -> str:
    """Return why a worker has failed; empty if it has not, or not yet."""
    try:
        how = await asyncio.wait_for(worker.end(), _GRACE)
    except TimeoutError:
        return ""
    # It exits with status 1 if it prints the reason itself.
    return "" if how.startswith("exit status 0") else f"{host}: {how.removeprefix('exit status 1: ')}"


def _outcome(order: Order, reports: Sequence[Report]) -> JoinedOutcome:
    return JoinedOutcome(
        workers=len(reports),
        bytes=4 * order.elements,
        seconds=times_of(reports),
        retransmissions=sum(report.retransmissions for report in reports),
        wrong=sum(report.wrong for report in reports),
    )


def times_of(reports: Sequence[Report]) -> list[float]:
    """Return the time of each repetition in seconds, from the last worker's call to the last result."""
    starts, ends = (
        np.max([getattr(report, name) for report in reports], axis=0) for name in ("starts", "ends")
    )
    found: list[float] = (ends - starts).tolist()
    return found
