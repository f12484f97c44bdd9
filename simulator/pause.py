"""Priority flow control (IEEE 802.1Qbb): when the switch at a link's far end says that a priority must wait.

A switch counts, by link and priority, what came by it and waits in its queues, each copy of a packet by itself. When
that passes the link's threshold, a pause frame goes back: it takes the link's delay, overtakes what waits there and is
lost only with the link. A link that goes down takes its pauses with it (802.1Qbb has them end by themselves); when it
is up again the switch says once more which priorities must wait. What the near end then does: queues.py.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fanin.simulator.segments import segment_starts
from fanin.simulator.units import NEVER
from fanin.topologies.link import LinkModel


def headroom_bytes(rate: int, model: LinkModel, longest_frame: int) -> int:
    """What may still come by a link of `rate` (bits/s) after its far end has passed the threshold for stopping it.

    If each queue of a switch has room for the sum of this and xoff_bytes over the links to it, none overflows.
    """
    on_its_way = (2 * model.virtual_delay + model.jitter) * rate / 8
    return math.ceil(on_its_way) + 2 * (longest_frame + model.virtual_overhead)


class Held:
    """What came by each lane, which is a link's priority, and waits in the switch at its far end.

    bytes: [lanes]. told: what the far end said last, whether to wait, [lanes].
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
        """Bytes that join queues, or leave them (negative): which lanes are told something, when, and if it is to wait.

        A change of no bytes: to wait is said once more, if that was said last.
        """
        order = np.lexsort((times, lanes))
        lanes, times, change = lanes[order], times[order], change[order]
        if not len(lanes):
            return lanes, times, np.zeros(0, np.bool_)
        # What happens at one instant counts as one change.
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

        # Between the thresholds it stays as it was.
        told = np.where(held > self.xoff[lanes], 1, np.where(held <= self.xon[lanes], 0, -1))
        decided = np.maximum.accumulate(np.where(told >= 0, np.arange(len(told)), -1))
        told = np.where(decided >= np.repeat(first, lengths), told[decided], self.told[lanes])
        was = np.empty_like(told)
        was[1:] = told[:-1]
        was[first] = self.told[lanes[first]]
        self.bytes[lanes], self.told[lanes] = held, told == 1  # in their order, so that the last stays
        said = np.flatnonzero((told != was) | (again & (told == 1)))
        return lanes[said], times[said], told[said] == 1
