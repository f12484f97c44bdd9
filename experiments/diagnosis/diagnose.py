"""The diagnosis of a run: the likely causes of its slowness, the most costly first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import ValidationError

from fanin.experiments.diagnosis.case import Case, percent
from fanin.experiments.diagnosis.collision import collision
from fanin.experiments.diagnosis.deadlock import deadlock
from fanin.experiments.diagnosis.finding import Finding
from fanin.experiments.diagnosis.loss import loss
from fanin.experiments.diagnosis.noisy_neighbour import noisy_neighbour
from fanin.experiments.diagnosis.oversubscription import oversubscription
from fanin.experiments.diagnosis.pause_storm import pause_storm
from fanin.experiments.diagnosis.priority_inversion import priority_inversion
from fanin.experiments.diagnosis.slow_link import slow_link
from fanin.experiments.diagnosis.straggler import straggler
from fanin.experiments.diagnosis.this_machine import this_machine
from fanin.experiments.diagnosis.window import window
from fanin.experiments.results.measured import Row
from fanin.experiments.results.usage import Usage
from fanin.experiments.scenario.settings import Settings

TESTS: tuple[Callable[[Case], Finding | None], ...] = (
    this_machine,
    slow_link,
    noisy_neighbour,
    oversubscription,
    collision,
    pause_storm,
    priority_inversion,
    loss,
    straggler,
    window,
)

# A cause that costs a smaller share of the time is not reported. It is not worth a change, and the analytical model and
# the share of the busiest link differ by about as much from the time of a run without any fault.
THRESHOLD = 0.2


class DiagnosisError(ValueError):
    """A run that cannot be diagnosed; the message explains why, and what to do."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of a diagnosis.

    Attributes:
        findings: The causes, the most costly first; empty if nothing is wrong.
        limit: A sentence about what determined the time, such as the busiest link.
    """

    findings: tuple[Finding, ...]
    limit: str

    @property
    def cause(self) -> str:
        """Return the most costly cause, or "nothing wrong"."""
        return self.findings[0].cause if self.findings else "nothing wrong"


def diagnose(row: Row, usage: Usage | None) -> Diagnosis:
    """Diagnose one run.

    Args:
        row: The run's row of results.
        usage: The counts of its links and workers; None if there are none.

    Raises:
        DiagnosisError: If the run failed, or its results lack what is needed.
    """
    if stuck := deadlock(row):
        return Diagnosis((stuck,), "links waited for one another")
    if row.get("error") is not None:
        raise DiagnosisError(f"the run failed: {row['error']}")
    if usage is None or not usage.links or not usage.workers:
        raise DiagnosisError(
            "the results have no counts of links and workers (links.parquet, workers.parquet); run the scenario again"
        )
    try:
        settings = Settings.model_validate_json(row["settings"])
    except (KeyError, ValidationError) as error:
        raise DiagnosisError(f"its settings cannot be read; run the scenario again: {error}") from None
    case = Case(settings, row, usage)
    found = [finding for test in TESTS if (finding := test(case)) and finding.share >= THRESHOLD]
    found.sort(key=lambda finding: -finding.share)
    busiest = case.busiest
    share = case.busy[busiest.near, busiest.far]
    limit = f"the busiest link, {busiest.name}, sent for {percent(share)} of the time"
    if case.computing is not None:
        limit = f"workers computed for {percent(case.computing.mean() / case.seconds)} of the time; {limit}"
    return Diagnosis(tuple(found), limit)
