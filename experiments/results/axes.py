"""The labels of result columns in figures, and the units in which they are drawn and printed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from fanin.experiments.scenario.settings import FILES
from fanin.topologies.units import (
    BYTES,
    FLOPS,
    MEMORY_RATES,
    RATES,
    SHARES,
    TIMES,
    digits,
    exact_text,
    fitting_unit,
    quantity,
)

_LABELS = {
    "median_seconds": "time of an all-reduce, median",
    "seconds": "time of an all-reduce",
    "p95_seconds": "time of an all-reduce, 95th percentile",
    "min_seconds": "time of an all-reduce, shortest",
    "max_seconds": "time of an all-reduce, longest",
    "closed_form_seconds": "time of an all-reduce, analytical model",
    "run_seconds": "elapsed time of the run",
    "goodput_bits_per_second": "goodput of each worker",
    "wire_bytes_per_worker": "on the wire, each worker",
    "packets_per_worker": "packets, each worker",
    "retransmissions": "retransmissions of all workers",
    "link_utilization": "busiest link, in use",
    "processor_utilization": "processors, in use",
    "size": "vector",
    "loss": "packets lost on each link",
    "oversubscription": "oversubscription of the uplinks",
    "window": "window (packets)",
    "congestion_window": "congestion window (packets)",
    "values": "values in a packet",
    "violations": "elements of sums outside their bound",
    "max_abs_error": "largest error of a sum",
    "queue_bytes": "queue of a link",
    "sampled_bytes": "bytes in the queue",
    "sampled_seconds": "time since the run began",
    "ecn_bytes": "queue above which packets are marked",
    "wait_seconds": "time that a worker waits for its sum",
    "lateness": "lateness of a worker, mean",
    "fault_recovery_seconds": "time from a fault to the end of the next all-reduce",
    "workers_left": "remaining workers",
    "packet_hops": "packets over all links",
    "elements": "vector (float32 values)",
    "sparsity": "share of blocks that are 0",
    "step_seconds": "time of a training step, mean",
    "exposed_seconds": "time of a step that computing does not hide, mean",
    "trace_step_seconds": "time of a training step in the trace",
    "gpu_idle_share": "time for which GPUs wait",
    "step_bucket": "bucket of gradients",
    "servers_nics_per_server": "network cards of a server",
    "predicted_step_seconds": "time of a training step, analytical model",
    "parallelism_pipeline": "stages of the pipeline",
    "parallelism_tensor": "workers that share a layer",
    "parallelism_bucket": "bucket of gradients",
    "parallelism_micro_batches": "micro-batches of a step",
    "other_job_seconds": "time of an all-reduce of the other job, median",
    "other_job_repetitions": "all-reduces of another job",
    "intensity": "operations for each byte of gradients (FLOP/B)",
    "achieved_flops": "speed of a GPU",
    "training_seconds": "time of the training",
    "target_seconds": "time until the target accuracy",
    "local_steps": "steps between two averages",
    "stalls": "share of steps in which a worker stalls",
    "uplink_delay": "uplinks with a delay of",
    "lost_share": "time that is lost",
    "checkpoint_seconds": "time to write a checkpoint",
    "p99_seconds": "time of a request, 99th percentile",
    "serving_load": "share of the time for which servers compute",
    "serving_fan_out": "servers of a request:",
    "tokens_per_second": "tokens of a sequence in a second",
    "decoding_sequences": "sequences",
    "reconfiguration": "circuits that change in",
    "storage_prefetch": "batches asked for ahead",
    "storage_writers": "workers that write at once",
    "data_wait_seconds": "time of a step for which workers wait for data, mean",
    "failures_interval": "training between two checkpoints",
    "failures_mtbf": "mean time between failures",
    "failures_shape": "Weibull shape of failures",
    "traffic_load": "load of other traffic",
    "traffic_flows": "flows of other traffic",
    "traffic_bytes": "bytes of other traffic",
    "traffic_mean_seconds": "time of a flow of other traffic, mean",
    "traffic_p50_seconds": "time of a flow of other traffic, median",
    "traffic_p99_seconds": "time of a flow of other traffic, 99th percentile",
    "traffic_p999_seconds": "time of a flow of other traffic, 99.9th percentile",
    "traffic_p50_slowdown": "slowdown of a flow of other traffic, median",
    "traffic_p99_slowdown": "slowdown of a flow of other traffic, 99th percentile",
}
_TIMES = (
    "seconds",
    "delay",
    "watchdog_detection_time",
    "watchdog_restoration_time",
    "jitter",
    "displacement",
    "rto",
    "coalescing",
    "reconfiguration",
    "packet_time",
    "granularity",
    "give_up",
    "lateness",
    "loading",
    "queue_samples",
    "traffic_begin",
    "forward",
    "backward",
    "period",
    "duration",
    "interval",
    "mtbf",
    "restart",
    "copy_time",
    "compute_time",
    "stall_time",
    "launch",
    "service_time",
)
_PROBABILITIES = (
    "loss",
    "stalls",
    "corruption",
    "duplication",
    "reordering",
    "burst_begin",
    "burst_end",
    "ecn_probability",
)
# Units by the endings of columns' names.
_UNITS: Mapping[str, Mapping[str, Decimal]] = {
    **dict.fromkeys(_TIMES, TIMES),
    **dict.fromkeys(("bits_per_second", "rate"), RATES),
    "memory_rate": MEMORY_RATES,
    "flops": FLOPS,
    **dict.fromkeys(("bytes", "bytes_per_worker", "size", "overhead", "bucket", "request", "answer"), BYTES),
    **dict.fromkeys(
        (
            *_PROBABILITIES,
            "accuracy",
            "utilization",
            "load",
            "density",
            "sparsity",
            "gpu_idle_share",
            "lost_share",
            "target",
            "workload_scale",
        ),
        SHARES,
    ),
    **dict.fromkeys(("storage_batch", "storage_checkpoint"), BYTES),
    "learning_rate": {},  # a factor, although its name ends in "rate"
}


def units_of(column: str) -> Mapping[str, Decimal]:
    """Return the units in which a column can be written; empty if its values are counts or words."""
    endings = [ending for ending in _UNITS if column == ending or column.endswith(f"_{ending}")]
    return _UNITS[max(endings, key=len)] if endings else {}


def scale(name: str, values: Sequence[float]) -> tuple[float, str]:
    """Return the number by which to divide a column's values, and the axis's label with its unit."""
    units = units_of(name)
    if not units:
        return 1.0, column_label(name)
    unit = fitting_unit(max((abs(value) for value in values), default=0.0), units)
    return float(units[unit]), f"{column_label(name)} ({_typeset(unit)})"


def value_text(column: str, value: object) -> str:
    """Format a value as scenarios and --where accept it: numbers with all digits and a unit."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return str(value)
    units = units_of(column)
    return exact_text(value, units) if units else digits(Decimal(str(value)))


def number(column: str, text: str) -> float:
    """Parse a number that `value_text` has printed, or a bare number.

    Raises:
        ValueError: If it is neither.
    """
    units = units_of(column)
    return float(quantity(text, {**units, "": Decimal(1)}, "1")) if units else float(text)


def value_label(column: str, value: object) -> str:
    """Return the label of a line: words as they are, numbers with the column's label, and the names of files."""
    if column in FILES and isinstance(value, str):
        return Path(value).name
    return (
        value if isinstance(value, str) else f"{column_label(column)} {_typeset(value_text(column, value))}"
    )


def _typeset(text: str) -> str:
    """Replace units that are easy to type with those that are usual in figures."""
    return re.sub(r"\bus\b", "µs", text)


def column_label(name: str) -> str:
    """Return the label of a column without its unit."""
    return _LABELS.get(name, name.replace("_", " "))


def plain(value: float, _position: int) -> str:
    """Format a number for an axis, as matplotlib's FuncFormatter expects it."""
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"
