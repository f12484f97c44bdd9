"""The analytical model of a training step: buckets become ready during the backward pass and are summed in turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from fanin.experiments.scenario.tables.step import Step
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES


def bucket_slices(elements: int, bucket: int | None) -> list[slice]:
    """Return the parts of a gradient that are summed one after another.

    Args:
        elements: Elements of the gradient.
        bucket: Elements of each part; None: all.
    """
    size = elements if bucket is None else min(bucket, elements)
    return [slice(first, min(first + size, elements)) for first in range(0, elements, size)]


def ready_shares(elements: int, bucket: int) -> list[float]:
    """Return the share of the backward pass after which each bucket, and so its last element, is complete."""
    return [part.stop / elements for part in bucket_slices(elements, bucket)]


def step_parts(step: Step, elements: int) -> tuple[list[slice], list[float]]:
    """Return the parts of a gradient that a step sums one after another, and the share after which each is complete.

    Args:
        step: The table of the scenario.
        elements: Elements of the gradient.
    """
    if not step.buckets:
        bucket = elements if step.bucket is None else min(step.bucket // ELEMENT_BYTES, elements)
        return bucket_slices(elements, bucket), ready_shares(elements, bucket)
    ends = list(accumulate(one.size // ELEMENT_BYTES for one in step.buckets))
    return [slice(*both) for both in pairwise([0, *ends])], [one.ready for one in step.buckets]


def filled_buckets(elements: int, bucket: int | None, layers: int) -> list[int]:
    """Return how many buckets each of `layers` equal layers fills, in the order of the backward pass."""
    found = [0] * layers
    for part in bucket_slices(elements, bucket):
        found[-(-part.stop * layers // elements) - 1] += 1
    return found


def step_seconds(forward: float, backward: float, shares: Sequence[float], sums: Sequence[float]) -> float:
    """Return the time from a step's beginning to its last sum if all workers compute equally fast.

    Args:
        forward: Seconds of the forward pass.
        backward: Seconds of the backward pass.
        shares: The share of the backward pass after which each bucket is ready.
        sums: Seconds of each bucket's all-reduce.
    """
    ready = (forward + share * backward for share in shares)
    return summed_after(ready, sums)


def summed_after(ready: Iterable[float], sums: Iterable[float]) -> float:
    """Return when the last bucket is summed, in seconds, if buckets are summed one after another.

    Args:
        ready: When each bucket is ready.
        sums: Seconds of each bucket's all-reduce.
    """
    ended = 0.0
    for time, seconds in zip(ready, sums, strict=True):
        ended = max(ended, time) + seconds
    return ended
