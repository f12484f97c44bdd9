"""A training step in closed form: buckets that become ready during the backward pass, summed one after the other."""

from __future__ import annotations

from collections.abc import Sequence


def ready_shares(elements: int, bucket: int) -> list[float]:
    """Of the backward pass, when each bucket is complete: as far as its last element is in the gradient."""
    ends = [min(start + bucket, elements) for start in range(0, elements, bucket)]
    return [end / elements for end in ends]


def step_seconds(forward: float, backward: float, shares: Sequence[float], sums: Sequence[float]) -> float:
    """From a step's begin to its last sum, if all compute alike. sums: seconds of each bucket's all-reduce."""
    ended = 0.0
    for share, seconds in zip(shares, sums, strict=True):
        ended = max(ended, forward + share * backward) + seconds
    return ended
