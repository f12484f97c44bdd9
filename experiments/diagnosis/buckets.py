"""Gradients that are summed in too many parts, in too few, or only when all are ready."""

from __future__ import annotations

from fanin.experiments.diagnosis.case import Case
from fanin.experiments.diagnosis.finding import Finding
from fanin.experiments.models.prediction import predicted_seconds, predicted_training_step
from fanin.experiments.models.step import step_parts
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.topologies.units import BYTES, quantity_text

_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # buckets that are tried


def buckets(case: Case) -> Finding | None:
    """Look for a size of buckets with which the analytical model predicts a shorter step."""
    settings = case.settings
    if settings.step is None or case.computing is None:
        return None
    elements = settings.elements or 1
    now = -(-elements // len(step_parts(settings.step, elements)[0]))
    if settings.step.bucket is not None:
        now = min(settings.step.bucket // ELEMENT_BYTES, elements)
    tried: dict[int, int | None] = {-(-elements // count): -(-elements // count) for count in _COUNTS}
    tried[now] = None  # the present ones, which may differ in size
    predicted = {
        size: seconds
        for size, bucket in tried.items()
        if (seconds := predicted_training_step(settings, case.window, bucket, case.slowness)) is not None
    }
    if now not in predicted:
        return None
    best = min(predicted, key=lambda size: (predicted[size], -size))
    saved = predicted[now] - predicted[best]
    if saved <= 0:
        return None
    count, few = -(-elements // now), -(-elements // best)
    size, better = (quantity_text(ELEMENT_BYTES * each, BYTES) for each in (now, best))
    alone = 1e6 * (predicted_seconds(settings, ELEMENT_BYTES * now, case.window) or 0.0)
    times = (
        f"the analytical model predicts a step of {1e6 * predicted[best]:,.0f} us with {few:,} buckets of {better}, "
        f"and {1e6 * predicted[now]:,.0f} us with the present ones"
    )
    key = "workload" if settings.workload else "step"
    change = (
        f"set {key}.bucket = '{better}' (DDP: bucket_cap_mb={max(1, round(ELEMENT_BYTES * best / 2**20))})"
    )
    share = saved / case.step_seconds
    if now < best:
        return Finding(
            "small buckets",
            share,
            f"{count:,} buckets of {size} are summed one after another, {alone:,.1f} us each, mostly latency; {times}",
            change,
        )
    if count == 1:
        return Finding(
            "no overlap",
            share,
            f"the whole gradient of {size} is summed after the backward pass, for {alone:,.0f} us in which no worker "
            f"computes; {times}",
            f"sum parts of the gradient while the backward pass computes the others: {change}",
        )
    return Finding(
        "large buckets",
        share,
        f"the last of {count:,} buckets of {size} is ready only when the backward pass ends, and takes {alone:,.0f} us "
        f"in which no worker computes; {times}",
        change,
    )
