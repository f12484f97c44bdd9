"""The result of a test for one cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Cause = Literal[
    "oversubscription",
    "collision",
    "straggler",
    "loss",
    "reordering",
    "duplicates",
    "spurious retransmissions",
    "congestion marks",
    "pause storm",
    "deadlock",
    "priority inversion",
    "noisy neighbour",
    "slow link",
    "window",
    "slot collisions",
    "this machine",
    "data loader",
    "no overlap",
    "small buckets",
    "large buckets",
    "pipeline bubble",
    "latency",
    "communication",
    "unexplained",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """A likely cause of a run's slowness.

    Attributes:
        cause: Its name.
        share: The share of the time of all-reduces that it costs, from 0 to 1.
        evidence: The measurements that show it.
        change: What to change.
    """

    cause: Cause
    share: float
    evidence: str
    change: str
