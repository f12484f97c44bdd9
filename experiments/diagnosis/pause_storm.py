"""Links that were told to wait while nothing behind them was full."""

from __future__ import annotations

from experiments.diagnosis.case import Case, percent
from experiments.diagnosis.finding import Finding


def pause_storm(case: Case) -> Finding | None:
    """By the time for which a link was paused, as far as a full link does not account for it."""
    worst = max(case.usage.links, key=lambda link: link.paused_seconds or 0.0)
    if not worst.paused_seconds:
        return None
    paused = min(1.0, worst.paused_seconds / case.seconds)
    pauses = sum(link.pauses or 0 for link in case.usage.links)
    return Finding(
        "pause storm",
        min(paused, 1 - case.explained),
        f"{worst.name} was paused for {percent(paused)} of the time, {worst.pauses:,} times of {pauses:,} in all, "
        f"and no link was busy for more than {percent(max(case.busy.values()))} of it",
        "higher thresholds (pause.xoff_bytes), or congestion marks (ecn_bytes) that come before pauses",
    )
