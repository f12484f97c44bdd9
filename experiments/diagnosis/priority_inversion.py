"""A job of a low priority, whose packets wait as long as there are others of a higher one."""

from __future__ import annotations

from fanin.experiments.diagnosis.case import Case, percent
from fanin.experiments.diagnosis.finding import Finding


def priority_inversion(case: Case) -> Finding | None:
    """By the time for which a link sent packets of a higher priority while some of the job's waited."""
    if not case.overtaken:
        return None
    worst = max(case.links.values(), key=lambda link: link.overtaken_seconds or 0.0)
    return Finding(
        "priority inversion",
        case.overtaken,
        f"{worst.name} sent packets of a higher priority for {percent(case.overtaken)} of the time while some of the "
        f"job's waited, which have priority {case.settings.priority}",
        "a priority for the job that is not below what else needs these links, or links of its own",
    )
