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
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.compression import Compression
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.testbed.running import RunningNetwork
from fanin.workers.collective import Algorithm, Operation

LIVE: tuple[Operation, ...] = ("all-reduce", "reduce-scatter", "all-gather", "broadcast")

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
        settings: The network, and what else does not depend on the other arguments.
        switch: The program of its switches.
        operation: The operation.
        algorithm: "in-network", which no all-to-all has, or an algorithm between hosts; other operations than
            all-reduce need "ring".
        size: Bytes of the whole array.
        repetitions: Number of repetitions.
    """
    changes: dict[str, object] = {"step": None, "compression": Compression()}
    changes |= {"collective": operation, "algorithm": algorithm, "size": size, "repetitions": repetitions}
    changes["check"] = "all"
    measured = run_virtual(settings.model_copy(update=changes).settled, switch)
    assert measured.violations is not None
    workers = len(settings.members)
    return CollectiveTime(operation, algorithm, workers, size, measured.seconds, measured.violations)
