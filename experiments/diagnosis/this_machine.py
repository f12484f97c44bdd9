"""A live run whose speed was limited by this machine's processors."""

from __future__ import annotations

from fanin.experiments.diagnosis.case import Case, percent
from fanin.experiments.diagnosis.finding import Finding


def this_machine(case: Case) -> Finding | None:
    """Look for processors that were busy while links were not, as bottleneck.py decides."""
    if case.row.get("limited_by") != "processors":
        return None
    busy, link = case.row["processor_utilization"], case.row.get("link_utilization") or 0.0
    return Finding(
        "this machine",
        busy,
        f"processors were busy for {percent(busy)} of the time, the busiest link for {percent(link)}",
        "use fewer workers, slower links, or world = 'virtual', whose times do not depend on the machine",
    )
