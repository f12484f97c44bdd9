"""What is compared between live and virtual time, and when the two agree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.validation import RATE, TARGET, Comparison, Measured, run_virtual, theory
from experiments.virtual import load_switch
from topologies.model import leaf_spine

LIVE = Measured(1.0, 1e6, 0)


def comparison(virtual: Measured, live: Measured = LIVE) -> Comparison:
    return Comparison("a leaf", 2, 1000, live, virtual, theory=0.9)


@pytest.mark.parametrize(("seconds", "agrees"), [(1.0, True), (0.91, True), (1.09, True), (0.89, False)])
def test_times_agree_within_a_tenth(seconds: float, agrees: bool) -> None:
    assert comparison(replace(LIVE, seconds=seconds)).agrees == agrees


def test_bytes_agree_exactly_unless_something_was_sent_again() -> None:
    more = replace(LIVE, wire_bytes=1e6 + 1)
    assert not comparison(more).agrees
    assert comparison(more, replace(LIVE, retransmissions=1)).agrees


def test_virtual_time_is_that_of_the_bytes_and_a_little_more() -> None:
    topology = leaf_spine(0, 1, 2, rate=RATE)
    measured = run_virtual(topology, load_switch())
    alone = theory(TARGET.pace(RATE).window)
    assert measured.retransmissions == 0
    assert alone < measured.seconds < 1.01 * alone
    # Both ways, and the barrier: two chunks of one value, the first without values; a block is 256.
    assert measured.wire_bytes == 2 * (alone * RATE / 8 + 308 + 1076)
