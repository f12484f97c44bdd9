"""Rates as tc commands."""

import re

from hypothesis import given
from hypothesis import strategies as st

from fanin.testbed.shaping import shape

LARGEST_SUPERFRAME = 65_536
FRAME = 1_514

rates = st.integers(10_000, 10**12)


def _numbers(rate: int) -> dict[str, int]:
    return {key: int(value) for key, value in re.findall(r"(\w+) (\d+)", " ".join(shape("x-eth1", rate)))}


@given(rates)
def test_the_class_has_the_rate_to_the_bit(rate: int) -> None:
    assert _numbers(rate)["rate"] == rate


@given(rates)
def test_a_burst_holds_a_frame_and_no_more_than_a_moment(rate: int) -> None:
    numbers = _numbers(rate)
    assert numbers["burst"] == numbers["cburst"] >= FRAME
    assert numbers["burst"] <= max(2 * FRAME, rate / 8 * 0.001)


@given(rates)
def test_the_queue_is_bounded_and_takes_a_burst_of_superframes(rate: int) -> None:
    assert 4 * LARGEST_SUPERFRAME <= _numbers(rate)["limit"] <= max(16 * LARGEST_SUPERFRAME, rate / 8 * 0.1)
