"""The analytical model of trainings with failures: limits that can be computed by hand."""

from __future__ import annotations

from math import exp, sqrt

import pytest

from fanin.experiments.models.checkpoints import best_interval, lost_share


def test_without_failures_only_checkpoints_cost_time() -> None:
    assert lost_share(90, 10, 0, 600, 1e12) == pytest.approx(0.1)


def test_each_failure_costs_a_restart_and_half_an_interval() -> None:
    """Young's first-order waste, where intervals and restarts are short compared with the time between failures."""
    interval, pause, restart, mtbf = 100.0, 1.0, 50.0, 1e5
    waste = pause / interval + (restart + interval / 2) / mtbf
    assert lost_share(interval, pause, 0, restart, mtbf) == pytest.approx(waste, abs=2e-4)


def test_what_is_not_saved_yet_counts_as_a_longer_restart() -> None:
    assert lost_share(100, 1, 20, 30, 1e3) == lost_share(100, 1, 0, 50, 1e3)
    ratio = (1 - lost_share(100, 1, 20, 0, 1e3)) / (1 - lost_share(100, 1, 0, 0, 1e3))
    assert ratio == pytest.approx(exp(-0.02))


@pytest.mark.parametrize("pause", [1.0, 30.0, 300.0])
def test_no_other_interval_is_better_than_the_best(pause: float) -> None:
    mtbf = 11_160.0
    best = best_interval(pause, mtbf)
    share = lost_share(best, pause, 0, 600, mtbf)
    others = [lost_share(best * factor, pause, 0, 600, mtbf) for factor in (0.5, 0.8, 1.25, 2)]
    assert share < min(others)
    assert best == pytest.approx(sqrt(2 * pause * mtbf), rel=0.2)  # Young's


def test_a_checkpoint_that_takes_longer_than_two_failures() -> None:
    assert best_interval(50, 10) == 10  # as Daly sets it
