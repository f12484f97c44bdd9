"""What is measured at a point, alike in both worlds, and the row of results that it becomes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fanin.experiments.results.bottleneck import Limit, limited_by
from fanin.experiments.results.faults import FaultOutcome, fault_columns
from fanin.experiments.results.usage import Usage
from fanin.experiments.scenario.settings import Settings, setting_columns
from fanin.experiments.training.sgd import Curve
from fanin.workers.recovery import Recovery
from fanin.workers.values.compression import TopK

# What links do to packets, in both worlds; in virtual time they pause, too. BMv2's do nothing.
LINK_EVENTS = ("lost", "lost_in_bursts", "corrupted", "duplicated", "reordered", "queue_drops", "ecn_marks")
PAUSE_EVENTS = ("pauses", "storms", "watchdog_drops")

Row = dict[str, Any]  # a column's name: None, or a number, a text, or a list of these


@dataclass(frozen=True, slots=True)
class FlowTimes:
    """Of a set of flows: how many, their bytes, and their completion times in seconds; None: there are none.

    Slowdowns are multiples of the time that a flow takes alone (models/alone.py).

    Percentiles are times that occurred: the smallest that so many flows did not exceed.
    """

    count: int = 0
    size: int = 0
    mean: float | None = None
    p50: float | None = None
    p99: float | None = None
    p999: float | None = None
    slowdown_p50: float | None = None
    slowdown_p99: float | None = None

    @classmethod
    def of(cls, sizes: Sequence[int], seconds: Sequence[float], slowdowns: Sequence[float]) -> FlowTimes:
        """Of flows of so many bytes, which took so long, and so many times as long as alone."""
        if not sizes:
            return cls()
        p50, p99, p999 = _percentiles(seconds, 500, 990, 999)
        mean = float(np.mean(sorted(seconds)))
        return cls(len(sizes), sum(sizes), mean, p50, p99, p999, *_percentiles(slowdowns, 500, 990))

    def as_columns(self) -> dict[str, int | float | None]:
        """Of a row of results."""
        return {
            "traffic_flows": self.count,
            "traffic_bytes": self.size,
            "traffic_mean_seconds": self.mean,
            "traffic_p50_seconds": self.p50,
            "traffic_p99_seconds": self.p99,
            "traffic_p999_seconds": self.p999,
            "traffic_p50_slowdown": self.slowdown_p50,
            "traffic_p99_slowdown": self.slowdown_p99,
        }


def _percentiles(values: Sequence[float], *thousandths: int) -> list[float]:
    ordered = sorted(values)
    return [ordered[-(-len(ordered) * share // 1000) - 1] for share in thousandths]


@dataclass(frozen=True, slots=True)
class Measured:
    """A run's all-reduces: `seconds` of each, from the last worker's call to the last worker's result.

    elements: float32 values in a vector. wire_bytes_per_worker, packets_per_worker: Ethernet frames, sent and
    received, of one all-reduce.
    Retransmissions, drops, link events (what links did to packets, by kind) and violations are of the whole run.
    violations: elements of results outside their bound. closed_form_seconds: what bytes and latencies alone say.
    packet_hops: packets carried over all links. curve: rank 0's, of a training. None: unavailable in this world.
    window, segments, recovery: as workers had them, whatever the scenario left out. None: TCP's own, or unavailable.
    congestion_window: packets, at the end, the mean of all workers of a job in the network.
    wait_seconds: of a worker, from its own call to its result, on average; those that are late wait the least.
    other_job_seconds: of an all-reduce of the other job, the median.
    step_seconds, exposed_seconds, gpu_idle_share: of a step that computes, on average: from the barrier to the last
    sum, what of it is after the slowest worker's computing, and what share of it workers do not compute.
    link_utilization, processor_utilization: shares of the time of all-reduces, live; see testbed/load.py.
    usage: of each link and worker, which has files of its own beside the rows (usage.py).
    traffic: completion times of what other hosts sent beside the job; None: nothing.
    workers_left: how many have the last sum. faults: what became of each, in the order of the scenario.
    """

    seconds: tuple[float, ...]
    elements: int
    wire_bytes_per_worker: float
    packets_per_worker: float
    retransmissions: int
    drops: Mapping[str, int]
    link_events: Mapping[str, int]
    violations: int
    max_abs_error: float
    error_bound: float
    closed_form_seconds: float | None
    packet_hops: int | None = None
    curve: Curve | None = None
    window: int | None = None
    segments: int | None = None
    recovery: Recovery | None = None
    congestion_window: float | None = None
    wait_seconds: float | None = None
    other_job_seconds: float | None = None
    step_seconds: float | None = None
    exposed_seconds: float | None = None
    gpu_idle_share: float | None = None
    link_utilization: float | None = None
    processor_utilization: float | None = None
    usage: Usage | None = None
    traffic: FlowTimes | None = None
    workers_left: int | None = None
    faults: tuple[FaultOutcome, ...] = ()

    @property
    def limit(self) -> Limit | None:
        """What set the times, live."""
        return limited_by(self.link_utilization, self.processor_utilization)

    @property
    def median(self) -> float:
        """Seconds of an all-reduce."""
        return float(np.median(self.seconds))

    @property
    def p95(self) -> float:
        """Seconds that 95 of 100 all-reduces take at most."""
        return float(np.percentile(self.seconds, 95))

    @property
    def goodput_bits_per_second(self) -> float:
        """A worker's vector over the median time."""
        return 32 * self.elements / self.median

    @property
    def accuracy(self) -> float | None:
        """That the training came to."""
        return None if self.curve is None else self.curve.accuracy[-1]


def mean_window(windows: Sequence[float | None]) -> float | None:
    """Of all workers; None: they have none."""
    known = [window for window in windows if window is not None]
    return float(np.mean(known)) if known else None


def row(settings: Settings, measured: Measured, /, **rest: Any) -> Row:
    """A flat row: the settings as they were in effect, what was measured, and `rest`."""
    columns = asdict(replace(measured, usage=None, traffic=None, faults=()))
    usage = {} if measured.usage is None else {"usage": measured.usage.as_columns()}
    drops, events = columns.pop("drops"), columns.pop("link_events")
    effective = {"window": columns.pop("window"), "segments": columns.pop("segments")}
    effective |= columns.pop("recovery") or {}
    del columns["curve"], columns["usage"], columns["traffic"], columns["faults"]
    return {
        **setting_columns(settings),
        **_in_effect(settings),
        **effective,
        "median_seconds": measured.median,
        "p95_seconds": measured.p95,
        "min_seconds": min(measured.seconds),
        "max_seconds": max(measured.seconds),
        "goodput_bits_per_second": measured.goodput_bits_per_second,
        **columns,
        **(measured.traffic or FlowTimes()).as_columns(),
        **fault_columns(measured.faults),
        "limited_by": measured.limit,
        "accuracy": measured.accuracy,
        **{f"dropped_{reason}": count for reason, count in drops.items()},
        **{f"link_{kind}": count for kind, count in events.items()},
        **_identity(settings),
        "error": None,
        **usage,
        **rest,
    }


def _in_effect(settings: Settings) -> Row:
    """What a scenario may leave out, where the whole network has it alike; timers and window: see Measured."""
    network, live = settings.network, settings.world == "live"
    properties = [link.properties for link in network.links]
    hosts = {host.name for host in network.hosts}
    found: dict[str, set[Any]] = {
        "delay": {(one.delay or 0.0) if live else one.virtual_delay for one in properties},
        "overhead": {(one.overhead or 0) if live else one.virtual_overhead for one in properties},
        "uplink_rate": {
            link.rate_bits_per_second for link in network.links if not hosts & {link.a.node, link.b.node}
        },
    }
    columns: Row = {name: values.pop() for name, values in found.items() if len(values) == 1}
    rate = settings.host_link.rate_bits_per_second
    control = settings.congestion.in_effect(rate) if settings.between_hosts and not live else {}
    columns |= {f"congestion_{name}": value for name, value in control.items()}
    if isinstance(compressor := settings.compression.compressor, TopK):
        columns["compression_density"] = compressor.density
    if settings.algorithm == "parameter-server":
        columns["shards"] = settings.shards or len(settings.members)
    return columns


def wait_of(row: Row) -> float:
    """Seconds that a worker waits for a sum; rows of earlier versions have that of the last one to call."""
    seconds: float = row.get("wait_seconds") or row["median_seconds"]
    return seconds


def failed_row(settings: Settings, error: str, /, **rest: Any) -> Row:
    """The row of a run that gave nothing but an error."""
    return {**setting_columns(settings), **_identity(settings), "error": error, **rest}


def _identity(settings: Settings) -> Row:
    """What it takes to run the point again, and a name for that."""
    return {"key": settings.key, "settings": json.dumps(settings.model_dump(mode="json"))}
