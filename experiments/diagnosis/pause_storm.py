"""Links that were told to wait while nothing behind them was full."""

from __future__ import annotations

from fanin.experiments.diagnosis.case import Case, percent
from fanin.experiments.diagnosis.finding import Finding


def pause_storm(case: Case) -> Finding | None:
    """By the time for which a link was paused, and what a watchdog dropped, as far as no full link accounts for it."""
    links = case.links.values()
    worst = max(links, key=lambda link: link.paused_seconds or 0.0)
    if not worst.paused_seconds:
        return None
    paused = min(1.0, worst.paused_seconds / case.seconds)
    pauses, storms, dropped = (
        sum(getattr(link, count) or 0 for link in links) for count in ("pauses", "storms", "watchdog_drops")
    )
    watchdog = f"; a watchdog found {storms:,} storms and dropped {dropped:,} packets" if storms else ""
    return Finding(
        "pause storm",
        # Workers wait for what a watchdog has dropped when no link is paused any more.
        1 - case.explained if dropped else min(paused, 1 - case.explained),
        f"{worst.name} was paused for {percent(paused)} of the time, {worst.pauses:,} times of {pauses:,} in all, "
        f"and no link was busy for more than {percent(max(case.busy.values()))} of it{watchdog}",
        "higher thresholds (pause.xoff_bytes), or congestion marks (ecn_bytes) that come before pauses"
        + (", and a watchdog that waits for longer (detection_time)" if dropped else ""),
    )
