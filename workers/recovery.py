"""Retransmission timers and the round-trip time estimator of RFC 6298."""

import ctypes
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# RFC 6298, section 2.
ALPHA = 1 / 8
BETA = 1 / 4
K = 4
PACKET_THRESHOLD = 3  # RFC 9002's kPacketThreshold: valid where all packets of a flow take one path
G = 0.001  # seconds: the granularity of the clock, here that of poll()

_NEVER = np.iinfo(np.int64).max

# How often a timeout is doubled at most: enough to exceed any max_rto, and far too little to overflow.
MAX_BACKOFF = 64


@dataclass(frozen=True, slots=True)
class Recovery:
    """Settings of loss recovery; times in seconds.

    Attributes:
        initial_rto: Retransmission timeout before the first measurement.
        min_rto: Smallest timeout. It is longer than a busy machine may delay a process; a smaller one would cause
            spurious retransmissions.
        max_rto: Largest timeout.
        give_up: An all-reduce that receives nothing new for this long fails.
        granularity: Granularity of the clock, RFC 6298's G.
        packet_threshold: With selective repeat between hosts, a packet counts as lost once a packet sent this many
            packets later has arrived (RFC 9002, section 6.1.1).

    Raises:
        ValueError: If a time or the threshold is not positive, or the timeouts are not in order.
    """

    initial_rto: float = 0.05
    min_rto: float = 0.02
    max_rto: float = 1.0
    give_up: float = 30.0
    granularity: float = G
    packet_threshold: int = PACKET_THRESHOLD

    def __post_init__(self) -> None:
        if not 0 < self.min_rto <= self.initial_rto <= self.max_rto:
            raise ValueError(
                "timeouts must satisfy 0 < min_rto <= initial_rto <= max_rto, "
                f"not {self.min_rto}, {self.initial_rto}, {self.max_rto}"
            )
        if self.give_up <= 0:
            raise ValueError(f"give_up must be positive, not {self.give_up}")
        if self.packet_threshold < 1:
            raise ValueError(f"packet_threshold must be at least 1, not {self.packet_threshold}")


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace at which a worker sends datagrams; times in seconds.

    Attributes:
        window: Packets in flight.
        segments: Datagrams handed to the kernel at once.
        offload: Whether to use segmentation offload.
        checksums: Whether in-network packets carry UDP checksums.
        initial_rto: See Recovery.
        min_rto: See Recovery.
        granularity: See Recovery.
        packet_threshold: See Recovery.
        growth: Bytes by which switches can lengthen a packet; None if enough for all.
    """

    window: int
    segments: int
    offload: bool = True
    checksums: bool = True
    initial_rto: float = 0.1
    min_rto: float = 0.01
    granularity: float = G
    packet_threshold: int = PACKET_THRESHOLD
    growth: int | None = None

    def recovery(self, give_up: float) -> Recovery:
        """Return the timers of a worker that fails after `give_up` seconds without anything new."""
        return Recovery(
            initial_rto=self.initial_rto,
            min_rto=self.min_rto,
            max_rto=max(self.initial_rto, Recovery().max_rto),
            give_up=give_up,
            granularity=self.granularity,
            packet_threshold=self.packet_threshold,
        )


class RttEstimator(ctypes.Structure):
    """Smoothed round-trip time and retransmission timeout, in seconds (RFC 6298).

    The structure is laid out for native.c, which works on the same memory.
    """

    _fields_ = (
        ("_smoothed", ctypes.c_double),  # NaN before the first measurement
        ("variation", ctypes.c_double),
        ("rto", ctypes.c_double),
        ("rto_without_floor", ctypes.c_double),
    )
    _smoothed: float
    variation: float
    rto: float
    rto_without_floor: float

    def __init__(self, recovery: Recovery) -> None:
        super().__init__(_smoothed=math.nan)
        self._recovery = recovery
        self.rto = self.rto_without_floor = recovery.initial_rto

    @property
    def smoothed(self) -> float | None:
        """Return the smoothed round-trip time; None before the first measurement."""
        return None if math.isnan(self._smoothed) else self._smoothed

    def sample(self, rtt: float, share: float) -> None:
        """Add one measurement `rtt` that stands for `share` of the packets in flight.

        A window gives many samples a round trip. At full weight the estimator would forget within a fraction of a round
        trip, so the gains are scaled: one round trip weighs what one sample does in the RFC (RFC 7323, appendix G). The
        gains are not scaled where the estimate is far too long. Early samples include the time that other workers took
        to start and to notice losses; keeping them would delay the detection of the next losses even more.
        """
        if math.isnan(self._smoothed):
            self._smoothed = rtt
            self.variation = rtt / 2
        else:
            share = share if 2 * rtt > self._smoothed else 1.0
            self.variation += BETA * share * (abs(self._smoothed - rtt) - self.variation)
            self._smoothed += ALPHA * share * (rtt - self._smoothed)
        rto = self._smoothed + max(self._recovery.granularity, K * self.variation)
        self.rto_without_floor = min(rto, self._recovery.max_rto)
        self.rto = max(self.rto_without_floor, self._recovery.min_rto)


class Timers(ctypes.Structure):
    """Loss detection for each place of a window, all driven by one estimator; `now` in seconds.

    All timers restart whenever anything is answered (RFC 6298, section 5.3), so they expire only in silence: a packet
    that is delayed in a queue, or by a slow worker, is not retransmitted. When timers expire, only the packet that was
    sent longest ago is retransmitted (section 5.4), and all timers restart. This avoids flooding a switch or a worker
    that could not run for a while.

    Losses while answers arrive are found from the answers. A packet that a later one has overtaken (as in RFC 9002,
    section 6.1) gets a second timer, which is not restarted and has no lower limit. When the packet that was
    retransmitted after silence is answered, all packets sent before it get such a timer.

    The structure is laid out for native.c, which works on the same memory.

    Attributes:
        first_sent: When the packet of each place was first sent [places].
        times_sent: How often it was sent [places].
        timeouts: How often timers expired in silence.
    """

    _fields_ = (
        ("_restarted", ctypes.c_double),  # when timers were last restarted
        ("_not_before", ctypes.c_double),  # no packet counts as lost earlier
        ("_backoff", ctypes.c_int64),  # initial backoff of new timers
        # Transmissions are numbered, including retransmissions.
        ("_next_sending", ctypes.c_int64),
        ("_newest_answered", ctypes.c_int64),
        ("_probe", ctypes.c_int64),  # transmission caused by silence; -1: answered
        ("running", ctypes.c_int64),
        ("_flight", ctypes.c_int64),  # most timers that ran at once since none ran
    )
    _restarted: float
    _not_before: float
    _backoff: int
    _next_sending: int
    _newest_answered: int
    _probe: int
    running: int
    _flight: int

    def __init__(self, places: int, recovery: Recovery) -> None:
        super().__init__(_not_before=math.inf, _newest_answered=-1, _probe=-1)
        self.rtt = RttEstimator(recovery)
        self.first_sent = np.zeros(places)
        self.times_sent = np.zeros(places, np.int64)
        self.timeouts = 0
        self._initial = recovery.initial_rto
        self._longest = recovery.max_rto
        self._last_sent = np.zeros(places)
        self._timeouts = np.full(places, np.inf)  # how long each timer runs; infinity: stopped
        self._backoffs = np.zeros(places, np.int64)
        self._measured = np.zeros(places, np.bool_)
        self._lost_at = np.full(places, np.inf)  # second timers, of overtaken packets
        self._sendings = np.full(places, _NEVER)

    def addresses(self) -> dict[str, int]:
        """Return the memory addresses of the arrays that have an element for each place, by name."""
        arrays = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return {name.removeprefix("_"): array.ctypes.data for name, array in arrays.items()}

    def start(
        self, places: NDArray[np.int64] | slice, now: float, *, patient: bool = False, measure: bool = True
    ) -> None:
        """Start the stopped timers of packets that have just been sent for the first time.

        Args:
            places: The packets' places in the window, [m] or a slice.
            now: The time of sending.
            patient: Whether the answers wait for the last worker to begin. Such packets get the initial timeout, since
                no measurement tells how long that takes.
            measure: Whether the answers measure the round-trip time.
        """
        rto = max(self.rtt.rto, self._initial) if patient else self.rtt.rto
        timeout = min(rto * 2.0**self._backoff, self._longest)
        self._timeouts[places] = timeout
        self._backoffs[places] = self._backoff
        self._measured[places] = measure
        self.first_sent[places] = now
        self.times_sent[places] = 1
        self._not_before = min(self._not_before, now + timeout)
        count = self._send(places, now)
        self._flight = max(self._flight, self.running + count) if self.running else count
        self.running += count

    def expired(self, now: float) -> NDArray[np.int64]:
        """Return the places [m] whose packets must be retransmitted, and restart their timers."""
        if now < self._not_before:
            return np.zeros(0, np.int64)
        lost = self._lost_at <= now
        silent = np.flatnonzero((self._deadlines() <= now) & ~lost)
        if len(silent):
            # RFC 6298, section 5.5: back off. Section 5.7 (Karn's algorithm): timers start from the backed-off
            # value until a packet that was sent once is answered.
            self.timeouts += 1
            self._restarted = now
            self._backoffs[silent] = np.minimum(self._backoffs[silent] + 1, MAX_BACKOFF)
            self._backoff = max(self._backoff, int(self._backoffs[silent].max()))
            self._timeouts[silent] = np.minimum(self.rtt.rto * 2.0 ** self._backoffs[silent], self._longest)
            longest_ago = silent[self._sendings[silent].argmin()]
            lost[longest_ago] = True
        places = np.flatnonzero(lost)
        if len(places):
            self.times_sent[places] += 1
            self._lost_at[places] = np.inf
            self._send(places, now)
        if len(silent):
            self._probe = int(self._sendings[longest_ago])
        self.earliest()
        return places

    def stop(self, places: NDArray[np.int64], now: float) -> None:
        """Stop the timers of these places [m], whose packets were answered together."""
        share = len(places) / self._flight
        # Only for packets sent once is it clear which transmission was answered (Karn's algorithm).
        once = places[self.times_sent[places] == 1]
        sendings = self._sendings[once]
        heard = self._probe >= 0 and bool((self._sendings[places] == self._probe).any())
        self._timeouts[places] = np.inf
        self._lost_at[places] = np.inf
        self._sendings[places] = _NEVER
        self._restarted = now
        self.running -= len(places)
        if heard:
            before = np.flatnonzero(self._sendings < self._probe)
            self._lose(before, np.minimum(self._lost_at[before], now + self.rtt.rto_without_floor))
            self._probe = -1
        if not len(once) or (newest := int(sendings.max())) < self._newest_answered:
            return
        # RFC 9002, section 5.1: an overtaken answer is not a measurement. A packet for it was lost, perhaps
        # another worker's, and it would measure how long that worker took to notice.
        self._newest_answered = newest
        self._backoff = 0
        place = once[sendings.argmax()]
        if self._measured[place]:
            self.rtt.sample(now - float(self.first_sent[place]), share)
        overtaken = np.flatnonzero(self._sendings < newest)
        self._lose(overtaken, self._last_sent[overtaken] + self.rtt.rto_without_floor)

    def earliest(self) -> float:
        """Return when the next packet counts as lost; infinity if none is outstanding."""
        self._not_before = float(np.minimum(self._deadlines(), self._lost_at).min())
        return self._not_before

    def _lose(self, places: NDArray[np.int64], lost_at: NDArray[np.float64]) -> None:
        """Count the packets of these places [m] as lost from `lost_at` [m] on, unless they are answered."""
        self._lost_at[places] = lost_at
        self._not_before = min(self._not_before, float(lost_at.min(initial=math.inf)))

    def _deadlines(self) -> NDArray[np.float64]:
        deadlines: NDArray[np.float64] = np.maximum(self._last_sent, self._restarted) + self._timeouts
        return deadlines

    def _send(self, places: NDArray[np.int64] | slice, now: float) -> int:
        """Record a transmission of the packets of these places, in order, and return how many they are."""
        self._last_sent[places] = now
        count = len(self._sendings[places])
        self._sendings[places] = np.arange(self._next_sending, self._next_sending + count)
        self._next_sending += count
        return count
