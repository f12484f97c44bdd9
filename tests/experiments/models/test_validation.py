"""What is compared between live and virtual time, and when the two agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.live.work import Vectors
from experiments.models.validation import RATE, Comparison, Measured, Point, closed_form, run_virtual
from experiments.virtual.fabric import load_switch

BLOCKS = 100
WORK = Vectors(elements=256 * BLOCKS, repetitions=1)
LIVE = Measured(1.0, 2000.0, 1e6, 0)


def comparison(virtual: Measured, live: Measured = LIVE, loss: float = 0.0) -> Comparison:
    return Comparison("a leaf", 2, loss, 1000, live, virtual, closed_form=0.9)


@pytest.mark.parametrize(("seconds", "agrees"), [(1.0, True), (0.91, True), (1.09, True), (0.89, False)])
def test_times_agree_within_a_tenth(seconds: float, agrees: bool) -> None:
    assert comparison(replace(LIVE, seconds=seconds)).agrees == agrees


@pytest.mark.parametrize("more", [{"wire_bytes": 1e6 + 1}, {"wire_packets": 2001.0}])
def test_packets_and_bytes_agree_exactly_unless_some_are_lost(more: dict[str, float]) -> None:
    assert not comparison(replace(LIVE, **more)).agrees
    assert comparison(replace(LIVE, **more), loss=0.01).agrees


@pytest.mark.parametrize(("seconds", "agrees"), [(1.14, True), (0.84, False)])
def test_times_with_loss_may_differ_a_little_more(seconds: float, agrees: bool) -> None:
    assert comparison(replace(LIVE, seconds=seconds), loss=0.01).agrees == agrees


def test_virtual_time_is_that_of_the_closed_form() -> None:
    point = Point(0, 1, 2, vectors=WORK)
    measured = run_virtual(point, load_switch())
    assert measured.retransmissions == 0
    assert measured.seconds == pytest.approx(closed_form(point), rel=0.02)
    # Both ways, and the barrier: two chunks of one value, the first without values.
    window = point.pace.window
    assert measured.wire_packets == 2 * (window + BLOCKS + 2)
    assert measured.wire_bytes == 2 * ((window + 1) * 308 + (BLOCKS + 1) * 1076)
    bytes_alone = 8 * (window * 308 + BLOCKS * 1076) / RATE
    assert bytes_alone < measured.seconds < 1.05 * bytes_alone


def test_the_program_draws_the_losses() -> None:
    point = Point(0, 1, 2, loss=0.05, vectors=WORK)
    lossy = run_virtual(point, load_switch())
    # A lost update keeps its sum from both workers, a lost result from one: each is sent again.
    at_least = 0.05 * (BLOCKS + point.pace.window) * (2 * 2 + 2)
    assert at_least / 2 < lossy.retransmissions < 2 * at_least
    assert lossy.seconds > 1.05 * closed_form(point)
