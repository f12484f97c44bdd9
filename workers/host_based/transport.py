"""A reliable transport between two ranks, without sockets or clock: messages become datagrams and arrive in order.

Each direction is a stream of packets numbered from 0. A message begins a new packet and fills each but its last. There
are three ways to recover from loss (Mittal et al., "Revisiting network support for RDMA", SIGCOMM 2018, compares such):

- selective repeat: the receiver keeps early packets and acknowledges with a bitmap; the sender retransmits packets that
  others have overtaken by `Recovery.packet_threshold` (RFC 9002, section 6.1.1);
- tcp, a model of Linux's for virtual time, in packets: selective repeat that slows down after losses;
- go-back-N, as in RoCE: the receiver drops early packets and asks once for the one that is missing; the sender goes
  back to it and retransmits everything from there, as fast as it may send.

In all, after silence for a retransmission timeout (RFC 6298) everything outstanding is retransmitted. If nothing
answers that either, each further timeout halves the number of packets, down to four. At most a window of packets is
outstanding. As in RoCE, loss does not slow the other senders down; congestion marks may (congestion_control.py).
"""

import struct
from bisect import bisect_right
from collections import Counter, deque
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

from fanin.workers.collective import Transport
from fanin.workers.host_based.congestion_control import Dctcp, MakeControl, Reno
from fanin.workers.recovery import MAX_BACKOFF, Recovery, RttEstimator

PAYLOAD = 1024  # bytes a packet, unless a stream has others: RoCE's on Ethernet of 1,500
MAX_PAYLOAD = 8948  # bytes, in whole float32, that fit Ethernet of 9,000 with all headers

# kind, flow, source, destination, session, number, and a last field.
# number: the number of a DATA packet; in ACK and NAK the next packet awaited. The last field: in DATA, the call that
# the packet belongs to; in ACK and NAK, how many packets of the stream have arrived with a congestion mark so far (as
# ECN-CE counts in RFC 9000, section 19.3.2). If packets beyond the awaited one have arrived, a bitmap of them follows
# the header of an ACK.
HEADER = struct.Struct("!BBHHIQI")
HEADER_BYTES = HEADER.size
CALL_BYTES = 4  # at the end of the header
ENDS = 10  # bytes of a header that identify its kind and its stream
_NUMBER = slice(10, 18)
DATA, ACK, NAK = range(3)

FIRST_PEER_PORT = 20_000  # UDP, live and in virtual time
MAX_FLOWS = 64  # from one rank to another
# Packets, RFC 3390's initial window. With fewer, a burst of loss that lasts for a number of packets would take longer.
MIN_FLIGHT = 4

Rows = NDArray[np.uint8]  # [packets, bytes]


def packet_numbers(headers: Rows) -> NDArray[np.int64]:
    """Return the packet numbers [m] of datagrams [m, bytes]."""
    numbers = np.ascontiguousarray(headers[:, _NUMBER]).view(">u8")[:, 0]
    return numbers.astype(np.int64)


def _batch(header: NDArray[np.uint8], first: int, payload: Rows) -> Rows:
    """Return datagrams, numbered from `first`."""
    count, size = payload.shape
    batch = np.empty((count, HEADER_BYTES + size), np.uint8)
    batch[:, :HEADER_BYTES] = header
    batch[:, _NUMBER] = np.arange(first, first + count, dtype=">u8").view(np.uint8).reshape(count, 8)
    batch[:, HEADER_BYTES:] = payload
    return batch


@dataclass(frozen=True, slots=True)
class Ends:
    """Sender, receiver, session and flow of a stream, which distinguish its datagrams from those of other jobs.

    `payload` is the bytes in a full packet, the same at both ends.
    """

    source: int
    destination: int
    session: int
    flow: int = 0
    payload: int = PAYLOAD

    def header(self, kind: int, number: int = 0, last: int = 0) -> NDArray[np.uint8]:
        """Return a header as bytes [HEADER_BYTES].

        Args:
            kind: DATA, ACK or NAK.
            number: The packet's number, or the number of the next packet awaited.
            last: The packet's call, or how many packets have arrived with a congestion mark so far.
        """
        packed = HEADER.pack(kind, self.flow, self.source, self.destination, self.session, number, last)
        return np.frombuffer(packed, np.uint8)


@dataclass(slots=True)
class StreamCounts:
    """Counters of streams.

    Attributes:
        retransmissions: Packets retransmitted.
        timeouts: Packets that counted as lost because of a timeout.
        ignored: Useless packets, by reason.
    """

    retransmissions: int = 0
    timeouts: int = 0
    ignored: Counter[str] = field(default_factory=Counter)


class Sender:
    """One end of a stream: write() messages, send datagrams(), and pass on acknowledgements with acknowledge().

    Args:
        ends: The stream.
        window: Limit of outstanding packets.
        recovery: Settings of loss recovery.
        counts: Counters to update.
        make_control: Makes the congestion control.
    """

    def __init__(
        self, ends: Ends, window: int, recovery: Recovery, counts: StreamCounts, make_control: MakeControl
    ) -> None:
        self._ends = ends
        self._most = window
        self._recovery = recovery
        self._counts = counts
        self._rtt = RttEstimator(recovery)
        # Messages not yet acknowledged as a whole: the number of their first packet, their bytes, and their header.
        self._firsts: list[int] = []
        self._messages: list[NDArray[np.uint8]] = []
        self._headers: list[NDArray[np.uint8]] = []
        self._end = 0  # one more than the last packet written
        self._base = 0  # the first not acknowledged
        self._next = 0  # the next to be sent
        self._sent = 0  # one more than the last sent: above `_next`, if the sender has gone back
        # When packets were first sent: (one more than the last, time). Only for packets sent once is it clear which
        # transmission is answered (Karn's algorithm); packets below `_measured_from` were sent more often.
        self._sent_at: deque[tuple[int, float]] = deque()
        self._measured_from = 0
        self._timer_began = 0.0
        self._backoff = 0
        self._control = make_control(window)
        self._waits_for_its_rate = False

    @property
    def done(self) -> bool:
        """Return whether everything written has been acknowledged."""
        return self._base == self._end

    @property
    def smoothed_rtt(self) -> float | None:
        """Return the smoothed round-trip time in seconds; None before the first measurement."""
        return self._rtt.smoothed

    def write(self, message: NDArray[np.uint8], call: int = 0) -> None:
        """Send a message.

        Args:
            message: Its bytes (not empty), which must not change before they have been acknowledged.
            call: A 32-bit number that each of its packets carries.
        """
        self._firsts.append(self._end)
        self._messages.append(message)
        self._headers.append(self._ends.header(DATA, last=call))
        self._end += -(-len(message) // self._ends.payload)

    def deadline(self) -> float:
        """Return when more may be sent or outstanding packets count as lost; infinity if neither will happen."""
        ready_at = self._control.ready_at if self._waits_for_its_rate else inf
        return min(ready_at, self._timeout())

    def _timeout(self) -> float:
        if self._base == self._sent:
            return inf
        return self._timer_began + min(self._rtt.rto * 2.0**self._backoff, self._recovery.max_rto)

    @property
    def outstanding(self) -> int:
        """Return the number of packets sent and not acknowledged."""
        return self._sent - self._base

    def datagrams(self, now: float, most: int | None = None) -> list[Rows]:
        """Return what to send now, in batches [m, bytes] by size.

        Args:
            now: The time in seconds.
            most: Limit for packets that were not sent before. None: only the stream's own window limits them.
        """
        if now >= self._timeout():
            self._backoff = min(self._backoff + 1, MAX_BACKOFF)
            self._timer_began = now
            self._counts.timeouts += self._time_out()
        batches = self._repeated()
        control = self._control
        if batches:
            control.sent(sum(map(len, batches)), now)
        last = min(self._end, self._window_end())
        if most is not None:
            last = min(last, self._sent + most)
        allowance = control.allowance(now) if last > self._next else None
        self._waits_for_its_rate = allowance is not None and self._next + allowance < last
        if allowance is not None:
            last = min(last, self._next + allowance)
        if last > self._next:
            control.sent(last - self._next, now)
            if self._base == self._sent:
                self._timer_began = now
            batches += self._packets(self._next, last)
            self._counts.retransmissions += min(last, self._sent) - self._next
            self._next = last
            if last > self._sent:
                self._sent_at.append((last, now))
                self._sent = last
        return batches

    def acknowledge(self, kind: int, number: int, marked: int, bitmap: NDArray[np.uint8], now: float) -> bool:
        """Process an ACK or a NAK.

        Args:
            kind: ACK or NAK.
            number: The packet that the receiver awaits next.
            marked: Packets that have arrived with a congestion mark so far.
            bitmap: A bit for each packet beyond the awaited one [bytes].
            now: The time in seconds.

        Returns:
            Whether it contains anything new.
        """
        if number > self._sent:
            self._counts.ignored["malformed"] += 1
            return False
        progress = number > self._base
        if progress:
            self._measure(number, now)
            self._base = number
            self._next = max(self._next, number)
            self._timer_began = now
            self._backoff = 0
            self._forget(number)
        progress |= self._find_lost(kind, number, bitmap, now)
        self._control.acknowledged(self._base, self._next, marked, now)
        return progress

    def _after_silence(self, window: int) -> int:
        """Return the part of a window that may be sent after the timeouts so far without an answer."""
        return max(window >> max(self._backoff - 1, 0), min(window, MIN_FLIGHT))

    # -- different in the subclasses

    def _window_end(self) -> int:
        """Return one more than the last packet that the window lets the sender send."""
        return self._base + self._after_silence(self._control.window)

    def _time_out(self) -> int:
        """Count outstanding packets as lost, and return how many."""
        raise NotImplementedError

    def _repeated(self) -> list[Rows]:
        """Return packets that count as lost and are to be retransmitted at once."""
        return []

    def _find_lost(self, kind: int, number: int, bitmap: NDArray[np.uint8], now: float) -> bool:
        """Find lost packets, and return whether the acknowledgement contains anything new besides its number."""
        raise NotImplementedError

    # -- packets

    def _packets(self, first: int, last: int) -> list[Rows]:
        """Return the datagrams of packets `first` to `last` - 1."""
        batches, payload = [], self._ends.payload
        index = bisect_right(self._firsts, first) - 1
        while first < last:
            message, begin, header = self._messages[index], self._firsts[index], self._headers[index]
            whole = begin + len(message) // payload  # packets before this one are full
            if first < whole:
                stop = min(last, whole)
                part = message[(first - begin) * payload : (stop - begin) * payload]
                batches.append(_batch(header, first, part.reshape(stop - first, payload)))
                first = stop
            if first < last and first == whole and len(message) % payload:
                rest = message[(whole - begin) * payload :]
                batches.append(_batch(header, first, rest.reshape(1, len(rest))))
                first += 1
            index += 1
        return batches

    def _forget(self, number: int) -> None:
        """Drop messages that have been acknowledged completely."""
        payload = self._ends.payload
        while self._firsts and self._firsts[0] + -(-len(self._messages[0]) // payload) <= number:
            del self._firsts[0], self._messages[0], self._headers[0]

    # -- round-trip time

    def _measure(self, number: int, now: float) -> None:
        sent = None
        while self._sent_at and self._sent_at[0][0] <= number:
            sent = self._sent_at.popleft()
        if sent is not None and sent[0] > self._measured_from:
            self._rtt.sample(now - sent[1], (number - self._base) / (self._sent - self._base))


class SelectiveRepeatSender(Sender):
    """A sender that retransmits only lost packets."""

    def __init__(
        self, ends: Ends, window: int, recovery: Recovery, counts: StreamCounts, make_control: MakeControl
    ) -> None:
        super().__init__(ends, window, recovery, counts, make_control)
        self._lost: list[int] = []  # to be retransmitted, in order
        # For outstanding packets, by number modulo the window; only updated while something is missing.
        self._there = np.zeros(window, np.bool_)  # acknowledged by a bitmap
        # The newest packet sent before, or together with, the packet's last transmission.
        self._sent_after = np.zeros(window, np.int64)
        self._missing_to = 0  # something is missing until all below are acknowledged
        self._highest = -1  # the newest packet acknowledged by a bitmap

    def _time_out(self) -> int:
        self._lost = self._missing(self._next)[: self._after_silence(self._most)].tolist()
        return len(self._lost)

    def _missing(self, end: int) -> NDArray[np.int64]:
        """Return the outstanding packets below `end` that no bitmap has acknowledged."""
        self._keep_up()
        numbers = np.arange(self._base, end)
        return numbers[~self._there[numbers % self._most]]

    def _keep_up(self) -> None:
        """Initialize the arrays for packets sent since the last call."""
        fresh = np.arange(max(self._missing_to, self._base), self._next)
        self._there[fresh % self._most] = False
        self._sent_after[fresh % self._most] = fresh
        self._missing_to = self._next

    def _repeated(self) -> list[Rows]:
        lost = [number for number in self._lost if number >= self._base]
        self._lost = []
        if not lost:
            return []
        numbers = np.array(lost)
        self._sent_after[numbers % self._most] = self._next - 1
        self._measured_from = self._next
        self._counts.retransmissions += len(lost)
        ends = np.flatnonzero(np.diff(numbers, append=lost[-1] + 2) != 1)
        starts = np.concatenate([[0], ends[:-1] + 1])
        runs = zip(numbers[starts].tolist(), (numbers[ends] + 1).tolist(), strict=True)
        return [batch for first, last in runs for batch in self._packets(first, last)]

    def _find_lost(self, _kind: int, number: int, bitmap: NDArray[np.uint8], now: float) -> bool:
        if not len(bitmap):
            return False
        self._keep_up()
        there = number + 1 + np.flatnonzero(np.unpackbits(bitmap))
        there = there[(there >= self._base) & (there < self._next)]
        fresh = there[~self._there[there % self._most]]
        if not len(fresh):
            return False
        self._there[fresh % self._most] = True
        self._highest = max(self._highest, int(fresh[-1]))
        self._timer_began = now
        missing = self._missing(self._highest)
        ahead = self._highest - self._sent_after[missing % self._most]
        overtaken = ahead >= self._recovery.packet_threshold
        self._lost = sorted({*self._lost, *missing[overtaken].tolist()})
        return True


class TcpSender(SelectiveRepeatSender):
    """A sender with TCP's congestion control: a loss slows it down, and retransmissions wait for the window, too.

    It counts packets instead of bytes. Packets that are acknowledged or lost are not in flight (RFC 6675). After two
    round trips of silence it sends the newest packet again, whose acknowledgement tells which others were lost (RFC
    8985, tail loss probe).
    """

    def __init__(self, ends: Ends, window: int, recovery: Recovery, counts: StreamCounts) -> None:
        super().__init__(ends, window, recovery, counts, Reno)
        self._control: Reno = self._control  # narrower than in the base
        self._probed = -1  # the packet that a probe has retransmitted since the last progress

    @property
    def _probe_at(self) -> float:
        smoothed = self._rtt.smoothed
        if self._base == self._sent or self._probed >= 0 or self._backoff or smoothed is None:
            return inf
        return self._timer_began + 2 * smoothed + self._recovery.granularity

    def deadline(self) -> float:
        """See Sender."""
        return min(super().deadline(), self._probe_at)

    def datagrams(self, now: float, most: int | None = None) -> list[Rows]:
        """See Sender."""
        if self._probe_at <= now < self._timeout():
            self._probed = self._sent - 1
            self._timer_began = now
            self._counts.retransmissions += 1
            self._measured_from = self._sent
            return [*self._packets(self._probed, self._sent), *super().datagrams(now, most)]
        return super().datagrams(now, most)

    def _in_flight(self) -> int:
        known = np.arange(self._base, min(max(self._missing_to, self._base), self._next))
        there = int(np.count_nonzero(self._there[known % self._most]))
        return self._next - self._base - there - len(self._lost)

    def _window_end(self) -> int:
        room = max(0, self._control.window - self._in_flight())
        return min(self._next + room, self._base + self._most)

    def _time_out(self) -> int:
        self._control.timed_out(self._next)
        self._probed = -1
        self._lost = self._missing(self._next).tolist()
        return len(self._lost)

    def _repeated(self) -> list[Rows]:
        there, most = self._there, self._most
        waiting = [number for number in self._lost if number >= self._base and not there[number % most]]
        self._lost = waiting
        room = max(0, self._control.window - self._in_flight())
        self._lost = waiting[:room]
        batches = super()._repeated()
        self._lost = waiting[room:]
        return batches

    def _find_lost(self, kind: int, number: int, bitmap: NDArray[np.uint8], now: float) -> bool:
        before, base = len(self._lost), self._base
        found = super()._find_lost(kind, number, bitmap, now)
        if self._probed >= 0 and self._highest >= self._probed:
            # What was sent at least two round trips before the probe and is still missing is lost.
            self._lost = sorted({*self._lost, *self._missing(self._highest).tolist()})
        if found or base > self._probed:
            self._probed = -1
        if len(self._lost) > before:
            self._control.lost(self._base, self._next)
        return found


class GoBackNSender(Sender):
    """A sender that retransmits everything from the first lost packet on."""

    _asked_for = -1  # the packet that the last NAK asked for

    def _time_out(self) -> int:
        self._go_back()
        return self.outstanding

    def _find_lost(self, kind: int, number: int, _bitmap: NDArray[np.uint8], now: float) -> bool:
        if kind == NAK and number == self._base < self._sent and number != self._asked_for:
            self._asked_for = number
            self._timer_began = now
            self._go_back()
        return False

    def _go_back(self) -> None:
        self._next = self._base
        self._measured_from = self._sent


class Receiver:
    """The other end of a stream: it takes packets, returns their payloads once and in order, and acknowledges."""

    def __init__(self, ends: Ends, window: int, counts: StreamCounts) -> None:
        self._ends = ends
        self._window = window
        self._counts = counts
        self._expected = 0
        self._marked = 0
        self._answer: int | None = None  # the kind of answer that is due

    def accept(self, numbers: NDArray[np.int64], payloads: Rows, marked: int) -> list[Rows]:
        """Accept packets that have arrived, and return the payloads [m, bytes] that are now in order.

        The returned arrays may be `payloads` itself, or parts of it.

        Args:
            numbers: The packets' numbers [m].
            payloads: Their payloads [m, bytes].
            marked: How many of them arrived with a congestion mark.
        """
        self._marked += marked
        if self._answer is None:
            self._answer = ACK
        count, first = len(numbers), int(numbers[0])
        in_order = first == self._expected and (count == 1 or bool((numbers[1:] - numbers[:-1] == 1).all()))
        if in_order and not self._kept():
            self._expected += count
            return [payloads]
        return self._sort(numbers, payloads)

    def answer(self) -> NDArray[np.uint8] | None:
        """Return the acknowledgement that is due, a datagram [1, bytes]; None if none is due."""
        kind, self._answer = self._answer, None
        if kind is None:
            return None
        header = self._ends.header(kind, self._expected, self._marked)
        bitmap = self._bitmap()
        return (np.concatenate([header, bitmap]) if len(bitmap) else header).reshape(1, -1)

    # -- different in the two subclasses

    def _kept(self) -> bool:
        """Return whether early packets are kept."""
        return False

    def _sort(self, numbers: NDArray[np.int64], payloads: Rows) -> list[Rows]:
        """Accept packets that are not just the next ones."""
        raise NotImplementedError

    def _bitmap(self) -> NDArray[np.uint8]:
        """Return a bitmap of the packets kept: bit i stands for the packet i + 1 after the awaited one."""
        return np.zeros(0, np.uint8)


class SelectiveRepeatReceiver(Receiver):
    """A receiver that keeps early packets."""

    def __init__(self, ends: Ends, window: int, counts: StreamCounts) -> None:
        super().__init__(ends, window, counts)
        self._runs: dict[int, Rows] = {}  # payloads of consecutive packets, by the first's number
        self._there = np.zeros(window, np.bool_)  # by number modulo the window

    def _kept(self) -> bool:
        return bool(self._runs)

    def _sort(self, numbers: NDArray[np.int64], payloads: Rows) -> list[Rows]:
        numbers, indices = np.unique(numbers, return_index=True)
        ahead = numbers - self._expected
        fresh = (ahead >= 0) & (ahead < self._window)
        fresh[fresh] = ~self._there[numbers[fresh] % self._window]
        self._counts.ignored["duplicate"] += len(payloads) - int(np.count_nonzero(fresh))
        if not fresh.any():
            return []
        numbers, payloads = numbers[fresh], payloads[indices[fresh]]
        self._there[numbers % self._window] = True
        starts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1).tolist()
        for start, stop in zip(starts, [*starts[1:], len(numbers)], strict=True):
            self._runs[int(numbers[start])] = payloads[start:stop]
        in_order = []
        while (run := self._runs.pop(self._expected, None)) is not None:
            in_order.append(run)
            self._there[np.arange(self._expected, self._expected + len(run)) % self._window] = False
            self._expected += len(run)
        return in_order

    def _bitmap(self) -> NDArray[np.uint8]:
        if not self._runs:
            return super()._bitmap()
        after = np.arange(self._expected + 1, self._expected + self._window)
        there = self._there[after % self._window]
        return np.packbits(there[: int(np.flatnonzero(there)[-1]) + 1])


class GoBackNReceiver(Receiver):
    """A receiver that drops early packets."""

    _asked_for = -1  # the packet that the last NAK asked for

    def _sort(self, numbers: NDArray[np.int64], payloads: Rows) -> list[Rows]:
        in_order = []
        while len(numbers):
            known = numbers < self._expected
            behind = len(numbers) if known.all() else int(np.argmin(known))
            self._counts.ignored["duplicate"] += behind
            numbers, payloads = numbers[behind:], payloads[behind:]
            follows = numbers == self._expected + np.arange(len(numbers))
            count = len(numbers) if follows.all() else int(np.argmin(follows))
            if not count and len(numbers):
                if self._asked_for != self._expected:
                    self._asked_for = self._expected
                    self._answer = NAK
                early = numbers > self._expected
                count = len(numbers) if early.all() else int(np.argmin(early))
                self._counts.ignored["early"] += count
            elif count:
                in_order.append(payloads[:count])
                self._expected += count
                self._answer = ACK
            numbers, payloads = numbers[count:], payloads[count:]
        return in_order


def open_stream(
    transport: Transport,
    ends: Ends,
    window: int,
    recovery: Recovery,
    counts: StreamCounts,
    make_control: MakeControl = Dctcp,
) -> tuple[Sender, Receiver]:
    """Return the sender of the stream at `ends`, and the receiver of the stream in the other direction."""
    if transport == "go-back-n":
        return GoBackNSender(ends, window, recovery, counts, make_control), GoBackNReceiver(
            ends, window, counts
        )
    receiver = SelectiveRepeatReceiver(ends, window, counts)
    if transport == "tcp":
        return TcpSender(ends, window, recovery, counts), receiver
    return SelectiveRepeatSender(ends, window, recovery, counts, make_control), receiver
