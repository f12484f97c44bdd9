"""The first lines of a report: what the runs lost their time to, what that costs, and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fanin.experiments.diagnosis.case import Case
from fanin.experiments.diagnosis.diagnose import Diagnosis, DiagnosisError, diagnose
from fanin.experiments.models.cost import CLUSTERS, PRICE, idle_price
from fanin.experiments.results.drawing.steps import MeanStep
from fanin.experiments.results.measured import Row, idle_share_and_step, wait_of
from fanin.experiments.results.usage import Usage
from fanin.experiments.scenario.settings import Settings


@dataclass(frozen=True, slots=True)
class Point:
    """A point and what the report states about it.

    Attributes:
        name: Its name.
        diagnosis: The causes of its slowness; None if it cannot be diagnosed.
        problem: Why it cannot; empty if it can.
        step: Its mean step; None if it is not known for how long workers compute.
        idle: The share of the time in which GPUs idle; None if it is not known.
        gpu_hours: The GPU-hours of a step, for as many GPUs as there are workers; None if its time is not known.
    """

    name: str
    diagnosis: Diagnosis | None
    problem: str
    step: MeanStep | None
    idle: float | None
    gpu_hours: float | None

    @property
    def lost(self) -> float:
        """Return the share of the time that the most costly cause costs; 0 if nothing is wrong."""
        return self.diagnosis.findings[0].share if self.diagnosis and self.diagnosis.findings else 0.0


def points_of(
    runs: Sequence[tuple[Row, Usage | None]], names: Sequence[str], compute: float | None
) -> list[Point]:
    """Return what a report states about each point.

    Args:
        runs: The rows, with the counts of links and workers if there are any.
        names: A name for each of them.
        compute: Seconds of computing between two all-reduces, for rows that do not measure it; None if not known.
    """
    return [_point(row, usage, name, compute) for (row, usage), name in zip(runs, names, strict=True)]


def _point(row: Row, usage: Usage | None, name: str, compute: float | None) -> Point:
    try:
        diagnosis, problem = diagnose(row, usage, compute), ""
    except DiagnosisError as error:
        diagnosis, problem = None, str(error)
    if row.get("error") is not None:
        return Point(name, diagnosis, problem, step=None, idle=None, gpu_hours=None)
    step = None
    if usage is not None and diagnosis is not None:
        step = _step(Case(Settings.model_validate_json(row["settings"]), row, usage), name)
    if compute is not None and row.get("gpu_idle_share") is None:
        step = MeanStep(name, compute, 0.0, 0.0, wait_of(row))
    idle, seconds = idle_share_and_step(row, compute)
    hours = seconds / 3600 * row["workers"] if seconds else None
    return Point(name, diagnosis, problem, step, idle, hours)


def _step(case: Case, name: str) -> MeanStep | None:
    """Return the mean step of the slowest worker."""
    seconds, exposed = case.row.get("step_seconds"), case.row.get("exposed_seconds")
    if seconds is None or exposed is None:
        return None
    loading = float(case.loading.max()) / len(case.usage.workers[0].began)
    computing = seconds - exposed - loading
    # What the busiest link sends, apart from the time in which even the slowest worker waits for it.
    hidden = min(computing, max(0.0, max(case.busy.values()) * case.step_seconds - exposed))
    return MeanStep(name, computing - hidden, hidden, loading, exposed)


def sentences(points: Sequence[Point], price: float = PRICE, clusters: Sequence[int] = CLUSTERS) -> list[str]:
    """Return the cause of most lost time and its evidence, the price of waiting, and what to change.

    Args:
        points: The points.
        price: $ per GPU and hour.
        clusters: Numbers of GPUs, of which the middle one is named.
    """
    known = [point for point in points if point.diagnosis is not None]
    if not known:
        return [f"The cause is not known: {points[0].problem}."] if points else []
    worst = max(known, key=lambda point: point.lost)
    assert worst.diagnosis
    where = f" with {worst.name}" if len(points) > 1 else ""
    if not worst.diagnosis.findings:
        where = " with any point" if len(points) > 1 else ""
        found = [point.diagnosis for point in known if point.diagnosis]
        unseen = [one.unseen for one in found if one.cause == "cannot tell live"]
        if unseen:
            said = [f"No cause was found{where}, but a live run cannot show these: {', '.join(unseen[0])}."]
        else:
            said = [f"Nothing is wrong{where}: {worst.diagnosis.limit}."]
    else:
        first, *others = worst.diagnosis.findings
        also = "".join(f", then {other.cause} (about {other.share:.0%})" for other in others)
        cause = f"Cause of most lost time{where}: {first.cause} (about {first.share:.0%} of the time){also}."
        said = [f"{cause} Evidence: {first.evidence}."]
    idle = [point for point in points if point.idle is not None]
    if idle:
        # Cause and price are of one point, if its price is known.
        most = worst if worst.idle is not None else max(idle, key=lambda point: point.idle or 0.0)
        share = most.idle or 0.0
        gpus = clusters[len(clusters) // 2]
        hourly = idle_price(share, gpus, price)
        where = f" with {most.name}" if len(points) > 1 else ""
        said.append(
            f"GPUs idle for {share:.1%} of the time{where}. With {gpus:,} GPUs at {price:g} $ an hour each, that "
            f"costs {hourly:,.0f} $ an hour, or {24 * hourly:,.0f} $ a day."
        )
    else:
        said.append(
            "What waiting GPUs cost is not known, because the scenario does not state how long they compute (compute)."
        )
    steps = [point for point in points if point.gpu_hours]
    if len(steps) > 1:
        best, *_, dearest = sorted(steps, key=lambda point: point.gpu_hours or 0.0)
        least, most_dollars = (1000 * price * (point.gpu_hours or 0.0) for point in (best, dearest))
        said.append(
            f"1,000 steps cost least with {best.name}: {least:,.3g} $. They cost most with {dearest.name}: "
            f"{most_dollars:,.3g} $."
        )
    said += [f"What to change: {finding.change}." for finding in worst.diagnosis.findings]
    return said
