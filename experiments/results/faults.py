"""What became of the faults of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOutcome:
    """A fault, when it came and what was done about it; times in seconds from the beginning of the run on.

    found: None: it was not. next_end: of the first all-reduce that ended after it; None: none did.
    """

    what: str
    at: float
    found: float | None
    outcome: str
    next_end: float | None

    def __str__(self) -> str:
        return f"{self.what}: {self.outcome}"


def fault_columns(faults: Sequence[FaultOutcome]) -> dict[str, Any]:
    """Of a row of results: lists with an element for each, and the longest time from one to that end."""
    times = [one.next_end - one.at for one in faults if one.next_end is not None]
    return {
        "faults": [str(one) for one in faults] or None,
        "fault_seconds": [one.at for one in faults] or None,
        "fault_found_seconds": [one.found for one in faults] or None,
        "fault_next_end_seconds": [one.next_end for one in faults] or None,
        "fault_recovery_seconds": max(times, default=None),
    }
