"""Collectives in the columns of nccl-tests, live and in virtual time.

Sources: nccl-tests, doc/PERFORMANCE.md, for the columns and the factors of the bus bandwidth.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fanin.assurance.bench.allreduce_worker import Report
from fanin.assurance.bench.collectives_worker import CollectiveOrder
from fanin.assurance.bench.joined import carry_out, times_of
from fanin.experiments.scenario.problems import problems
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.compression import Compression
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.testbed.running import RunningNetwork
from fanin.workers.collective import Algorithm, Operation

LIVE: tuple[Operation, ...] = ("all-reduce", "reduce-scatter", "all-gather", "broadcast")

# Tables of scenarios that replace calls of a single collective.
_TABLES_WITH_CALLS = ("parallelism", "training", "decoding", "serving", "arrivals")

HEADINGS = ("size B", "count", "type", "redop", "time us", "algbw GB/s", "busbw GB/s", "#wrong")


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """One collective at one size.

    Attributes:
        operation: The operation.
        algorithm: "in-network" or "ring".
        workers: Number of ranks.
        bytes: Size of the whole array, as nccl-tests counts it: for an all-gather or a reduce-scatter, of the parts of
            all ranks.
        seconds: Time of each repetition, from the last worker's call to the last result.
        wrong: Number of elements outside their bound, of all results.
    """

    operation: Operation
    algorithm: str
    workers: int
    bytes: int
    seconds: Sequence[float]
    wrong: int

    @property
    def mean_seconds(self) -> float:
        """Return the mean time, which nccl-tests prints."""
        return statistics.mean(self.seconds)

    @property
    def algorithm_bandwidth(self) -> float:
        """Return the size divided by the mean time, in bytes per second."""
        return self.bytes / self.mean_seconds

    @property
    def bus_bandwidth(self) -> float:
        """Return the algorithm bandwidth times the factor of the operation, in bytes per second."""
        return self.algorithm_bandwidth * bus_factor(self.operation, self.workers)

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the values below HEADINGS; as in nccl-tests, the count is that of a part if ranks have parts."""
        whole = self.operation in ("all-reduce", "broadcast")
        return (
            f"{self.bytes:,}",
            f"{self.bytes // 4 // (1 if whole else self.workers):,}",
            "float",
            "sum" if self.operation in ("all-reduce", "reduce-scatter") else "none",
            f"{1e6 * self.mean_seconds:,.2f}",
            f"{self.algorithm_bandwidth / 1e9:.4f}",
            f"{self.bus_bandwidth / 1e9:.4f}",
            f"{self.wrong:,}",
        )


def bus_factor(operation: Operation, workers: int) -> float:
    """Return by what the algorithm bandwidth is multiplied, so that it can be compared with the rate of a link.

    nccl-tests prints an all-reduce with the factor of algorithms between ranks, also if the network adds up; its
    bandwidth may then exceed the rate of a link.
    """
    match operation:
        case "all-reduce":
            return 2 * (workers - 1) / workers
        case "reduce-scatter" | "all-gather" | "all-to-all":
            return (workers - 1) / workers
        case "broadcast":
            return 1.0


def whole_parts(operation: Operation, size: int, workers: int) -> int:
    """Return the bytes of the whole array that is measured: if ranks have parts, of parts of the same size.

    Args:
        operation: The operation.
        size: The bytes that are asked for, a multiple of 4.
        workers: Number of ranks.
    """
    if operation in ("all-reduce", "broadcast"):
        return size
    smallest = ELEMENT_BYTES * workers
    return max(smallest, size // smallest * smallest)


def measure_live(
    network: RunningNetwork, orders: Sequence[CollectiveOrder], done: Callable[[CollectiveTime], None]
) -> list[CollectiveTime]:
    """Measure collectives on all hosts of a running network; `done` is called with each as soon as it is known.

    Raises:
        NetworkError: The network is gone, or workers failed; with the message of each.
        KeyboardInterrupt: All workers have been ended.
    """
    found = []

    def show(order: CollectiveOrder, reports: Sequence[Report]) -> None:
        wrong, size = sum(report.wrong for report in reports), 4 * order.elements
        found.append(
            CollectiveTime(order.operation, order.algorithm, len(reports), size, times_of(reports), wrong)
        )
        done(found[-1])

    carry_out(network, "fanin.assurance.bench.collectives_worker", orders, show)
    return found


def virtual_point(
    settings: Settings, operation: Operation, algorithm: Algorithm, size: int, repetitions: int
) -> Settings:
    """Return the point that carries out a collective in virtual time.

    Args:
        settings: The network, and what else does not depend on the other arguments.
        operation: The operation.
        algorithm: "in-network", which no all-to-all has, or an algorithm between hosts; other operations than
            all-reduce need "ring".
        size: Bytes of the whole array.
        repetitions: Number of repetitions.

    Raises:
        ValueError: If the settings do not allow the collective; each line of the message names a key.
    """
    given = {name: getattr(settings, name) is not None for name in _TABLES_WITH_CALLS}
    given["workload.trace"] = settings.workload is not None and bool(settings.workload.trace)
    if found := [name for name, there in given.items() if there]:
        raise ValueError("\n".join(f"{name}: gives its own calls; leave it out" for name in found))
    changes: dict[str, object] = {"step": None, "workload": None, "compression": Compression()}
    changes |= {"collective": operation, "algorithm": algorithm, "size": size, "repetitions": repetitions}
    changes["check"] = "all"
    point = settings.model_copy(update=changes).settled
    if found := list(problems(point)):
        raise ValueError("\n".join(found))
    return point


def measure_virtual(
    settings: Settings,
    switch: Engine,
    operation: Operation,
    algorithm: Algorithm,
    size: int,
    repetitions: int,
) -> CollectiveTime:
    """Measure a collective in virtual time.

    Args:
        settings: See virtual_point, as for the arguments after `switch`.
        switch: The program of its switches.
        operation: The operation.
        algorithm: How it is carried out.
        size: Bytes of the whole array.
        repetitions: Number of repetitions.

    Raises:
        ValueError: If the settings do not allow the collective; each line of the message names a key.
    """
    point = virtual_point(settings, operation, algorithm, size, repetitions)
    measured = run_virtual(point, switch)
    assert measured.violations is not None
    return CollectiveTime(
        operation, algorithm, len(point.members), size, measured.seconds, measured.violations
    )
