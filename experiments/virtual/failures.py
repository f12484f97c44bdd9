"""A training of many days with random failures, made of steps and checkpoints that were simulated packet by packet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, gamma

import numpy as np

from fanin.experiments.models.checkpoints import best_interval, lost_share
from fanin.experiments.results.measured import TrainingProgress
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.failures import Failures
from fanin.experiments.virtual.outcome import UnfinishedError

_FAILURES = 5  # separates their random numbers from others of the same seed


@dataclass(frozen=True, slots=True)
class _Cycle:
    """Some steps, and the checkpoint after them.

    Attributes:
        steps: Number of steps.
        pause: Seconds in which no step advances: those of writing or copying, and those by which writing makes the
            next steps longer.
        length: Seconds of all that.
        unsaved: Seconds from the end of a cycle until its checkpoint can be used.
    """

    steps: int
    pause: float
    length: float
    unsaved: float


def train_for_long(
    settings: Settings, failures: Failures, began: Sequence[float], ended: Sequence[float], written: float
) -> TrainingProgress:
    """Return the progress of trainings with random failures.

    Args:
        settings: The point.
        failures: Its table.
        began: When each simulated step began, in seconds since the checkpoint began.
        ended: When each of them ended.
        written: Seconds until the last worker had written its part of the checkpoint.

    Raises:
        UnfinishedError: If the checkpoint took longer than all steps, so that the time of a step without it is unknown.
    """
    lengths = np.subtract(ended, began)
    quiet = [length for length, begin in zip(lengths, began, strict=True) if begin >= written]
    if not quiet:
        raise UnfinishedError(
            f"failures: writing the checkpoint took {written:.3g} s, longer than all steps; raise repetitions"
        )
    step = float(np.mean(quiet))
    slowed = float(sum(lengths[: len(lengths) - len(quiet)] - step))
    cycle = _cycle(failures, step, slowed, written)
    shares, counts = [], []
    for number in range(failures.trainings):
        draw = np.random.default_rng((settings.seed, _FAILURES, number))
        steps, count = _steps_done(failures, cycle, step, draw)
        shares.append(1 - steps * step / failures.duration)
        counts.append(count)
    return TrainingProgress(
        checkpoint_seconds=written,
        lost_share=float(np.mean(shares)),
        lowest_lost_share=min(shares),
        highest_lost_share=max(shares),
        predicted_lost_share=lost_share(
            cycle.steps * step, cycle.pause, cycle.unsaved, failures.restart, failures.mtbf
        ),
        best_interval=best_interval(cycle.pause, failures.mtbf),
        failures=float(np.mean(counts)),
        steps_per_day=(1 - float(np.mean(shares))) / step * 86_400,
    )


def _cycle(failures: Failures, step: float, slowed: float, written: float) -> _Cycle:
    steps = max(1, round(failures.interval / step))
    if failures.writing == "blocking":
        return _Cycle(steps, written, steps * step + written, 0.0)
    pause = failures.copy_time + max(0.0, slowed)
    # A checkpoint begins when the one before is complete.
    steps = max(steps, ceil((written - pause) / step))
    return _Cycle(steps, pause, steps * step + pause, written)


def _steps_done(failures: Failures, cycle: _Cycle, step: float, draw: np.random.Generator) -> tuple[int, int]:
    """Return the steps of one training that no failure undid, and the number of failures."""
    scale = failures.mtbf / gamma(1 + 1 / failures.shape)
    times: list[float] = []
    now = 0.0
    while (now := now + scale * float(draw.weibull(failures.shape))) < failures.duration:
        times.append(now)
    done = 0
    for begin, end in pairwise([-failures.restart, *times]):
        alive = end - begin - failures.restart
        done += cycle.steps * max(0, int((alive - cycle.unsaved) // cycle.length))
    # What has been computed since the last failure is not lost.
    alive = failures.duration - (times[-1] + failures.restart if times else 0.0)
    cycles, rest = divmod(max(0.0, alive), cycle.length)
    return done + int(cycles) * cycle.steps + min(cycle.steps, int(rest / step)), len(times)
