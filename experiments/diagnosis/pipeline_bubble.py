"""Stages of a pipeline that wait until the first micro-batch reaches them, or after the last one has left."""

from __future__ import annotations

from math import ceil

import numpy as np

from fanin.experiments.diagnosis.case import Case, percent
from fanin.experiments.diagnosis.finding import Finding

_AIM = 0.1  # share of a step that a bubble may take


def pipeline_bubble(case: Case) -> Finding | None:
    """Calculate the time in which a pipeline fills and drains (Narayanan et al., 2021)."""
    cut = case.settings.parallelism
    if cut is None or cut.pipeline == 1 or case.computing is None:
        return None
    others, each = cut.pipeline - 1, cut.micro_batches_each(len(case.settings.members))
    share = others / (each * cut.chunks) * float(np.median(case.computing)) / case.seconds
    enough = ceil(others / cut.chunks * (1 - _AIM) / _AIM) * cut.copies(len(case.settings.members))
    return Finding(
        "pipeline bubble",
        min(share, case.idle or 0.0),
        f"{each} micro-batches pass {cut.pipeline} stages in a step, so that each stage waits for {percent(share)} of "
        f"the time while the pipeline fills and drains; workers compute for {percent(1 - (case.idle or 0.0))} of it",
        f"use more micro-batches (parallelism.micro_batches = {enough} or more leave a bubble of {percent(_AIM)}), "
        "interleave stages (parallelism.chunks), or use fewer stages (parallelism.pipeline)",
    )
