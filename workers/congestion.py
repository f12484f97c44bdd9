"""Congestion control where links mark congestion: DCTCP's window (RFC 8257), and the chunks that it holds back."""

import ctypes

import numpy as np
from numpy.typing import NDArray

ECN_CAPABLE, ECN_CONGESTED = 2, 3  # RFC 3168: the lowest two bits of the second byte of IPv4's header

GAIN = 1 / 16  # RFC 8257: weight of the newest share of marked packets

_int64 = ctypes.c_int64


class CongestionWindow(ctypes.Structure):
    """The number of packets that may be in flight, from `least` to `most`.

    The structure is laid out for congestion.c.

    Attributes:
        size: The window in packets.
        share: Smoothed share of packets with a mark; RFC 8257's alpha.
        least: Lower limit of `size`.
        most: Upper limit of `size`.
    """

    _fields_ = tuple((name, ctypes.c_double) for name in ("size", "share", "least", "most"))
    size: float
    share: float
    least: float
    most: float

    def __init__(self, least: int, most: int) -> None:
        super().__init__(size=most, share=1.0, least=least, most=most)  # share: RFC 8257, section 4.2

    def estimate(self, answered: int, marked: int, gain: float) -> None:
        """Update `share` with one round's share of marked packets, which weighs `gain`."""
        share = min(marked / max(answered, 1), 1.0)
        self.share += gain * (share - self.share)

    def decrease(self) -> None:
        """Shrink the window by half of `share`."""
        self.size = max(self.size * (1 - self.share / 2), self.least)

    def increase(self, packets: float) -> None:
        """Grow the window by this many packets."""
        self.size = min(self.size + packets, self.most)


class Gate(ctypes.Structure):
    """The chunks of an all-reduce that may be sent now: as many in flight as the congestion window allows.

    The structure is laid out for congestion.c, which works on the same memory.

    Attributes:
        in_flight: Chunks let through whose results have not arrived.
        sent_before: How many of them were sent before the window last shrank.
        round: Number of results after which the share of marks is updated, about those of a round trip.
        answered: Results since then.
        marked_in_round: Congestion marks since then, up to the latest result.
        marked: Congestion marks since the latest result.
        lowest: All chunks below this one have their results.
        held_count: Number of chunks held back.
        held: The chunks held back, ascending; the first `held_count` elements.
    """

    _fields_ = tuple(
        (name, _int64)
        for name in (
            "in_flight",
            "sent_before",
            "round",
            "answered",
            "marked_in_round",
            "marked",
            "lowest",
            "held_count",
        )
    )
    in_flight: int
    sent_before: int
    round: int
    answered: int
    marked_in_round: int
    marked: int
    lowest: int
    held_count: int

    def __init__(self, places: int) -> None:
        super().__init__(round=places)
        self.window = CongestionWindow(1, places)
        self.held = np.zeros(places, np.int64)
        self._first = np.zeros(0, np.int64)  # first chunks of the previous all-reduce

    def begin(self, lead: int) -> NDArray[np.int64]:
        """Return the chunks to send first in an all-reduce, of the first `lead` chunks."""
        self.in_flight = self.lowest = self.held_count = 0
        if len(self._first) != lead:
            self._first = np.arange(lead)
        if lead > self.window.size:
            return self._let_through(self._first, int(self.window.size))
        self.in_flight = lead
        return self._first

    def answer(self, count: int) -> None:
        """Record that `count` more results have arrived, and adapt the window.

        Results of chunks that were sent before the window last shrank neither shrink it again nor let it grow: they
        tell of the same congestion (RFC 8257, section 3.3). Results are taken to arrive in the order of the chunks.
        """
        window, marked = self.window, self.marked
        later = max(count - self.sent_before, 0)
        self.in_flight -= count
        self.sent_before -= count - later
        self.answered += count
        self.marked_in_round += marked
        self.marked = 0
        if self.answered >= self.round:
            window.estimate(self.answered, self.marked_in_round, GAIN)
            self.answered = self.marked_in_round = 0
            self.round = max(self.in_flight, int(window.size))
        if not marked:
            window.increase(later / window.size)
        elif later:
            window.decrease()
            self.sent_before = self.in_flight

    def admit(
        self, ready: NDArray[np.int64] | None, accepted: NDArray[np.bool_], lead: int
    ) -> NDArray[np.int64] | None:
        """Return the chunks that may be sent after the chunks `ready` have become sendable; None if there are none.

        All returned chunks are among the first `lead` chunks, or none is.

        Args:
            ready: Chunks that have become sendable. None means none.
            accepted: Whether each chunk's result has arrived, by chunk.
            lead: Number of chunks that belong to the first window.
        """
        room = int(self.window.size) - self.in_flight
        if not self.held_count and (ready is None or len(ready) <= room):
            self.in_flight += 0 if ready is None else len(ready)
            return ready
        waiting = self.held[: self.held_count]
        if ready is not None:
            waiting = np.sort(np.append(waiting, ready))
        while accepted[self.lowest]:
            self.lowest += 1
        # The lowest missing chunk is never held back: workers whose windows differ would wait for each other.
        room = min(max(room, int(waiting[0] == self.lowest)), len(waiting))
        if waiting[0] < lead:
            room = min(room, int(np.searchsorted(waiting, lead)))
        through = self._let_through(waiting, room)
        return through if len(through) else None

    def _let_through(self, waiting: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """Let the first `count` chunks of `waiting` through and hold back the others."""
        through, rest = waiting[:count].copy(), waiting[count:].copy()
        self.held_count = len(rest)
        self.held[: len(rest)] = rest
        self.in_flight += count
        return through
