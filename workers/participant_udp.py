"""Participants and servers of other protocols on a UDP socket, packet by packet in Python."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fanin.workers import collective
from fanin.workers.collective import Server, Statistics, marked
from fanin.workers.engines.buffers import Buffers
from fanin.workers.engines.engine import NOT_BEGUN
from fanin.workers.protocol import AnyWorker, InNetworkStatistics, Outstanding
from fanin.workers.tensor import Partition
from fanin.workers.udp import UdpSocket

_LONGEST_WAIT = 1.0  # seconds, if a server has no deadline


class PluggedWorker:
    """A participant of another protocol, with what InNetworkAllReduce needs of its worker (udp.SocketWorker)."""

    def __init__(self, participant: AnyWorker) -> None:
        self.participant = participant
        self.unsummed = np.zeros(0, np.int64)  # these protocols sum every element, or refuse the vector
        self.summed = np.zeros(0, np.bool_)

    @property
    def statistics(self) -> InNetworkStatistics:
        """Return the totals so far; of a participant that counts less, those that there are."""
        found: Statistics = self.participant.statistics
        if isinstance(found, InNetworkStatistics):
            return found
        return InNetworkStatistics(
            found.all_reduces, found.bytes_sent, found.bytes_received, found.retransmissions
        )

    @property
    def finished(self) -> bool:
        """Return whether the last all-reduce is done."""
        return self.participant.finished

    def checked(self, x: NDArray[np.float32], out: NDArray[np.float32] | None) -> Buffers:
        """Check the arrays of a call; see Worker."""
        return Buffers(*collective.flat(x, out))

    def repeat(self, socket: UdpSocket, buffers: Buffers, call: str) -> int:  # noqa: ARG002
        """Return that nothing has begun: there is no faster way for a vector like an earlier one."""
        return NOT_BEGUN

    def begin(
        self,
        buffers: Buffers,
        now: float,
        call: str,  # noqa: ARG002
        partition: Partition | None = None,  # noqa: ARG002
    ) -> None:
        """Begin an all-reduce; see Worker. These protocols know no partition."""
        self.participant.start(buffers.x, now, buffers.out)

    def datagrams_to_send(self, now: float) -> list[NDArray[np.uint8]]:
        """Return batches [m, size] of datagrams to send now; see Participant."""
        return list(self.participant.datagrams_to_send(now))

    def exchange(self, socket: UdpSocket, until: float) -> None:
        """Send and receive until all results are there, or `until`, or there is news; see Worker."""
        participant, now = self.participant, time.monotonic()
        while not participant.finished and now < until:
            for batch in participant.datagrams_to_send(now):
                socket.send(batch)
            deadline = participant.deadline()
            receive(
                participant, socket, max(0.0, (until if deadline is None else min(deadline, until)) - now)
            )
            now = time.monotonic()
            if socket.noticed:
                break
        socket.link.looked = now

    def finish(self, *, unsummed: Literal["NaN", "own"] = "NaN") -> NDArray[np.float32]:  # noqa: ARG002
        """Return the result; see Participant."""
        return self.participant.finish()

    def outstanding(self, now: float) -> Outstanding | None:
        """Return what the participant waits for, if it can tell."""
        found = getattr(self.participant, "outstanding", None)
        waits = found(now) if found else None
        return waits if isinstance(waits, Outstanding) else None


def serve(server: Server, socket: UdpSocket, ended: Callable[[], bool]) -> None:
    """Run a protocol's server on a socket until `ended` returns True, which is called at least each second."""
    while not ended():
        deadline, now = server.deadline(), time.monotonic()
        left = _LONGEST_WAIT if deadline is None else max(0.0, deadline - now)
        receive(server, socket, min(left, _LONGEST_WAIT))
        for batch in server.datagrams_to_send(time.monotonic()):
            socket.send(batch)


def receive(end: Server, socket: UdpSocket, timeout: float) -> None:
    """Give a participant or server the datagrams that arrive within `timeout` (seconds), and their congestion marks."""
    batches = socket.receive(timeout)
    if batches and socket.marks and (counting := marked(end)):
        counting.count_marks(socket.marks)
    for batch in batches:
        end.receive(batch, time.monotonic())
