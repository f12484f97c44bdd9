"""What a test for a cause says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Cause = Literal[
    "oversubscription",
    "collision",
    "straggler",
    "loss",
    "pause storm",
    "deadlock",
    "priority inversion",
    "noisy neighbour",
    "slow link",
    "window",
    "this machine",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause, the share of the time of all-reduces that it costs (0 to 1), the evidence, and what to change."""

    cause: Cause
    share: float
    evidence: str
    change: str
