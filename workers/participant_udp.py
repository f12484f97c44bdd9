"""Any participant or server on a UDP socket to the switch: a simpler and slower udp.py."""

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fanin.workers.collective import Closing, Participant, Server, Statistics, marked
from fanin.workers.udp import UdpSocket

_LONGEST_WAIT = 1.0  # seconds, if the participant has no deadline


class ParticipantAllReduce(Closing):
    """A Collective that runs a participant whose batches [m, size] go to the switch. It closes the socket."""

    def __init__(self, participant: Participant[NDArray[np.uint8]], socket: UdpSocket) -> None:
        self.participant = participant
        self.socket = socket

    @property
    def statistics(self) -> Statistics:
        """Return the totals so far."""
        return self.participant.statistics

    def all_reduce(
        self, x: NDArray[np.float32], out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Return the sum of `x` over all workers; see Collective.

        Raises:
            CollectiveError: If the participant raises it.
        """
        participant = self.participant
        participant.start(x, time.monotonic(), out)
        while not participant.finished:
            for batch in participant.datagrams_to_send(time.monotonic()):
                self.socket.send(batch)
            deadline, now = participant.deadline(), time.monotonic()
            receive(participant, self.socket, _LONGEST_WAIT if deadline is None else max(0.0, deadline - now))
        return participant.finish()

    def close(self) -> None:
        """Release the port."""
        self.socket.close()


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
