"""The work of workers between the all-reduces of a run in virtual time: they are late, or compute a training step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.models.step import bucket_slices, step_parts
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.step import slowness

_LATENESS, _COMPUTING = 1, 2  # separate their random numbers from those of vectors

Floats = NDArray[np.float64]


def buckets(settings: Settings) -> list[slice]:
    """Return the parts of a vector that are summed one after another; without a step, this is the whole vector."""
    assert settings.elements is not None
    if settings.step is None:
        return bucket_slices(settings.elements, None)
    return step_parts(settings.step, settings.elements)[0]


def pauses(settings: Settings) -> tuple[tuple[float, ...], ...]:
    """Return each worker's pauses before each all-reduce, including barriers; see JobSpec."""
    if settings.step:
        assert settings.elements is not None
        shares = np.array(step_parts(settings.step, settings.elements)[1])
        ready = np.append(0.0, settings.step.forward + settings.step.backward * shares)
        loaded = np.append(0.0, np.full_like(shares, settings.step.loading))
        return tuple(
            tuple((loaded + np.outer(factors, ready)).ravel().tolist()) for factors in _factors(settings)
        )
    found = []
    for rank in range(len(settings.members)) if settings.lateness else ():
        late = np.random.default_rng((settings.seed, rank, _LATENESS)).exponential(
            settings.lateness, settings.repetitions
        )
        found.append(tuple(np.stack([np.zeros_like(late), late], axis=1).ravel().tolist()))
    return tuple(found)


def _factors(settings: Settings) -> Floats:
    """Return the factor by which a worker computes longer than in the scenario, [workers, steps]."""
    assert settings.step
    rows = [
        slow
        * np.random.default_rng((settings.seed, rank, _COMPUTING)).lognormal(
            0.0, settings.step.variation, settings.repetitions
        )
        for rank, slow in enumerate(slowness(settings.step.stragglers, settings.members))
    ]
    return np.array(rows)


def step_figures(
    settings: Settings, began: Floats, ended: Floats, ranks: Sequence[int], waits: Floats, left_out: int = 0
) -> dict[str, Any]:
    """Return columns of Measured for training steps; empty if workers do not compute.

    Args:
        settings: The point.
        began: When each step began, [steps].
        ended: When each step ended, [steps].
        ranks: The ranks that took part.
        waits: Seconds of each step for which the last worker waits for its data, [steps].
        left_out: Steps at the beginning that do not count.
    """
    if settings.step is None:
        return {}
    return computing_figures(
        (ended - began)[left_out:],
        step_computing(settings)[list(ranks), left_out:],
        loading=settings.step.loading + float(waits[left_out:].mean()),
    )


def step_computing(settings: Settings) -> Floats:
    """Return the seconds for which each worker computes in each step, [workers, steps]."""
    assert settings.step
    return _factors(settings) * (settings.step.forward + settings.step.backward)


def computing_figures(seconds: Floats, computing: Floats, loading: float = 0.0) -> dict[str, Any]:
    """Return columns of Measured for steps in which workers compute.

    Args:
        seconds: Time of each step, [steps].
        computing: Time of computing, [workers, steps].
        loading: Seconds of a step for which all workers wait for their data.
    """
    return {
        "step_seconds": float(seconds.mean()),
        "exposed_seconds": float((seconds - computing.max(axis=0)).mean()) - loading,
        "gpu_idle_share": float(1 - computing.mean() / seconds.mean()),
    }
