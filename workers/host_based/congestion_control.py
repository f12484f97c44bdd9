"""Congestion control between hosts: how many packets a sender may have in flight, and how fast it may send them.

There are three kinds: none, which uses the whole window; DCTCP, a window (RFC 8257); and DCQCN, a rate (Zhu et al.,
"Congestion control for large-scale RDMA deployments", SIGCOMM 2015).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import floor, inf
from typing import Literal, Protocol

from fanin.workers.congestion import GAIN, CongestionWindow

INITIAL_WINDOW = 10  # packets, of TCP (RFC 6928)
_LEAST = 2.0  # packets, TCP's smallest slow start threshold

# Seconds: packets that are due within this time are sent at once, so that a fast sender wakes less often.
_AHEAD = 2e-6


class CongestionControl(Protocol):
    """The congestion control of one sender. Packets are numbered from 0; `now` is in seconds."""

    @property
    def window(self) -> int:
        """Return how many packets may be outstanding."""

    def allowance(self, now: float) -> int | None:
        """Return how many packets may be sent now; None if only the window limits them."""

    @property
    def ready_at(self) -> float:
        """Return when the next packet may be sent."""

    def sent(self, packets: int, now: float) -> None:
        """Record that packets have been sent, for the first time or again."""

    def acknowledged(self, base: int, end: int, marked: int, now: float) -> None:
        """Record an acknowledgement.

        Args:
            base: All packets below are acknowledged.
            end: All packets below have been sent, since the sender last went back if it did.
            marked: How many packets have arrived with a congestion mark so far.
            now: The time in seconds.
        """


MakeControl = Callable[[int], CongestionControl]  # argument: most packets that may be outstanding


class _Unpaced:
    """A sender limited only by its window."""

    ready_at = 0.0

    def allowance(self, now: float) -> int | None:  # noqa: ARG002
        """See CongestionControl."""
        return None

    def sent(self, packets: int, now: float) -> None:
        """See CongestionControl."""


class NoControl(_Unpaced):
    """No congestion control: the window never changes."""

    def __init__(self, window: int) -> None:
        self.window = window

    def acknowledged(self, base: int, end: int, marked: int, now: float) -> None:
        """See CongestionControl."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DctcpParameters:
    """Parameters of DCTCP; windows in packets.

    Attributes:
        gain: Weight of the newest share of marked packets in alpha, the estimate of congestion.
        initial_alpha: Alpha at the start.
        min_window: Smallest window.
        initial_window: Window at the start. None: as many packets as may be outstanding.
        ssthresh: Up to this window, and until the first mark, each acknowledgement adds as many packets as it
            acknowledges (slow start). None: as many packets as may be outstanding.
        increase: Whether the window grows by a packet after rounds without marks (RFC 3168, section 6.1.2), or after
            every round, as in the analysis by DCTCP's authors (Alizadeh et al., SIGMETRICS 2011).
    """

    gain: float = GAIN
    initial_alpha: float = 1.0
    min_window: int = 2
    initial_window: int | None = None
    ssthresh: int | None = None
    increase: Literal["unmarked", "always"] = "unmarked"


class Dctcp(_Unpaced):
    """DCTCP: the window follows the share of marked packets.

    The first mark shrinks the window at once. Marks on packets that were outstanding then do not shrink it again. Alpha
    is updated, and the window grows, once a window, or when the sender goes back.
    """

    def __init__(self, window: int, parameters: DctcpParameters = DctcpParameters()) -> None:
        self.parameters = parameters
        self._window = CongestionWindow(min(parameters.min_window, window), window)
        self._window.size = min(parameters.initial_window or window, window)
        self._window.share = parameters.initial_alpha
        self._ssthresh: float = parameters.ssthresh or window
        self._acknowledged = self._marked = 0
        self._epoch = (0, 0, 0)  # its end, and packets acknowledged and marked when it began
        self._reduced = 0  # packets below were sent before the window was last reduced

    @property
    def window(self) -> int:
        """See CongestionControl."""
        return int(self._window.size)

    def acknowledged(self, base: int, end: int, marked: int, now: float) -> None:  # noqa: ARG002
        """See CongestionControl."""
        window, parameters = self._window, self.parameters
        congested = marked > self._marked
        if congested:
            self._marked = marked
            self._ssthresh = min(self._ssthresh, window.size)
        slow_start = window.size < self._ssthresh
        if slow_start:
            window.increase(min(base - self._acknowledged, self._ssthresh - window.size))
        self._acknowledged = base
        epoch_end, acknowledged_then, marked_then = self._epoch
        ended = base >= min(epoch_end, end)  # if the sender has gone back, later packets were discarded
        marks = self._marked - marked_then
        if ended:
            window.estimate(base - acknowledged_then, marks, parameters.gain)
            self._epoch = (end, base, self._marked)
        if congested and base > min(self._reduced, end - 1):
            window.decrease()
            self._ssthresh = window.size
            self._reduced = end
        if ended and not (slow_start or (marks and parameters.increase == "unmarked")):
            window.increase(1)


class Reno(_Unpaced):
    """TCP's congestion control (RFC 5681) with selective acknowledgements; it ignores congestion marks.

    CUBIC, Linux's default, falls back to the same growth where round trips are as short as in a data centre (RFC 9438,
    section 4.3). It would keep 0.7 of the window after a loss, instead of half.
    """

    def __init__(self, window: int) -> None:
        self._most = float(window)
        self._size = min(float(INITIAL_WINDOW), self._most)
        self._ssthresh = self._most
        self._recover = 0  # losses below this packet have been reacted to
        self._recovering = False
        self._acknowledged = 0

    @property
    def window(self) -> int:
        """See CongestionControl."""
        return int(self._size)

    def acknowledged(self, base: int, end: int, marked: int, now: float) -> None:  # noqa: ARG002
        """See CongestionControl."""
        fresh, self._acknowledged = base - self._acknowledged, base
        if base >= self._recover:
            self._recovering = False
        if self._recovering or not fresh:
            return
        if self._size < self._ssthresh:
            self._size = min(self._size + fresh, self._ssthresh)
        else:
            self._size = min(self._size + fresh / self._size, self._most)

    def lost(self, base: int, end: int) -> None:
        """React to a loss, once for all packets that were in flight then; see acknowledged()."""
        if base >= self._recover:
            self._size = self._ssthresh = max(self._size / 2, _LEAST)
            self._recover, self._recovering = end, True

    def timed_out(self, end: int) -> None:
        """React to a timeout: begin with one packet, by slow start."""
        self._ssthresh = max(self._size / 2, _LEAST)
        self._size = 1.0
        self._recover, self._recovering = end, False


@dataclass(frozen=True, slots=True, kw_only=True)
class DcqcnParameters:
    """Parameters of DCQCN; times in seconds, rates in bits/s.

    Attributes:
        gain: Weight of one mark in alpha, the estimate of congestion.
        alpha_interval: Time between two updates of alpha.
        decrease_interval: Time between two decreases.
        increase_interval: Time between two increases.
        fast_recovery: How many increases after a decrease go half of the way back to the target, the rate before the
            decrease.
        additive_rate: By how much the next increase raises the target.
        hyper_rate: By how much all later increases raise the target.
        min_rate: Smallest rate.
        initial_alpha: Alpha at the start.
        by_timer: Whether alpha and rate change when their intervals end, as in network cards. If not, they change with
            a mark.
        keep_target: Whether two decreases without an increase between them keep the target of the first.
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

    Marks replace CNPs: the receiver's interval between CNPs becomes the interval between changes here. There is no byte
    counter.
    """

    def __init__(self, window: int, parameters: DcqcnParameters, rate: float, packet_bits: int) -> None:
        self.window = window
        self.rate = self._target = self._line = float(rate)
        self.parameters, self.packet_bits = parameters, packet_bits
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
        return 1 + floor(_AHEAD * self.rate / self.packet_bits)

    def sent(self, packets: int, now: float) -> None:
        """See CongestionControl."""
        self.ready_at = max(self.ready_at, now) + packets * self.packet_bits / self.rate

    def acknowledged(self, base: int, end: int, marked: int, now: float) -> None:  # noqa: ARG002
        """See CongestionControl."""
        if marked <= self._marked:
            return
        self._marked = marked
        self._advance(now)
        parameters = self.parameters
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

    # -- timers: their effects are computed on the next call, before anything else

    def _advance(self, now: float) -> None:
        if self._decrease_marked and self._next_decrease <= now:
            due = self._next_decrease
            self._increase_until(due)
            self._set_alpha_until(due)
            self._decrease(due)
            self._decrease_marked = False
        self._increase_until(now)
        self._set_alpha_until(now)
        if self.parameters.by_timer and self._next_decrease <= now:
            # Skip the timers at which there was nothing to decrease.
            interval = self.parameters.decrease_interval
            self._next_decrease += interval * (floor((now - self._next_decrease) / interval) + 1)

    def _set_alpha_until(self, now: float) -> None:
        if self._next_alpha > now:
            return
        gain, interval = self.parameters.gain, self.parameters.alpha_interval
        times = floor((now - self._next_alpha) / interval) + 1
        self._next_alpha += times * interval
        if self._alpha_marked:
            self.alpha += gain * (1 - self.alpha)
            self._alpha_marked = False
            times -= 1
        self.alpha *= (1 - gain) ** times

    def _decrease(self, now: float) -> None:
        parameters = self.parameters
        if self._increases or not parameters.keep_target:
            self._target = self.rate
        self.rate = max(parameters.min_rate, self.rate * (1 - self.alpha / 2))
        self._increases = 0
        self._next_increase = now + parameters.increase_interval

    def _increase_until(self, now: float) -> None:
        parameters = self.parameters
        while self._next_increase <= now:
            if self._increases >= parameters.fast_recovery:
                first = self._increases == parameters.fast_recovery
                step = parameters.additive_rate if first else parameters.hyper_rate
                self._target = min(self._target + step, self._line)
            self.rate = (self.rate + self._target) / 2
            self._increases += 1
            self._next_increase += parameters.increase_interval
