"""The analytical model of a long flow between two hosts on links that lose packets at random, by its transport.

The acknowledgements are taken to arrive. The window is at least as many packets as are sent in a round trip.
"""

from __future__ import annotations

from math import inf, sqrt

from fanin.workers.collective import Transport


def packets_per_second(
    transport: Transport, packet: float, trip: float, window: int, loss: float, packet_time: float = 0.0
) -> float:
    """Return how many packets of a flow arrive in a second, each counted once.

    - Go-back-N wastes what is in flight whenever a packet is lost: a window.
    - Selective repeat waits for a round trip at the end of each window in which a packet was lost.
    - TCP follows the square-root law of Mathis et al., "The macroscopic behavior of the TCP congestion avoidance
      algorithm", ACM SIGCOMM Computer Communication Review 27, 1997, until links or processors limit it.

    Args:
        transport: The transport.
        packet: Seconds of a packet on the slowest link.
        trip: Seconds from sending a packet until its acknowledgement is there, if nothing waits in a queue.
        window: Most packets in flight.
        loss: Share of the packets that are lost on the whole path.
        packet_time: TCP: seconds of a processor for a packet or an acknowledgement.
    """
    full = min(1 / packet, window / trip)
    match transport:
        case "go-back-n":
            return full / (1 + loss * window)
        case "selective-repeat":
            stalled = 1 - (1 - loss) ** window
            return window / (window / full + stalled * trip)
        case "tcp":
            handled = 1 / (2 * packet_time) if packet_time else inf
            return min(full, handled, sqrt(1.5 / loss) / trip if loss else inf)
