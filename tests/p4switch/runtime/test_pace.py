"""When a switch wakes up for its emulated links, and when it says that it cannot keep up; the clock is the test's."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.native.shared import check_structs
from fanin.p4switch.engine.library import runtime

MILLISECOND, SECOND = 10**9, 10**12  # picoseconds
MICROSECONDS = 1000  # nanoseconds


class Pace(ctypes.Structure):
    """`struct pace`."""

    _fields_ = (
        ("margin", ctypes.c_int64 * 61),
        ("calm", ctypes.c_bool),
        *((name, ctypes.c_uint64) for name in ("looked", "used", "since", "said", "sent", "late")),
    )


@pytest.fixture
def pace() -> Pace:
    check_structs(runtime(), {"pace": Pace})
    made = Pace()
    runtime().pace_open(ctypes.byref(made))
    return made


@pytest.fixture
def lost(pace: Pace) -> Callable[[int, int, int], tuple[int, int] | None]:
    """At a time, with so many packets sent up to then and so many late: what is said (late, sent), or None."""
    function = runtime().pace_lost
    function.restype = ctypes.c_bool
    function.argtypes = [ctypes.c_void_p, ctypes.c_uint64, *[ctypes.POINTER(ctypes.c_uint64)] * 2]

    def look(now: int, sent: int, late: int) -> tuple[int, int] | None:
        released, behind = ctypes.c_uint64(sent), ctypes.c_uint64(late)
        said = function(ctypes.byref(pace), now, ctypes.byref(released), ctypes.byref(behind))
        return (behind.value, released.value) if said else None

    return look


Lost = Callable[[int, int, int], tuple[int, int] | None]


def test_a_switch_that_was_kept_from_running_says_so_at_once(lost: Lost) -> None:
    assert lost(5 * MILLISECOND, 40, 40) == (40, 40)


def test_what_is_in_time_is_not_spoken_of(lost: Lost) -> None:
    assert [lost(n * SECOND, 10_000 * n, 0) for n in range(1, 100)] == [None] * 99


def test_a_few_late_packets_are_nothing(lost: Lost) -> None:
    assert lost(5 * MILLISECOND, 10, 10) is None
    assert lost(2 * SECOND, 1000, 20) is None
    assert lost(3 * SECOND, 2000, 40) is None  # twenty more, of a thousand more


def test_more_than_a_few_and_one_in_a_hundred_are_too_many(lost: Lost) -> None:
    assert lost(MILLISECOND, 10_000, 110) is None
    assert lost(2 * MILLISECOND, 10_000, 111) == (111, 10_000)


def test_it_is_said_once_a_second_of_what_was_since(lost: Lost) -> None:
    assert lost(SECOND, 100, 50) == (50, 100)
    assert lost(SECOND + SECOND // 2, 200, 150) is None
    assert lost(2 * SECOND - 1, 300, 200) is None
    assert lost(2 * SECOND, 400, 250) == (200, 300)


def test_what_was_long_ago_does_not_excuse(lost: Lost) -> None:
    """A million packets in time, and then a hundred of a hundred late."""
    assert lost(10 * SECOND, 1_000_000, 0) is None
    assert lost(11 * SECOND, 1_000_100, 100) == (100, 100)


# Arrival


def arrival(now: int, age: int) -> int:
    function = runtime().pace_arrival
    function.restype, function.argtypes = ctypes.c_uint64, [ctypes.c_uint64, ctypes.c_int64]
    return int(function(now, age))


@pytest.mark.parametrize(
    ("now", "age", "came"),
    [
        (5 * SECOND, 0, 5 * SECOND),
        (5 * SECOND, 250 * MICROSECONDS, 5 * SECOND - MILLISECOND // 4),
        (
            5 * SECOND,
            3 * 10**9,
            4 * SECOND,
        ),  # as long as the switch was stopped, or the clock was put forward
        (5 * SECOND, -(10**12), 5 * SECOND),  # the clock was put back
        (MILLISECOND, 10**9, 0),  # before there was a switch
    ],
)
def test_a_packet_came_when_the_kernel_says(now: int, age: int, came: int) -> None:
    assert arrival(now, age) == came


@given(st.integers(0, 2**62), st.lists(st.integers(-(2**62), 2**62) | st.integers(0, 2 * 10**9), min_size=2))
def test_packets_come_in_order_of_age(now: int, ages: list[int]) -> None:
    """Else one that seems to come late would make those behind it wait, on a link on which none overtakes another."""
    came = [arrival(now, age) for age in sorted(ages, reverse=True)]
    assert came == sorted(came)


# Sleeping


def calm(pace: Pace, now: int, used: int) -> bool:
    function = runtime().pace_calm
    function.restype, function.argtypes = ctypes.c_bool, [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64]
    return bool(function(ctypes.byref(pace), now, used))


def sleep(pace: Pace, free_for: int) -> int:
    function = runtime().pace_sleep
    function.restype, function.argtypes = ctypes.c_int64, [ctypes.c_void_p, ctypes.c_int64]
    return int(function(ctypes.byref(pace), free_for))


def slept(pace: Pace, free_for: int, lasted: int) -> None:
    runtime().pace_slept.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    runtime().pace_slept(ctypes.byref(pace), free_for, lasted)


@pytest.mark.parametrize("free_for", [100 * MICROSECONDS, 1000 * MICROSECONDS, 50_000 * MICROSECONDS])
def test_nineteen_sleeps_in_twenty_end_in_time(pace: Pace, free_for: int) -> None:
    """Sleeps that last 5 to 45 us too long: who wants to be there in time sleeps some 43 us less."""
    pace.calm = True
    r = random.Random(1)
    late = 0
    for number in range(6000):
        asked = sleep(pace, free_for)
        lasted = asked + r.randrange(5, 45) * MICROSECONDS
        late += number >= 2000 and lasted > free_for
        slept(pace, free_for, lasted)
    assert 150 <= late <= 250
    assert sleep(pace, free_for) == pytest.approx(free_for - 43 * MICROSECONDS, abs=3 * MICROSECONDS)


def test_long_sleeps_teach_nothing_about_short_ones(pace: Pace) -> None:
    before = sleep(pace, 100 * MICROSECONDS)
    for _ in range(100):
        slept(pace, 50_000 * MICROSECONDS, 50_200 * MICROSECONDS)
    assert sleep(pace, 100 * MICROSECONDS) == before


def test_being_kept_from_running_teaches_nothing(pace: Pace) -> None:
    """Others had the processor for 4 ms: to wake up earlier would not have helped."""
    before = sleep(pace, 1000 * MICROSECONDS)
    for _ in range(100):
        slept(pace, 1000 * MICROSECONDS, 5000 * MICROSECONDS)
    assert sleep(pace, 1000 * MICROSECONDS) == before


@pytest.mark.parametrize("free_for", [2**n * 1000 for n in range(5, 20)])
def test_something_is_always_slept_from_which_to_learn(pace: Pace, free_for: int) -> None:
    pace.calm = True
    for _ in range(1000):
        assert sleep(pace, free_for) > free_for // 5
        slept(pace, free_for, sleep(pace, free_for) + 240 * MICROSECONDS)


def test_who_runs_little_is_calm_until_he_runs_half_of_the_time(pace: Pace) -> None:
    used = 0
    for runs_of_ten, expected in ((4, False), (1, True), (4, True), (6, False), (4, False), (1, True)):
        now = pace.looked + 10 * MILLISECOND
        used += runs_of_ten * 1000 * MICROSECONDS
        assert calm(pace, now, used) == expected
        assert calm(pace, now + 9 * MILLISECOND, used) == expected


def test_who_is_not_calm_does_not_wait_for_long(pace: Pace) -> None:
    free_for = 1000 * MICROSECONDS
    for _ in range(100):
        slept(pace, free_for, sleep(pace, free_for) + 60 * MICROSECONDS)
    assert free_for - sleep(pace, free_for) == 15 * MICROSECONDS
    pace.calm = True
    assert free_for - sleep(pace, free_for) > 50 * MICROSECONDS


def test_a_moment_is_not_slept(pace: Pace) -> None:
    assert sleep(pace, 10 * MICROSECONDS) <= 0
    assert sleep(pace, 0) <= 0
