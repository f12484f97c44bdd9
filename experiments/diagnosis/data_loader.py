"""Workers that wait for the data of their next batch."""

from __future__ import annotations

from fanin.experiments.diagnosis.case import Case, percent
from fanin.experiments.diagnosis.finding import Finding


def data_loader(case: Case) -> Finding | None:
    """Measure how long the worker that waits longest for its data does so."""
    most = int(case.loading.argmax())
    share = float(case.loading[most]) / case.seconds
    if not share:
        return None
    each = 1e6 * share * case.step_seconds
    return Finding(
        "data loader",
        share,
        f"{case.usage.workers[most].host} waited {each:,.0f} us for its data in a step of "
        f"{1e6 * case.step_seconds:,.0f} us, {percent(share)} of the time, in which it neither computed nor sent",
        "load data in the background (step.loading; PyTorch's DataLoader: num_workers, prefetch_factor, pin_memory), "
        "or from a faster disk",
    )
