"""Links that were paused although nothing behind them was full."""

from __future__ import annotations

from fanin.experiments.diagnosis.case import Case, percent
from fanin.experiments.diagnosis.finding import Finding


def pause_storm(case: Case) -> Finding | None:
    """Look for time in which a link was paused, or waited for a watchdog's drops, that no full link explains."""
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
        # Workers wait for packets that a watchdog has dropped even when no link is paused.
        1 - case.explained if dropped else min(paused, 1 - case.explained),
        f"{worst.name} was paused for {percent(paused)} of the time ({worst.pauses:,} of {pauses:,} pauses in total), "
        f"and no link was busy for more than {percent(max(case.busy.values()))} of it{watchdog}",
        "use higher thresholds (pause.xoff_bytes), or congestion marks (ecn_bytes) that come before pauses"
        + (", and a watchdog that waits longer (detection_time)" if dropped else ""),
    )
