"""The outcomes of the faults in a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOutcome:
    """A fault and what was done about it; times are in seconds from the beginning of the run.

    Attributes:
        what: Description of the fault.
        at: When it happened.
        found: When it was detected; None if it was not.
        outcome: What was done about it.
        next_end: When the first all-reduce after it ended; None if none did.
    """

    what: str
    at: float
    found: float | None
    outcome: str
    next_end: float | None

    def __str__(self) -> str:
        return f"{self.what}: {self.outcome}"


def fault_columns(faults: Sequence[FaultOutcome]) -> dict[str, Any]:
    """Return columns of a row of results: lists with an element for each fault, and the longest time to next_end."""
    times = [one.next_end - one.at for one in faults if one.next_end is not None]
    return {
        "faults": [str(one) for one in faults] or None,
        "fault_seconds": [one.at for one in faults] or None,
        "fault_found_seconds": [one.found for one in faults] or None,
        "fault_next_end_seconds": [one.next_end for one in faults] or None,
        "fault_recovery_seconds": max(times, default=None),
    }
