"""The analytical model of steps that wait for their data."""

from __future__ import annotations

import pytest

from fanin.experiments.models.storage import loaded_step_seconds


def test_a_worker_that_asks_when_it_needs_data_waits_for_the_whole_read() -> None:
    assert loaded_step_seconds(10, 1, 4, 0) == 15
    assert loaded_step_seconds(10, 1, 4, 0, barrier=2) == 13


@pytest.mark.parametrize(("sending", "step"), [(4, 10), (9, 10), (20, 21)])
def test_a_worker_that_asks_a_step_ahead_waits_for_what_the_step_does_not_hide(
    sending: float, step: float
) -> None:
    assert loaded_step_seconds(10, 1, sending, 1) == step


def test_further_batches_hide_round_trips_but_not_the_server() -> None:
    """Little's law: so many batches in the time of a read, and no more than the server sends."""
    assert [loaded_step_seconds(1, 30, 2, ahead) for ahead in (1, 2, 4, 8, 64)] == [32, 16, 8, 4, 2]
