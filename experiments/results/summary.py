"""A summary of a few points for people: summary.json, a CSV file, and curves of training."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.experiments.results.axes import value_text
from fanin.experiments.results.measured import Measured
from fanin.experiments.results.provenance import machine
from fanin.experiments.scenario.settings import Settings
from fanin.native.files import replacing, write_json


@dataclass(frozen=True, slots=True)
class Run:
    """A point and its measurements.

    Attributes:
        settings: The point.
        measured: Its measurements.
        reference_accuracy: Accuracy of the same training in one process.
    """

    settings: Settings
    measured: Measured
    reference_accuracy: float | None = None

    @property
    def name(self) -> str:
        """Return the name of the work."""
        return work_name(self.settings)

    @property
    def label(self) -> str:
        """Return the name of the algorithm."""
        return label(self.settings)

    @property
    def columns(self) -> dict[str, Any]:
        """Return the columns of a summary.

        Retransmissions and violations are those of the whole run, other columns those of one all-reduce.
        """
        settings, measured, timers = self.settings, self.measured, self.measured.recovery
        return {
            "name": self.name,
            "algorithm": settings.algorithm,
            "workers": len(settings.members),
            "loss": settings.links.loss,
            "elements": measured.elements,
            "all_reduces": len(measured.seconds),
            "seconds": {"median": measured.median, "p95": measured.p95},
            "goodput_bits_per_second": measured.goodput_bits_per_second,
            "wire_bytes_per_worker": measured.wire_bytes_per_worker,
            "retransmissions": measured.retransmissions,
            "max_abs_error": measured.max_abs_error,
            "error_bound": measured.error_bound,
            "violations": measured.violations,
            "limited_by": measured.limit,
            "link_utilization": measured.link_utilization,
            "processor_utilization": measured.processor_utilization,
            "accuracy": measured.accuracy,
            "reference_accuracy": self.reference_accuracy,
            "engine": settings.switch,
            "link_bits_per_second": settings.host_link.rate_bits_per_second,
            "window": measured.window,
            "segments": measured.segments,
            "initial_rto": timers and timers.initial_rto,
            "min_rto": timers and timers.min_rto,
            "granularity": timers and timers.granularity,
        }


def work_name(settings: Settings) -> str:
    """Return the name of the work of a point."""
    return "training" if settings.size is None else value_text("size", settings.size)


def label(settings: Settings) -> str:
    """Return the algorithm and its loss."""
    loss = settings.links.loss
    return f"{settings.algorithm}, {value_text('loss', loss)} loss" if loss else settings.algorithm


def write_summary(runs: Sequence[Run], folder: Path) -> None:
    """Write summary.json (runs and machine) and runs.csv (a row for each run) into `folder`."""
    rows = [run.columns for run in runs]
    summary = {"runs": rows, "machine": machine()}
    write_json(summary, folder / "summary.json")
    with replacing(folder / "runs.csv") as new, new.open("w", newline="") as file:
        writer = csv.writer(file)
        names = [name for name in rows[0] if name != "seconds"]
        writer.writerow([*names, "seconds_median", "seconds_p95"])
        for row in rows:
            writer.writerow([*(row[name] for name in names), row["seconds"]["median"], row["seconds"]["p95"]])


def write_curves(runs: Sequence[Run], folder: Path) -> None:
    """Write curves.csv, with each step of each run that trains, into `folder`."""
    with replacing(folder / "curves.csv") as new, new.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["run", "step", "seconds", "loss", "accuracy"])
        for run in runs:
            if (curve := run.measured.curve) is not None:
                name, columns = f"{run.name}, {run.label}", (curve.seconds, curve.loss, curve.accuracy)
                for step, (seconds, loss, accuracy) in enumerate(zip(*columns, strict=True), start=1):
                    writer.writerow([name, step, f"{seconds:.6f}", f"{loss:.6g}", f"{accuracy:.6g}"])
