"""The measurements of a point, the same in live networks and virtual time, and the row of results that they become."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fanin.experiments.models.cost import idle_share
from fanin.experiments.results.bottleneck import Limit, limited_by
from fanin.experiments.results.faults import FaultOutcome, fault_columns
from fanin.experiments.results.usage import Usage
from fanin.experiments.scenario.settings import Settings, setting_columns
from fanin.experiments.training.sgd import Curve
from fanin.workers.recovery import Recovery
from fanin.workers.values.compression import TopK

# Events on links, in live networks and in virtual time; pauses are in virtual time only, and BMv2 has no events.
LINK_EVENTS = ("lost", "lost_in_bursts", "corrupted", "duplicated", "reordered", "queue_drops", "ecn_marks")
PAUSE_EVENTS = ("pauses", "storms", "watchdog_drops")

# Fields of Measured that are columns of their own.
_PARTS = ("traffic", "progress", "serving", "storage", "arrivals")

Row = dict[str, Any]  # a column's name: None, or a number, a text, or a list of these


@dataclass(frozen=True, slots=True)
class FlowTimes:
    """The completion times of a set of flows.

    Percentiles are times that occurred: the smallest that so many flows did not exceed. Slowdowns are multiples of the
    time that a flow takes alone (models/alone.py). Times are in seconds, and None if there are no flows.

    Attributes:
        count: Number of flows.
        size: Their bytes.
        mean: Mean time.
        p50: Median time.
        p99: 99th percentile of the times.
        p999: 99.9th percentile of the times.
        slowdown_p50: Median slowdown.
        slowdown_p99: 99th percentile of the slowdowns.
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
        """Return the completion times of flows with these sizes in bytes, times in seconds, and slowdowns."""
        if not sizes:
            return cls()
        p50, p99, p999 = _percentiles(seconds, 500, 990, 999)
        mean = float(np.mean(sorted(seconds)))
        return cls(len(sizes), sum(sizes), mean, p50, p99, p999, *_percentiles(slowdowns, 500, 990))

    def as_columns(self) -> dict[str, int | float | None]:
        """Return columns of a row of results."""
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


@dataclass(frozen=True, slots=True)
class ServingTimes:
    """The times of requests, and how many there are at a time.

    Attributes:
        p99_seconds: 99th percentile of the times of requests; `p95_seconds` and the median are those of every run.
        predicted_p50_seconds: Median according to the analytical model (models/queues.py); None if it has none.
        predicted_p95_seconds: 95th percentile according to the model.
        predicted_p99_seconds: 99th percentile according to the model.
        mean_request_seconds: Mean time.
        requests_per_second: Requests that came in a second.
        requests_in_progress: Mean number of requests that have come and not ended.
        queued_seconds: Mean time for which a question waits in the queue of a server.
    """

    p99_seconds: float
    predicted_p50_seconds: float | None
    predicted_p95_seconds: float | None
    predicted_p99_seconds: float | None
    mean_request_seconds: float
    requests_per_second: float
    requests_in_progress: float
    queued_seconds: float


@dataclass(frozen=True, slots=True)
class StorageTimes:
    """The times of reads and checkpoints at file servers. None means that there were none, or no prediction.

    Attributes:
        data_wait_seconds: Mean time of a step for which the last worker waits for its data; without the first step.
        read_seconds: Mean time of a read, from the question to the last byte; without the first step's.
        predicted_step_seconds: Time of a step according to the analytical model (models/storage.py).
        fed_workers: Most workers of a server that it feeds without making them wait, according to the model.
        checkpoint_seconds: Mean time until all workers have written a checkpoint.
        predicted_checkpoint_seconds: That of the model.
        storage_retransmissions: Packets that were retransmitted to and from the servers.
    """

    data_wait_seconds: float | None
    read_seconds: float | None
    predicted_step_seconds: float | None
    fed_workers: int | None
    checkpoint_seconds: float | None
    predicted_checkpoint_seconds: float | None
    storage_retransmissions: int


@dataclass(frozen=True, slots=True)
class JobTimes:
    """The completion times of jobs that arrive by a trace, from the arrival to the last sum of the last worker.

    Attributes:
        jobs: Number of jobs.
        mean_job_seconds: Mean completion time; the median and `p95_seconds` are those of every run.
        p99_job_seconds: 99th percentile of the completion times.
        mean_job_wait_seconds: Mean time for which a job waits for hosts and slots; part of its completion time.
        jobs_seconds: The completion time of each job, in the order of arrivals.
        makespan_seconds: Time from the first arrival to the end of the last job.
    """

    jobs: int
    mean_job_seconds: float
    p99_job_seconds: float
    mean_job_wait_seconds: float
    jobs_seconds: tuple[float, ...]
    makespan_seconds: float


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """The progress of long trainings that fail and continue from their last checkpoints; means over trainings.

    Attributes:
        checkpoint_seconds: Time to write a checkpoint.
        lost_share: Share of the time that is not computing of steps that count: checkpoints, restarts, and steps that
            a failure undid.
        lowest_lost_share: That of the training that lost least.
        highest_lost_share: That of the training that lost most.
        predicted_lost_share: That of the analytical model (models/checkpoints.py), whose failures are exponential.
        best_interval: The interval that the analytical model recommends, in seconds.
        failures: Number of failures.
        steps_per_day: Steps in a day that no failure undid.
    """

    checkpoint_seconds: float
    lost_share: float
    lowest_lost_share: float
    highest_lost_share: float
    predicted_lost_share: float
    best_interval: float
    failures: float
    steps_per_day: float


def _percentiles(values: Sequence[float], *thousandths: int) -> list[float]:
    ordered = sorted(values)
    return [ordered[-(-len(ordered) * share // 1000) - 1] for share in thousandths]


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of a run. None means that something is not available in this world.

    Attributes:
        seconds: Time of each all-reduce, from the last worker's call to the last worker's result.
        elements: float32 values in a vector.
        wire_bytes_per_worker: Bytes of Ethernet frames that a worker sends and receives in one all-reduce.
        packets_per_worker: Ethernet frames that a worker sends and receives in one all-reduce.
        retransmissions: Retransmissions in the whole run.
        drops: Packets that switches dropped in the whole run, by reason.
        link_events: Events on links in the whole run, by kind.
        violations: Elements of results outside their bound, in the whole run; None if no results were checked.
        max_abs_error: The largest error of an element; None if no results were checked.
        error_bound: The largest bound; None if no results were checked.
        checked_share: Share of the elements of all results that were checked.
        closed_form_seconds: Time of an all-reduce according to the analytical model.
        packet_hops: Packets carried over all links.
        curve: The progress of rank 0 in a training.
        window: The workers' window, whether the scenario sets it or not; None also for TCP.
        segments: The workers' segments, whether the scenario sets them or not; None also for TCP.
        recovery: The workers' timers, whether the scenario sets them or not; None also for TCP.
        congestion_window: Packets at the end, the mean of all workers of a job in the network.
        wait_seconds: Mean time of a worker from its own call to its result; late workers wait the least.
        other_job_seconds: Median time of an all-reduce of the other job.
        step_seconds: Mean time of a step with computing, from the barrier to the last sum.
        exposed_seconds: Mean time of a step after the slowest worker has finished computing.
        gpu_idle_share: Mean share of a step in which workers do not compute.
        trace_step_seconds: Mean time of a step as the trace of a training has measured it.
        link_utilization: Utilization of the busiest link during all-reduces, live; see testbed/load.py.
        processor_utilization: Utilization of the processors during all-reduces, live; see testbed/load.py.
        usage: Counts of each link and worker, which have their own files (usage.py).
        traffic: Completion times of other traffic; None if there was none.
        progress: TrainingProgress of long trainings with failures; None if the scenario has none.
        storage: StorageTimes of file servers; None if the scenario has none.
        workers_left: Number of workers that have the last sum.
        faults: The outcome of each fault, in the order of the scenario.
    """

    seconds: tuple[float, ...]
    elements: int
    wire_bytes_per_worker: float
    packets_per_worker: float
    retransmissions: int
    drops: Mapping[str, int]
    link_events: Mapping[str, int]
    violations: int | None
    max_abs_error: float | None
    error_bound: float | None
    checked_share: float
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
    trace_step_seconds: float | None = None
    link_utilization: float | None = None
    processor_utilization: float | None = None
    usage: Usage | None = None
    traffic: FlowTimes | None = None
    progress: TrainingProgress | None = None
    serving: ServingTimes | None = None
    storage: StorageTimes | None = None
    arrivals: JobTimes | None = None
    workers_left: int | None = None
    faults: tuple[FaultOutcome, ...] = ()

    @property
    def limit(self) -> Limit | None:
        """Return what limited the all-reduces of a live run."""
        return limited_by(self.link_utilization, self.processor_utilization)

    @property
    def median(self) -> float:
        """Return the median time of an all-reduce in seconds."""
        return float(np.median(self.seconds))

    @property
    def p95(self) -> float:
        """Return the 95th percentile of the times of all-reduces in seconds."""
        return float(np.percentile(self.seconds, 95))

    @property
    def goodput_bits_per_second(self) -> float:
        """Return the size of a worker's vector divided by the median time."""
        return 32 * self.elements / self.median

    @property
    def accuracy(self) -> float | None:
        """Return the final accuracy of the training."""
        return None if self.curve is None else self.curve.accuracy[-1]


def mean_window(windows: Sequence[float | None]) -> float | None:
    """Return the mean of all workers' windows; None if they have none."""
    known = [window for window in windows if window is not None]
    return float(np.mean(known)) if known else None


def row(settings: Settings, measured: Measured, /, **rest: Any) -> Row:
    """Return a flat row: the settings in effect, the measurements, and `rest`."""
    nothing: dict[str, Any] = dict.fromkeys(_PARTS)
    columns = asdict(replace(measured, usage=None, faults=(), **nothing))
    usage = {} if measured.usage is None else {"usage": measured.usage.as_columns()}
    drops, events = columns.pop("drops"), columns.pop("link_events")
    effective = {"window": columns.pop("window"), "segments": columns.pop("segments")}
    effective |= columns.pop("recovery") or {}
    for name in ("curve", "usage", "faults", *_PARTS):
        del columns[name]
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
        **(asdict(measured.progress) if measured.progress else {}),
        **(asdict(measured.serving) if measured.serving else {}),
        **(asdict(measured.storage) if measured.storage else {}),
        **(asdict(measured.arrivals) if measured.arrivals else {}),
        **fault_columns(measured.faults),
        **_speed(settings, measured),
        "limited_by": measured.limit,
        **_learning(settings, measured.curve),
        **_decoding(settings, measured),
        **{f"dropped_{reason}": count for reason, count in drops.items()},
        **{f"link_{kind}": count for kind, count in events.items()},
        **_identity(settings),
        "error": None,
        **usage,
        **rest,
    }


def _learning(settings: Settings, curve: Curve | None) -> Row:
    """Return the final accuracy of a training, its time, and the time at which it reached its target."""
    if settings.training is None or curve is None:
        return {"accuracy": None}
    reached = (
        seconds
        for seconds, accuracy in zip(curve.seconds, curve.accuracy, strict=True)
        if accuracy >= settings.training.target
    )
    return {
        "accuracy": curve.accuracy[-1],
        "training_seconds": curve.seconds[-1],
        "target_seconds": next(reached, None),
    }


def _decoding(settings: Settings, measured: Measured) -> Row:
    """Return how many tokens a sequence gets in a second, and what the analytical model predicts; else nothing."""
    if (decoding := settings.decoding) is None or measured.step_seconds is None:
        return {}
    columns: Row = {"tokens_per_second": 1 / measured.step_seconds}
    if (sum_seconds := measured.closed_form_seconds) is not None:
        each = decoding.compute_seconds(len(settings.members)) + decoding.launch + sum_seconds
        columns["predicted_tokens_per_second"] = 1 / (decoding.sums * each)
    return columns


def _speed(settings: Settings, measured: Measured) -> Row:
    """Return the speed of a worker that trains a published model, and the roofline of its network; empty without one.

    A worker is as fast as its processor, or as the gradients of its operations can be summed. This is the roofline of
    Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for multicore architectures", CACM
    52, 2009, with an all-reduce instead of the memory.
    """
    workload, seconds = settings.workload, measured.closed_form_seconds
    if workload is None or settings.parallelism or measured.step_seconds is None or settings.size is None:
        return {}
    flop, intensity = workload.step_flop, workload.intensity
    if flop is None or intensity is None:
        return {}
    roof = workload.flops * workload.utilization
    return {
        "achieved_flops": flop * workload.scale / measured.step_seconds,
        "roofline_flops": roof if not seconds else min(roof, intensity * settings.size / seconds),
    }


def _in_effect(settings: Settings) -> Row:
    """Return settings that a scenario may leave out, if the whole network has the same value.

    Measured has the timers and the window.
    """
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
    columns["check"] = settings.checks
    rate = settings.host_link.rate_bits_per_second
    control = settings.congestion.in_effect(rate) if settings.between_hosts and not live else {}
    columns |= {f"congestion_{name}": value for name, value in control.items()}
    if isinstance(compressor := settings.compression.compressor, TopK):
        columns["compression_density"] = compressor.density
    if settings.algorithm == "parameter-server":
        columns["shards"] = settings.shards or len(settings.members)
    return columns


def wait_of(row: Row) -> float:
    """Return the seconds that a worker waits for a sum; rows of earlier versions only have the last worker's."""
    seconds: float = row.get("wait_seconds") or row["median_seconds"]
    return seconds


def idle_share_and_step(row: Row, compute: float | None) -> tuple[float | None, float | None]:
    """Return the share of the time in which GPUs idle, and the seconds of a step; each None if it is not known.

    Args:
        row: The row of a point without an error.
        compute: Seconds of computing between two all-reduces, for rows that do not measure it; None if not known.
    """
    share, seconds = row.get("gpu_idle_share"), row.get("step_seconds")
    if share is None and compute is not None:
        share, seconds = idle_share(compute, wait_of(row)), compute + wait_of(row)
    return share, seconds


def failed_row(settings: Settings, error: str, /, **rest: Any) -> Row:
    """Return the row of a run that ended with an error."""
    return {**setting_columns(settings), **_identity(settings), "error": error, **rest}


def _identity(settings: Settings) -> Row:
    """Return the columns that allow the point to be repeated, and its key."""
    return {"key": settings.key, "settings": json.dumps(settings.model_dump(mode="json"))}
