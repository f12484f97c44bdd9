"""What a run measured, and the files that keep it: summary.json and a CSV."""

from __future__ import annotations

import csv
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments.scenario.tools import Engine
from experiments.training.sgd import Curve
from workers.collective import Algorithm


@dataclass(frozen=True, slots=True)
class Seconds:
    """Of one all-reduce: from the last worker's call to the last worker's result."""

    median: float
    p95: float


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one algorithm. Retransmissions and violations are of the whole run, the rest of one all-reduce."""

    name: str
    algorithm: Algorithm
    workers: int
    loss: float  # probability, for each packet on each link
    elements: int  # float32 values in a worker's vector
    all_reduces: int
    seconds: Seconds
    goodput_bits_per_second: float  # a worker's vector over the median time
    wire_bytes_per_worker: float  # in Ethernet frames, sent and received, the mean over the workers
    retransmissions: int
    max_abs_error: float  # against the float64 sum
    error_bound: float  # the largest of the elements' bounds
    violations: int  # elements outside their own bound
    accuracy: float | None
    reference_accuracy: float | None
    engine: Engine
    link_bits_per_second: int | None
    curve: Curve | None = None  # rank 0's


def label(run: Run) -> str:
    """The algorithm and what distinguishes it."""
    return f"{run.algorithm}, {run.loss:.0%} loss" if run.loss else run.algorithm


def machine() -> dict[str, Any]:
    """What the figures depend on beside the program."""
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "fanin": version("fanin"),
    }


def write_summary(runs: Sequence[Run], folder: Path) -> None:
    """Write summary.json (runs and machine) and runs.csv (a row for each run) into `folder`."""
    rows = [{key: value for key, value in asdict(run).items() if key != "curve"} for run in runs]
    summary = {"runs": rows, "machine": machine()}
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    with (folder / "runs.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        names = [field.name for field in fields(Run) if field.name not in ("seconds", "curve")]
        writer.writerow([*names, "seconds_median", "seconds_p95"])
        for row in rows:
            writer.writerow([*(row[name] for name in names), row["seconds"]["median"], row["seconds"]["p95"]])


def write_curves(runs: Sequence[Run], folder: Path) -> None:
    """Write curves.csv: the training of each run that trains, step by step."""
    with (folder / "curves.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["run", "step", "seconds", "loss", "accuracy"])
        for run in runs:
            if run.curve is not None:
                columns = zip(run.curve.seconds, run.curve.loss, run.curve.accuracy, strict=True)
                for step, (seconds, loss, accuracy) in enumerate(columns, start=1):
                    writer.writerow(
                        [
                            f"{run.name}, {label(run)}",
                            step,
                            f"{seconds:.6f}",
                            f"{loss:.6g}",
                            f"{accuracy:.6g}",
                        ]
                    )
