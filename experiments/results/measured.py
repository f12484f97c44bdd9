"""What is measured at a point of a scenario, alike in both worlds, and the row of results that it becomes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.results.summary import machine
from experiments.scenario.settings import Settings, setting_columns

Row = dict[str, Any]  # a column's name: None, or a number, a text, or a list of numbers


@dataclass(frozen=True, slots=True)
class Measured:
    """A run's all-reduces: `seconds` of each, from the last worker's call to the last worker's result.

    elements: float32 values in a vector. wire_bytes_per_worker, packets_per_worker: Ethernet frames, sent and
    received, of one all-reduce.
    Retransmissions, drops, link events (what links did to packets, by kind) and violations are of the whole run.
    violations: elements of results outside their bound. closed_form_seconds: what bytes and latencies alone say.
    packet_hops: packets carried over all links. None: not to be had in this world.
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
    accuracy: float | None = None


def row(settings: Settings, measured: Measured, /, **rest: Any) -> Row:
    """A flat row: the settings, what was measured, and `rest`."""
    columns = asdict(measured)
    drops, events = columns.pop("drops"), columns.pop("link_events")
    seconds = np.array(measured.seconds)
    median = float(np.median(seconds))
    return {
        **setting_columns(settings),
        "median_seconds": median,
        "p95_seconds": float(np.percentile(seconds, 95)),
        "min_seconds": float(seconds.min()),
        "max_seconds": float(seconds.max()),
        "goodput_bits_per_second": 32 * measured.elements / median,
        **columns,
        **{f"dropped_{reason}": count for reason, count in drops.items()},
        **{f"link_{kind}": count for kind, count in events.items()},
        **_identity(settings),
        "error": None,
        **rest,
    }


def failed_row(settings: Settings, error: str, /, **rest: Any) -> Row:
    """The row of a run that gave nothing but an error."""
    return {**setting_columns(settings), **_identity(settings), "error": error, **rest}


def _identity(settings: Settings) -> Row:
    """What it takes to run the point again, and a name for that."""
    return {"key": settings.key, "settings": json.dumps(settings.model_dump(mode="json"))}


def provenance() -> Row:
    """The program and the machine."""
    return {**machine(), "commit": _commit()}


def _commit() -> str | None:
    """Of this program, with a + behind if files differ from it; None: not known."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return described.stdout.strip() or None
