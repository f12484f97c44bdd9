"""A job of a low priority, whose packets wait while packets of a higher priority are sent."""

from __future__ import annotations

from fanin.experiments.diagnosis.case import Case, percent
from fanin.experiments.diagnosis.finding import Finding


def priority_inversion(case: Case) -> Finding | None:
    """Look for time in which a link sent packets of a higher priority while some of the job's waited."""
    if not case.overtaken:
        return None
    worst = max(case.links.values(), key=lambda link: link.overtaken_seconds or 0.0)
    return Finding(
        "priority inversion",
        case.overtaken,
        f"{worst.name} sent packets of a higher priority for {percent(case.overtaken)} of the time while packets of "
        f"the job (priority {case.settings.priority}) waited",
        "give the job a priority that is not below that of other traffic on these links, or separate links",
    )
