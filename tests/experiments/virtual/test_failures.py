"""Trainings with failures, from steps and a checkpoint that are simulated packet by packet."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fanin.experiments.results.measured import TrainingProgress
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.failures import train_for_long
from fanin.experiments.virtual.outcome import UnfinishedError
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine

SHAPE = {"spines": 0, "leaves": 1, "hosts_per_leaf": 3, "rate": "10 Mb/s"}
FAILURES = {"mtbf": "1 h", "interval": "1 min", "restart": "2 min", "duration": "10 d"}


def settings(failures: dict[str, Any] | None = None, **rest: Any) -> Settings:
    said: dict[str, Any] = {
        "topology": {"leaf_spine": SHAPE},
        "size": "4 kB",
        "workers": 2,
        "repetitions": 2,
        "step": {"forward": "2 s", "backward": "4 s"},
        "traffic": {"pattern": "checkpoint", "size": "1 MB", "period": "100 s", "duration": "1 ms"},
        "failures": FAILURES | (failures or {}),
    }
    return Settings.model_validate(said | rest).settled


def played(failures: dict[str, Any], written: float, slower: float = 0.0) -> TrainingProgress:
    """Steps of 6 s, the first one longer, until one begins after the checkpoint was written."""
    point = settings(failures)
    assert point.failures
    ends = [6.0 + slower]
    while ends[-1] < written:
        ends.append(ends[-1] + 6)
    return train_for_long(point, point.failures, [0.0, *ends], [*ends, ends[-1] + 6], written)


def test_a_run_finds_the_time_of_a_checkpoint_and_plays_trainings(switch: Engine) -> None:
    measured = run_virtual(settings(), switch)
    progress = measured.progress
    assert progress
    assert progress.checkpoint_seconds == pytest.approx(2 * 8e6 / 10e6, rel=0.15)  # both into one link
    assert progress.failures == pytest.approx(240, rel=0.1)
    assert progress.lost_share == pytest.approx(progress.predicted_lost_share, abs=0.01)
    assert progress.lowest_lost_share < progress.lost_share < progress.highest_lost_share
    assert progress.steps_per_day == pytest.approx((1 - progress.lost_share) * 86_400 / 6, rel=0.01)
    assert measured.gpu_idle_share == pytest.approx(progress.lost_share, abs=0.01)


@pytest.mark.parametrize("writing", ["blocking", "background"])
@pytest.mark.parametrize("interval", ["1 min", "10 min", "1 h"])
def test_with_exponential_failures_the_formula_holds(writing: str, interval: str) -> None:
    said = {"writing": writing, "interval": interval, "copy_time": "2 s", "duration": "100 d"}
    progress = played(said, written=30.0)
    assert progress.lost_share == pytest.approx(progress.predicted_lost_share, abs=0.01)


def test_with_failures_in_clusters_it_does_not() -> None:
    """Most intervals between failures are short then, and what is left are a few long ones."""
    said = {"interval": "30 min", "shape": 0.5, "duration": "400 d"}
    progress = played(said, written=30.0)
    assert progress.lost_share < progress.predicted_lost_share - 0.05
    assert progress.failures == pytest.approx(24 * 400, rel=0.05)


def test_without_failures_a_checkpoint_costs_its_pause() -> None:
    never = {"mtbf": 1e9, "interval": "60 s", "duration": "10 d"}
    blocking = played(never, written=30.0)
    assert (blocking.failures, blocking.lost_share) == (0, pytest.approx(30 / 90, abs=1e-3))
    background = played(never | {"writing": "background", "copy_time": "3 s"}, written=30.0)
    assert background.lost_share == pytest.approx(3 / 63, abs=1e-3)
    slower = played(never | {"writing": "background", "copy_time": "3 s"}, written=7.0, slower=2.0)
    assert slower.lost_share == pytest.approx(5 / 65, abs=1e-3)  # one step of 6 s takes 8 s


def test_a_checkpoint_in_the_background_waits_for_the_one_before() -> None:
    often, seldom = (
        played({"writing": "background", "interval": interval}, written=300.0)
        for interval in ("30 s", "5 min")
    )
    assert often == seldom


def test_some_step_must_begin_after_the_checkpoint() -> None:
    point = settings()
    assert point.failures
    with pytest.raises(UnfinishedError, match="raise repetitions"):
        train_for_long(point, point.failures, [0.0, 6.0], [6.0, 12.0], 20.0)


def test_it_needs_steps_and_a_checkpoint() -> None:
    with pytest.raises(ValidationError, match="failures: needs a table step, and a table traffic"):
        settings(step=None)
    with pytest.raises(ValidationError, match=r"traffic.pattern: is 'read', but failures need 'checkpoint'"):
        settings(traffic={"pattern": "read", "size": "1 kB", "period": "1 s", "duration": "1 s"})
    with pytest.raises(ValidationError, match="failures: is virtual only"):
        settings(world="live")
