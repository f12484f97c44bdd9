"""Priority flow control (IEEE 802.1Qbb): how much room a queue needs so that nothing is lost.

After the threshold is exceeded, packets arrive for a round trip of the link, and at each end a packet that has begun
must be finished: 2 * delay * rate + 2 packets for each incoming link. Meanwhile the queue's own link sends for a round
trip.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fanin.assurance.validation.theory.bottleneck import PACKET_BYTES, incast
from fanin.assurance.validation.theory.derived import Derived
from fanin.p4switch.engine.engine import Engine
from fanin.topologies.link import Pause
from fanin.topologies.shapes import leaf_spine

RATE = 10 * 10**9  # bits/s, of every link
XOFF, XON = 20_000, 10_000  # bytes
CASES = ((2, 1e-6), (2, 5e-6), (8, 5e-6))  # senders, and the delay of each link in seconds
SIZE = 500_000  # bytes from each sender


def pauses(switch: Engine) -> Iterator[Derived]:
    """Compare the smallest queue that loses nothing, and the longest queue, of an incast below one switch."""
    for senders, delay in CASES:
        headroom = 2 * delay * RATE / 8 + 2 * PACKET_BYTES
        room = round(senders * (XOFF + headroom))
        theory = room - 2 * delay * RATE / 8
        lossless = partial(_drops, senders, delay, switch)
        name = f"PFC, {senders} senders, links of {delay * 1e6:g} us"
        least, most = 0, room  # too small, and large enough
        assert not lossless(most)[0], "packets are lost with the room that 802.1Qbb needs"
        longest = lossless(most)[1]
        while most - least > PACKET_BYTES // 2:
            middle = (least + most) // 2
            least, most = (middle, most) if lossless(middle)[0] else (least, middle)
        yield Derived(
            what=f"{name}: longest queue, kB",
            theory=theory / 1e3,
            virtual=longest / 1e3,
            form=".1f",
            lowest=-0.1,
            highest=0.0,
        )
        yield Derived(
            what=f"{name}: least queue without loss, kB",
            theory=theory / 1e3,
            virtual=most / 1e3,
            form=".1f",
            lowest=-0.1,
            highest=0.0,
        )


def _drops(senders: int, delay: float, switch: Engine, room: int) -> tuple[int, int]:
    """Return how many packets a queue of `room` bytes drops, and its largest length in bytes."""
    pause = Pause(xoff_bytes=XOFF, xon_bytes=XON)
    properties = {"delay": delay, "pause": pause, "queue_bytes": room}
    fabric = incast(leaf_spine(0, 1, 1 + senders, rate=RATE, properties=properties), SIZE, switch)
    counts = fabric.network.links.counts
    return int(counts.queue_drops.sum()), int(
        counts.longest_queue[fabric.network.link_ends.index(("leaf1", "h1"))]
    )
