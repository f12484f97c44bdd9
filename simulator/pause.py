"""Priority flow control (IEEE 802.1Qbb): when the switch at a link's far end pauses a priority.

A switch counts, by link and priority, the bytes that arrived there and wait in its queues, each copy of a packet
separately. When they exceed the link's threshold, it sends a pause frame back. The frame takes the link's delay,
overtakes waiting packets and is lost only with the link. When a link goes down, its pauses end (in 802.1Qbb they
expire); when it is up again, the switch repeats which priorities must wait. queues.py has the reaction of the near end.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fanin.simulator.segments import segment_starts
from fanin.simulator.units import NEVER
from fanin.topologies.link import LinkModel


def headroom_bytes(rate: int, model: LinkModel, longest_frame: int) -> int:
    """Return the bytes that may still arrive after the far end of a link has exceeded its pause threshold.

    If each queue of a switch has room for the sum of this and xoff_bytes over the links to the switch, none overflows.

    Args:
        rate: Rate of the link in bits/s.
        model: Its link model.
        longest_frame: Bytes of the longest frame.
    """
    on_its_way = (2 * model.virtual_delay + model.jitter) * rate / 8
    return math.ceil(on_its_way) + 2 * (longest_frame + model.virtual_overhead)


class Held:
    """Bytes that arrived on each lane (a priority of a link) and wait in the switch at its far end.

    Attributes:
        bytes: Bytes that wait, [lanes].
        told: Whether the last pause frame told the lane to wait, [lanes].
    """

    def __init__(self, models: Sequence[LinkModel], priorities: int) -> None:
        pauses = [model.pause for model in models for _ in range(priorities)]
        self.xoff = np.array([pause.xoff_bytes if pause else NEVER for pause in pauses])
        self.xon = np.array([pause.xon_bytes if pause else NEVER for pause in pauses])
        self.bytes = np.zeros(len(pauses), np.int64)
        self.told = np.zeros(len(pauses), np.bool_)

    def count(
        self, lanes: NDArray[np.int64], times: NDArray[np.int64], change: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        """Count bytes that join queues, or leave them (negative), and find the pause frames that result.

        A change of 0 bytes repeats the last pause frame if it told the lane to wait.

        Args:
            lanes: Lane of each change, [changes].
            times: Time of each change, [changes].
            change: Bytes of each change, [changes].

        Returns:
            For each pause frame its lane, its time, and whether the lane must wait.
        """
        order = np.lexsort((times, lanes))
        lanes, times, change = lanes[order], times[order], change[order]
        if not len(lanes):
            return lanes, times, np.zeros(0, np.bool_)
        # All changes at one instant count as one.
        differs = np.ones(len(lanes), np.bool_)
        differs[1:] = (lanes[1:] != lanes[:-1]) | (times[1:] != times[:-1])
        starts = differs.nonzero()[0]
        again = np.logical_or.reduceat(change == 0, starts)
        lanes, times, change = lanes[starts], times[starts], np.add.reduceat(change, starts)
        first = segment_starts(lanes)
        change[first] += self.bytes[lanes[first]]
        held = np.cumsum(change)
        lengths = np.diff(first, append=len(lanes))
        held -= np.repeat(held[first] - change[first], lengths)

        # Between the thresholds the state does not change.
        told = np.where(held > self.xoff[lanes], 1, np.where(held <= self.xon[lanes], 0, -1))
        decided = np.maximum.accumulate(np.where(told >= 0, np.arange(len(told)), -1))
        told = np.where(decided >= np.repeat(first, lengths), told[decided], self.told[lanes])
        was = np.empty_like(told)
        was[1:] = told[:-1]
        was[first] = self.told[lanes[first]]
        # Assigned in order, so that a lane's last value stays.
        self.bytes[lanes], self.told[lanes] = held, told == 1
        said = np.flatnonzero((told != was) | (again & (told == 1)))
        return lanes[said], times[said], told[said] == 1
