"""A2TP (Li et al., 2023): ATP with a window for slots next to that for links. README.md specifies it."""

from __future__ import annotations

from math import inf
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fanin.protocols.atp import protocol as atp
from fanin.workers import wire
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from fanin.workers.slotted import Chunks, Datagrams

GAIN = 1 / 8  # weight of a round in the shares of marks and of collisions
STRAGGLING_GAIN = 1 / 64  # weight of a round in the degree of straggling
TOLERATED = 0.1  # share of collisions that does not shrink the window for slots

packet, server, shares_slots, vector, error_bound, survives, invariants, plan_aggregation = (
    atp.packet,
    atp.server,
    atp.shares_slots,
    atp.vector,
    atp.error_bound,
    atp.survives,
    atp.invariants,
    atp.plan_aggregation,
)


class A2tpWorker(atp.AtpWorker):
    """A worker of ATP that uses slots for as many packets of a round as they have room for, and the server for others.

    Attributes:
        slots_allowed: The window for slots, in packets.
    """

    def __init__(self, lease: Lease, recovery: Recovery) -> None:
        super().__init__(lease, recovery)
        self.slots_allowed = self._allowed
        self._marks = self._collisions = 0.0  # smoothed shares
        self._straggling = 1.0  # smoothed; 1: no worker is late
        self._shortest = inf  # seconds from a packet to its result
        self._begin_round(0.0)

    def _begin_round(self, now: float) -> None:
        self._round, self._began = int(self._allowed), now
        self._answered_in_round = self._marked_in_round = self._collided_in_round = 0
        self._in_time: float | None = None  # share of the round's results that came within a round trip
        self._room = int(self.slots_allowed)

    def updates(self, chunks: Chunks, rows: Chunks) -> Datagrams:
        """Return the packets of chunks [m]; those for which the slots have no room are sent as if they were resent."""
        fresh = self._latest_sent[chunks % self.lease.window] != chunks
        beyond = fresh & (np.cumsum(fresh) > self._room)
        self._room -= int(np.count_nonzero(fresh & ~beyond))
        datagrams = super().updates(chunks, rows)
        wire.as_packets(datagrams)["e1"][beyond] |= atp.RESENT
        return datagrams

    def receive(self, datagrams: Datagrams, now: float) -> None:
        """Process datagrams that have arrived; see Participant."""
        chunks, _ = self.results(datagrams)
        places = chunks % self.lease.window
        once = (chunks >= 0) & (self._awaited[places] == chunks) & (self._times_sent[places] == 1)
        if once.any():
            self._shortest = min(self._shortest, now - float(self._first_sent[places[once]].max()))
        super().receive(datagrams, now)

    def _adapt(self, flags: NDArray[np.uint8], now: float) -> None:
        """Count results, and adapt both windows at the end of a round; see AtpWorker."""
        if self._in_time is None and now >= self._began + self._shortest:
            self._in_time = min(1.0, (self._answered_in_round + len(flags)) / self._round)
        self._answered_in_round += len(flags)
        self._marked_in_round += int(np.count_nonzero(flags & atp.CONGESTED))
        self._collided_in_round += int(np.count_nonzero(flags & atp.COLLIDED))
        if self._answered_in_round < self._round:
            return
        in_time = 1.0 if self._in_time is None else self._in_time
        self._straggling += STRAGGLING_GAIN * (in_time - self._straggling)
        self._marks += GAIN * (min(1.0, self._marked_in_round / self._round) - self._marks)
        collided = min(1.0, self._collided_in_round / self.slots_allowed)
        self._collisions += GAIN * (collided - self._collisions)
        excess = self._collisions - TOLERATED
        if self._collided_in_round and excess > 0:
            self.slots_allowed *= 1 - excess**self._straggling / (2 - TOLERATED)
        else:
            self.slots_allowed += 1
        if self._marked_in_round:
            self._allowed *= 1 - self._marks / 2
        else:
            self._allowed += 1
        self._allowed = min(max(self._allowed, 1.0), float(self.lease.window))
        self.slots_allowed = min(max(self.slots_allowed, 1.0), self._allowed)
        self.statistics.congestion_window = self._allowed
        self._begin_round(now)


participant = A2tpWorker


def program() -> Path:
    """Return the P4 program: that of ATP."""
    return Path(atp.__file__).parent / "program.p4"
