"""A run that came to no end, since links paused one another in a circle."""

from __future__ import annotations

from fanin.experiments.diagnosis.finding import Finding
from fanin.experiments.results.measured import Row

_ERROR = "DeadlockError: "  # simulator/deadlock.py


def deadlock(row: Row) -> Finding | None:
    """By what ended the run, which says which links waited for which."""
    error = row.get("error") or ""
    if not error.startswith(_ERROR):
        return None
    return Finding(
        "deadlock",
        1.0,
        error.removeprefix(_ERROR),
        "routes without a circle, as those that go up and then down; or a watchdog that drops or forwards "
        "(links.pause.watchdog)",
    )
