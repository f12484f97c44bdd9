"""A run that never ended because links paused one another in a circle."""

from __future__ import annotations

from fanin.experiments.diagnosis.finding import Finding
from fanin.experiments.results.measured import Row

_ERROR = "DeadlockError: "  # simulator/deadlock.py


def deadlock(row: Row) -> Finding | None:
    """Look for a deadlock in the run's error, which lists the links that waited for one another."""
    error = row.get("error") or ""
    if not error.startswith(_ERROR):
        return None
    return Finding(
        "deadlock",
        1.0,
        error.removeprefix(_ERROR),
        "use routes without a circle, such as those that go up and then down; or a watchdog that drops or forwards "
        "(links.pause.watchdog)",
    )
