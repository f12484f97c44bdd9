"""A check that a scenario's figure can be drawn, made before any point runs from the rows that points will have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from fanin.controller.telemetry import Reason
from fanin.experiments.models.timers import virtual_window
from fanin.experiments.results.drawing.series import require_lines, select, series
from fanin.experiments.results.faults import FaultOutcome
from fanin.experiments.results.measured import (
    LINK_EVENTS,
    PAUSE_EVENTS,
    FlowTimes,
    JobTimes,
    Measured,
    Row,
    ServingTimes,
    StorageTimes,
    TrainingProgress,
    row,
)
from fanin.experiments.results.provenance import provenance
from fanin.experiments.scenario.settings import OF_SWITCHES, Settings, setting_columns
from fanin.experiments.scenario.tables.figure import Plot
from fanin.experiments.scenario.user_files import DIGESTS
from fanin.experiments.training.sgd import Curve
from fanin.workers.recovery import Recovery

_FAULT = FaultOutcome(what="", at=0.0, found=0.0, outcome="", next_end=1.0)


def rehearse(points: Sequence[Settings], plot: Plot, *, changed: bool = False) -> None:
    """Select and sort what the figure would show of these points, with meaningless numbers.

    Args:
        points: The points.
        plot: The figure.
        changed: Whether these are not the points of the scenario's file. Then the figure may name lines that are
            missing.

    Raises:
        PlotError: If the figure needs something that the rows will not have.
    """
    common = provenance() | dict.fromkeys(DIGESTS)
    rows = [rehearsed_row(point) | common for point in points]
    names = [name for name in (plot.x, *plot.by) if name in rows[0] and name not in OF_SWITCHES]
    lines = series(select(rows, plot.where), plot)
    # Where a setting is not set, names of lines are known only after the run.
    if not changed and all(
        setting_columns(point).get(name) is not None for point in points for name in names
    ):
        require_lines(plot, lines)


def rehearsed_row(settings: Settings) -> Row:
    """Return the row of a point, with all columns except those of the program and the machine."""
    live = settings.world == "live"
    curve = Curve([1.0], [1.0], [1.0]) if settings.training else None
    traced = settings.workload is not None and bool(settings.workload.trace)
    virtual_steps = settings.parallelism or settings.decoding or (settings.training and not live) or traced
    steps = 1.0 if settings.step or virtual_steps else None
    idle = 1.0 if settings.serving else steps
    events = () if settings.switch == "bmv2" else LINK_EVENTS if live else (*LINK_EVENTS, *PAUSE_EVENTS)
    measured = Measured(
        seconds=(1.0,) * settings.repetitions,
        elements=settings.elements or 1,
        wire_bytes_per_worker=1.0,
        packets_per_worker=1.0,
        retransmissions=0,
        drops={reason.name.lower(): 0 for reason in Reason if reason is not Reason.NONE},
        link_events=dict.fromkeys(events, 0),
        violations=0,
        max_abs_error=0.0,
        error_bound=1.0,
        checked_share=1.0,
        closed_form_seconds=1.0,
        packet_hops=None if live else 1,
        curve=curve,
        window=1 if live else virtual_window(settings),
        segments=1 if live else None,
        recovery=Recovery(),
        congestion_window=1.0 if settings.algorithm == "in-network" else None,
        wait_seconds=1.0,
        link_utilization=1.0 if live else None,
        processor_utilization=1.0 if live else None,
        traffic=FlowTimes.of([1], [1.0], [1.0]) if settings.traffic else None,
        progress=TrainingProgress(*(1.0,) * len(fields(TrainingProgress))) if settings.failures else None,
        serving=ServingTimes(*(1.0,) * len(fields(ServingTimes))) if settings.serving else None,
        storage=StorageTimes(1.0, 1.0, 1.0, 1, 1.0, 1.0, 0) if settings.storage else None,
        arrivals=JobTimes(1, 1.0, 1.0, 1.0, (1.0,), 1.0) if settings.arrivals else None,
        other_job_seconds=1.0 if settings.other_job and settings.other_job.repetitions else None,
        step_seconds=steps,
        exposed_seconds=steps,
        gpu_idle_share=idle,
        trace_step_seconds=1.0 if traced else None,
        workers_left=None if live else 1,
        faults=(_FAULT,) * len(settings.faults),
    )
    return row(settings, measured, run_seconds=1.0)
