"""A training step in closed form: buckets that become ready during the backward pass, summed one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def bucket_slices(elements: int, bucket: int | None) -> list[slice]:
    """The parts of a gradient that are summed one after the other, of `bucket` elements each; None: all of it."""
    size = elements if bucket is None else min(bucket, elements)
    return [slice(first, min(first + size, elements)) for first in range(0, elements, size)]


def ready_shares(elements: int, bucket: int) -> list[float]:
    """Of the backward pass, when each bucket is complete: as far as its last element is in the gradient."""
    return [part.stop / elements for part in bucket_slices(elements, bucket)]


def filled_buckets(elements: int, bucket: int | None, layers: int) -> list[int]:
    """How many buckets the gradient of each of `layers` equal layers fills, in the order of the backward pass."""
    found = [0] * layers
    for part in bucket_slices(elements, bucket):
        found[-(-part.stop * layers // elements) - 1] += 1
    return found


def step_seconds(forward: float, backward: float, shares: Sequence[float], sums: Sequence[float]) -> float:
    """From a step's begin to its last sum, if all compute alike. sums: seconds of each bucket's all-reduce."""
    ready = (forward + share * backward for share in shares)
    return summed_after(ready, sums)


def summed_after(ready: Iterable[float], sums: Iterable[float]) -> float:
    """When the last bucket is summed, of those that are ready at these times, one after the other; in seconds."""
    ended = 0.0
    for time, seconds in zip(ready, sums, strict=True):
        ended = max(ended, time) + seconds
    return ended
