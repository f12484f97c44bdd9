"""How much may be in flight where links mark congestion: DCTCP's window (RFC 8257), and chunks that it holds back."""

import ctypes

import numpy as np
from numpy.typing import NDArray

ECN_CAPABLE, ECN_CONGESTED = 2, 3  # RFC 3168: the lowest two bits of the second byte of IPv4's header

GAIN = 1 / 16  # RFC 8257: weight of a new share of marked packets

_int64 = ctypes.c_int64


class CongestionWindow(ctypes.Structure):
    """Packets that may be in flight, from `least` to `most`.

    share: of packets with a mark, smoothed; RFC 8257's alpha. Laid out for congestion.c.
    """

    _fields_ = tuple((name, ctypes.c_double) for name in ("size", "share", "least", "most"))
    size: float
    share: float
    least: float
    most: float

    def __init__(self, least: int, most: int) -> None:
        super().__init__(size=most, share=1.0, least=least, most=most)  # share: section 4.2

    def end_round(self, answered: int, marked: int) -> None:
        """A round-trip time is over, in which so many packets were answered, and so many of them had been marked."""
        self.estimate(answered, marked, GAIN)
        if marked:
            self.decrease()
        else:
            self.increase(1)

    def estimate(self, answered: int, marked: int, gain: float) -> None:
        """The share of a round weighs `gain`."""
        share = min(marked / max(answered, 1), 1.0)
        self.share += gain * (share - self.share)

    def decrease(self) -> None:
        """By half of the share."""
        self.size = max(self.size * (1 - self.share / 2), self.least)

    def increase(self, packets: float) -> None:
        """By so many."""
        self.size = min(self.size + packets, self.most)


class Gate(ctypes.Structure):
    """Which chunks of an all-reduce may be sent, of those that could be: as many in flight as the window allows.

    in_flight: chunks let through whose results are not there. round: results after which the window is set anew;
    answered, marked: results and congestion marks since it was. lowest: all chunks below have their results.
    held: chunks that wait [held_count], ascending. Laid out for congestion.c, which works on the same memory.
    """

    _fields_ = tuple(
        (name, _int64) for name in ("in_flight", "round", "answered", "marked", "lowest", "held_count")
    )
    in_flight: int
    round: int
    answered: int
    marked: int
    lowest: int
    held_count: int

    def __init__(self, places: int) -> None:
        super().__init__(round=places)
        self.window = CongestionWindow(1, places)
        self.held = np.zeros(places, np.int64)
        self._first = np.zeros(0, np.int64)  # chunks of the all-reduce before

    def begin(self, lead: int) -> NDArray[np.int64]:
        """The first chunks of an all-reduce, of which `lead` could be sent."""
        self.in_flight = self.lowest = self.held_count = 0
        if len(self._first) != lead:
            self._first = np.arange(lead)
        if lead > self.window.size:
            return self._let_through(self._first, int(self.window.size))
        self.in_flight = lead
        return self._first

    def answer(self, count: int) -> None:
        """So many results more are there."""
        self.in_flight -= count
        self.answered += count
        if self.answered >= self.round:
            self.window.end_round(self.answered, self.marked)
            self.answered = self.marked = 0
            self.round = max(self.in_flight, int(self.window.size))

    def admit(
        self, ready: NDArray[np.int64] | None, accepted: NDArray[np.bool_], lead: int
    ) -> NDArray[np.int64] | None:
        """What may be sent now that the chunks `ready` could be, too: all among the first `lead`, or none.

        accepted: by chunk, whose results are there.
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
        # The lowest chunk missing never waits: workers whose windows differ would wait for each other.
        room = min(max(room, int(waiting[0] == self.lowest)), len(waiting))
        if waiting[0] < lead:
            room = min(room, int(np.searchsorted(waiting, lead)))
        through = self._let_through(waiting, room)
        return through if len(through) else None

    def _let_through(self, waiting: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """The first of `waiting` go, the others are held."""
        through, rest = waiting[:count].copy(), waiting[count:].copy()
        self.held_count = len(rest)
        self.held[: len(rest)] = rest
        self.in_flight += count
        return through
