"""Congestion control between hosts: how many packets a sender may have on its way, and how fast it may send them.

None, as much as the window allows; DCTCP, a window (RFC 8257); DCQCN, a rate (Zhu et al., "Congestion control for
large-scale RDMA deployments", SIGCOMM 2015).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import floor, inf
from typing import Literal, Protocol

from fanin.workers.congestion import GAIN, CongestionWindow

_AHEAD = 2e-6  # seconds: what may leave within is sent at once, so that a fast sender need not wake for each packet


class CongestionControl(Protocol):
    """Of one sender. Packets are numbered from 0; `now` in seconds."""

    @property
    def window(self) -> int:
        """Packets that may be outstanding."""

    def allowance(self, now: float) -> int | None:
        """How many packets may be sent now; None: as many as the window allows."""

    @property
    def ready_at(self) -> float:
        """When the next packet may be sent."""

    def sent(self, packets: int, now: float) -> None:
        """So many have been sent, for the first time or again."""

    def acknowledged(self, base: int, end: int, marked: int, now: float) -> None:
        """All below `base` are acknowledged, all below `end` sent, since the sender went back last if it did;
        `marked` have come with a mark so far.
        """


MakeControl = Callable[[int], CongestionControl]  # of a sender with so many packets outstanding at most


class _Unpaced:
    """Its window alone limits a sender."""

    ready_at = 0.0

    def allowance(self, now: float) -> int | None:  # noqa: ARG002
        """See CongestionControl."""
        return None

    def sent(self, packets: int, now: float) -> None:
        """See CongestionControl."""


class NoControl(_Unpaced):
    """Congestion changes nothing."""

    def __init__(self, window: int) -> None:
        self.window = window

    def acknowledged(self, base: int, end: int, marked: int, now: float) -> None:
        """See CongestionControl."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DctcpParameters:
    """Windows in packets.

    gain: weight of a new share of marked packets in alpha, the estimate of congestion. min_window: what congestion
    leaves. initial_window: None: as many as may be outstanding. ssthresh: up to this window each acknowledgement adds
    as many packets as it is for, until the first mark (slow start); None: as many as may be outstanding. increase:
    whether the window grows by a packet after rounds without marks (RFC 3168, section 6.1.2), or after all, as in the
    analysis of DCTCP's authors (Alizadeh et al., SIGMETRICS 2011).
    """

    gain: float = GAIN
    initial_alpha: float = 1.0
    min_window: int = 2
    initial_window: int | None = None
    ssthresh: int | None = None
    increase: Literal["unmarked", "always"] = "unmarked"


class Dctcp(_Unpaced):
    """Its window follows the share of packets with a mark, once a window, or when the sender goes back."""

    def __init__(self, window: int, parameters: DctcpParameters = DctcpParameters()) -> None:
        self._parameters = parameters
        self._window = CongestionWindow(min(parameters.min_window, window), window)
        self._window.size = min(parameters.initial_window or window, window)
        self._window.share = parameters.initial_alpha
        self._ssthresh: float = parameters.ssthresh or window
        self._acknowledged = self._marked = 0
        self._epoch = (0, 0, 0)  # its end, and packets acknowledged and marked when it began

    @property
    def window(self) -> int:
        """See CongestionControl."""
        return int(self._window.size)

    def acknowledged(self, base: int, end: int, marked: int, now: float) -> None:  # noqa: ARG002
        """See CongestionControl."""
        window, parameters = self._window, self._parameters
        if marked > self._marked:
            self._marked = marked
            self._ssthresh = min(self._ssthresh, window.size)
        slow_start = window.size < self._ssthresh
        if slow_start:
            window.increase(min(base - self._acknowledged, self._ssthresh - window.size))
        self._acknowledged = base
        epoch_end, acknowledged_then, marked_then = self._epoch
        if base < min(epoch_end, end):  # what a sender that has gone back had sent further on was discarded
            return
        marks = self._marked - marked_then
        window.estimate(base - acknowledged_then, marks, parameters.gain)
        if marks:
            window.decrease()
            self._ssthresh = window.size
        if not (slow_start or (marks and parameters.increase == "unmarked")):
            window.increase(1)
        self._epoch = (end, base, self._marked)


@dataclass(frozen=True, slots=True, kw_only=True)
class DcqcnParameters:
    """Times in seconds, rates in bits/s.

    gain: weight of one mark in alpha, the estimate of congestion. alpha_interval: after which alpha is set anew.
    decrease_interval: between two decreases. increase_interval: between two increases, of which the first
    `fast_recovery` go half of the way back to the rate before the decrease; the next one raises that by
    `additive_rate`, all others by `hyper_rate`. by_timer: alpha and rate change when their intervals end, as in
    network cards; or else with a mark. keep_target: two decreases without an increase between go back to the rate
    before the first.
    """

    gain: float = 1 / 256
    alpha_interval: float
    decrease_interval: float
    increase_interval: float
    fast_recovery: int
    additive_rate: float
    hyper_rate: float
    min_rate: float
    initial_alpha: float = 1.0
    by_timer: bool = True
    keep_target: bool = True


class Dcqcn:
    """DCQCN's reaction point for a flow of packets of `packet_bits`, on a link of `rate` (bits/s).

    Marks take the place of CNPs: the receiver's interval between these is the one between changes here. There is no
    byte counter.
    """

    def __init__(self, window: int, parameters: DcqcnParameters, rate: float, packet_bits: int) -> None:
        self.window = window
        self.rate = self._target = self._line = float(rate)
        self._parameters = parameters
        self._packet_bits = packet_bits
        self.ready_at = 0.0
        self.alpha = parameters.initial_alpha
        self._marked = 0
        self._increases = 0  # since the last decrease
        self._alpha_marked = self._decrease_marked = False
        # Timers begin with the first mark.
        self._next_alpha = self._next_increase = inf
        self._next_decrease = inf if parameters.by_timer else 0.0

    def allowance(self, now: float) -> int:
        """See CongestionControl."""
        self._advance(now)
        if now < self.ready_at:
            return 0
        return 1 + floor(_AHEAD * self.rate / self._packet_bits)

    def sent(self, packets: int, now: float) -> None:
        """See CongestionControl."""
        self.ready_at = max(self.ready_at, now) + packets * self._packet_bits / self.rate

    def acknowledged(self, base: int, end: int, marked: int, now: float) -> None:  # noqa: ARG002
        """See CongestionControl."""
        if marked <= self._marked:
            return
        self._marked = marked
        self._advance(now)
        parameters = self._parameters
        if parameters.by_timer:
            self._decrease_marked = True
            if self._next_alpha < inf:
                self._alpha_marked = True
                return
            self._next_decrease = now + parameters.decrease_interval
        elif now >= self._next_decrease:
            self.alpha += parameters.gain * (1 - self.alpha)
            self._decrease(now)
            self._next_decrease = now + parameters.decrease_interval
        else:
            return
        self._next_alpha = now + parameters.alpha_interval

    # -- timers, which need not ring: what they would have done is done before anything else

    def _advance(self, now: float) -> None:
        if self._decrease_marked and self._next_decrease <= now:
            due = self._next_decrease
            self._increase_until(due)
            self._set_alpha_until(due)
            self._decrease(due)
            self._decrease_marked = False
        self._increase_until(now)
        self._set_alpha_until(now)
        if (
            self._parameters.by_timer and self._next_decrease <= now
        ):  # those at which there is nothing to decrease
            interval = self._parameters.decrease_interval
            self._next_decrease += interval * (floor((now - self._next_decrease) / interval) + 1)

    def _set_alpha_until(self, now: float) -> None:
        if self._next_alpha > now:
            return
        gain, interval = self._parameters.gain, self._parameters.alpha_interval
        times = floor((now - self._next_alpha) / interval) + 1
        self._next_alpha += times * interval
        if self._alpha_marked:
            self.alpha += gain * (1 - self.alpha)
            self._alpha_marked = False
            times -= 1
        self.alpha *= (1 - gain) ** times

    def _decrease(self, now: float) -> None:
        parameters = self._parameters
        if self._increases or not parameters.keep_target:
            self._target = self.rate
        self.rate = max(parameters.min_rate, self.rate * (1 - self.alpha / 2))
        self._increases = 0
        self._next_increase = now + parameters.increase_interval

    def _increase_until(self, now: float) -> None:
        parameters = self._parameters
        while self._next_increase <= now:
            if self._increases >= parameters.fast_recovery:
                first = self._increases == parameters.fast_recovery
                step = parameters.additive_rate if first else parameters.hyper_rate
                self._target = min(self._target + step, self._line)
            self.rate = (self.rate + self._target) / 2
            self._increases += 1
            self._next_increase += parameters.increase_interval
