"""The senders' reaction to congestion marks: DCQCN against its timers one by one, and its packets in time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.workers.host_based.congestion_control import (
    Dcqcn,
    DcqcnParameters,
    Dctcp,
    DctcpParameters,
    NoControl,
)

GIGABIT = 10**9
LINE = 10 * GIGABIT
PACKET_BITS = 8000
# Times that add up without rounding.
PARAMETERS = DcqcnParameters(
    gain=1 / 16,
    alpha_interval=2.0**-14,
    decrease_interval=2.0**-12,
    increase_interval=3 * 2.0**-12,
    fast_recovery=2,
    additive_rate=GIGABIT / 100,
    hyper_rate=GIGABIT / 10,
    min_rate=GIGABIT / 100,
)


def sender(parameters: DcqcnParameters = PARAMETERS) -> Dcqcn:
    return Dcqcn(1000, parameters, LINE, PACKET_BITS)


class ByTimers:
    """The rate of a sender with a mark at each of some times, by timers that ring one after the other."""

    def __init__(self, parameters: DcqcnParameters) -> None:
        self.parameters = parameters
        self.rate = self.target = float(LINE)
        self.alpha = 1.0
        self.increases = 0
        self.alpha_marked = self.decrease_marked = False
        self.timers: dict[str, float] = {}

    def mark(self, now: float) -> None:
        self.ring(now)
        self.alpha_marked = bool(self.timers)
        self.decrease_marked = True
        if not self.timers:
            self.timers = {
                "alpha": now + self.parameters.alpha_interval,
                "decrease": now + self.parameters.decrease_interval,
            }

    def ring(self, now: float) -> None:
        order = {"increase": self.increase, "alpha": self.set_alpha, "decrease": self.decrease}
        while self.timers:
            which = min(self.timers, key=lambda name: (self.timers[name], list(order).index(name)))
            if self.timers[which] > now:
                return
            order[which](self.timers[which])

    def increase(self, now: float) -> None:
        parameters = self.parameters
        if self.increases == parameters.fast_recovery:
            self.target = min(LINE, self.target + parameters.additive_rate)
        elif self.increases > parameters.fast_recovery:
            self.target = min(LINE, self.target + parameters.hyper_rate)
        self.rate = (self.rate + self.target) / 2
        self.increases += 1
        self.timers["increase"] = now + parameters.increase_interval

    def decrease(self, now: float) -> None:
        if self.decrease_marked:
            if self.increases:
                self.target = self.rate
            self.rate = max(self.parameters.min_rate, self.rate * (1 - self.alpha / 2))
            self.increases = 0
            self.decrease_marked = False
            self.timers["increase"] = now + self.parameters.increase_interval
        self.timers["decrease"] = now + self.parameters.decrease_interval

    def set_alpha(self, now: float) -> None:
        self.alpha = (1 - self.parameters.gain) * self.alpha + self.parameters.gain * self.alpha_marked
        self.alpha_marked = False
        self.timers["alpha"] = now + self.parameters.alpha_interval


@given(gaps=st.lists(st.integers(1, 200), max_size=30), idle=st.integers(0, 1000))
def test_dcqcn_has_at_every_time_the_rate_that_its_timers_one_by_one_would_give(
    gaps: list[int], idle: int
) -> None:
    tick = 2.0**-16
    timers, lazy, now = ByTimers(PARAMETERS), sender(), 0.0
    for marked, gap in enumerate(gaps, start=1):
        now += gap * tick
        timers.mark(now)
        lazy.acknowledged(0, 0, marked, now)
        assert (lazy.rate, lazy.alpha) == pytest.approx((timers.rate, timers.alpha))
    now += idle * tick
    timers.ring(now)
    lazy.allowance(now)
    assert (lazy.rate, lazy.alpha) == pytest.approx((timers.rate, timers.alpha))


def test_dcqcn_that_reacts_at_once_does_so_once_an_interval() -> None:
    control = sender(replace(PARAMETERS, by_timer=False, initial_alpha=0.5))
    alpha = 0.5 + (1 - 0.5) / 16
    control.acknowledged(0, 0, 1, 1.0)
    assert control.rate == pytest.approx(LINE * (1 - alpha / 2))
    control.acknowledged(0, 0, 2, 1.0 + PARAMETERS.decrease_interval / 2)
    assert control.rate == pytest.approx(LINE * (1 - alpha / 2))
    control.acknowledged(0, 0, 3, 1.0 + PARAMETERS.decrease_interval)
    assert control.rate < LINE * (1 - alpha / 2) ** 1.5


def test_without_marks_dcqcn_sends_at_the_rate_of_the_link() -> None:
    control = sender()
    control.acknowledged(10, 20, 0, 1.0)
    assert control.rate == LINE


@given(marks=st.integers(0, 5))
def test_packets_leave_at_the_rate_however_many_are_asked_for_at_a_time(marks: int) -> None:
    control, now, sent = sender(), 0.0, 0
    for marked in range(1, marks + 1):
        control.acknowledged(0, 0, marked, marked * 1e-3)
        now = marked * 1e-3
    begun, control.ready_at = now, now
    last = now
    while sent < 5000:
        allowed = control.allowance(now)
        assert (allowed > 0) == (now >= control.ready_at)
        sent += allowed
        control.sent(allowed, now)
        last, now = now, control.ready_at
    # The rate grows while this goes on, up to that of the link.
    assert (sent - 1) * PACKET_BITS / LINE <= (now - begun) * (1 + 1e-9)
    assert now - last < 1e-3
    if not marks:
        assert now - begun == pytest.approx(sent * PACKET_BITS / LINE)


def test_dctcp_halves_its_window_if_everything_is_marked_and_grows_by_a_packet_without_marks() -> None:
    control = Dctcp(64)
    assert control.window == 64
    control.acknowledged(64, 128, 64, 0.0)
    assert control.window == 32
    control.acknowledged(128, 160, 64, 0.0)
    assert control.window == 33


def rounds(control: Dctcp, *marked: int) -> list[int]:
    """Its window after each of some rounds, in which a whole window is acknowledged, so many packets with a mark."""
    windows = []
    base = marks = 0
    for count in marked:
        end, marks = base + control.window, marks + count
        control.acknowledged(end, end, marks, 0.0)
        base = end
        windows.append(control.window)
    return windows


def test_dctcp_estimates_congestion_from_where_it_is_told_with_the_gain_that_it_is_told() -> None:
    assert rounds(Dctcp(64, DctcpParameters(initial_alpha=0)), 64) == [62]  # 64 (1 - 1/32)
    assert rounds(Dctcp(64, DctcpParameters(initial_alpha=0, gain=0.5)), 64) == [48]  # 64 (1 - 1/4)


def test_dctcp_begins_with_its_initial_window_and_grows_by_slow_start_until_the_first_mark() -> None:
    control = Dctcp(64, DctcpParameters(initial_window=4))
    assert control.window == 4
    assert rounds(control, 0, 0, 1, 0, 0) == [8, 16, 9, 10, 11]


def test_dctcp_goes_on_from_ssthresh_by_a_packet_a_round_and_not_beyond_the_window() -> None:
    control = Dctcp(12, DctcpParameters(initial_window=4, ssthresh=10))
    assert rounds(control, 0, 0, 0, 0, 0) == [8, 10, 11, 12, 12]


def test_dctcp_may_add_a_packet_after_rounds_with_marks_too() -> None:
    parameters = DctcpParameters(initial_alpha=1, increase="always")
    assert rounds(Dctcp(64, parameters), 64, 33) == [33, 17]


def test_dctcp_shrinks_its_window_once_for_all_packets_that_were_outstanding_at_the_first_mark() -> None:
    """RFC 3168, section 6.1.2, which RFC 8257 follows: marks on packets sent before a cut lead to no other."""
    control = Dctcp(64, DctcpParameters(initial_alpha=0.5))
    control.acknowledged(40, 104, 0, 0.0)
    control.acknowledged(70, 134, 1, 0.0)
    once = control.window
    assert 46 <= once <= 50
    for marks, base in enumerate(range(71, 135), start=2):
        control.acknowledged(base, max(134, base + once), marks, 0.0)
        assert control.window == once
    control.acknowledged(136, 136 + once, 66, 0.0)
    assert control.window < 0.9 * once


@pytest.mark.parametrize(("least", "window", "left"), [(1, 64, 1), (2, 64, 2), (7, 64, 7), (2, 1, 1)])
def test_dctcp_keeps_its_min_window_which_is_no_more_than_its_window(
    least: int, window: int, left: int
) -> None:
    control = Dctcp(window, DctcpParameters(min_window=least))
    assert rounds(control, *[64] * 20)[-1] == left


def test_without_control_marks_change_nothing() -> None:
    control = NoControl(64)
    control.acknowledged(64, 128, 64, 0.0)
    assert (control.window, control.allowance(0.0)) == (64, None)
