"""Deadlocks of priority flow control: links that wait for one another in a circle, and so never send again.

A paused link is released when at most xon_bytes of what it delivered still wait at its far end. So a link stays paused
if more than that waits in front of links that are themselves stuck. To find a deadlock, all links that could send if
everything else moved are removed, repeatedly. Links that remain will never send again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SHOWN = 8


class DeadlockError(RuntimeError):
    """Links of a virtual network wait for one another indefinitely. The message lists them."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The lanes that are paused, and the bytes that wait between them.

    Attributes:
        stopped: Lanes that have been paused and that nothing but the far end can release, [lanes].
        xon: Threshold of each lane for releasing it, in bytes, [lanes].
        bytes: Bytes that arrived on one lane and wait for another, by both lanes.
    """

    stopped: NDArray[np.bool_]
    xon: NDArray[np.int64]
    bytes: Mapping[tuple[int, int], int]

    @classmethod
    def of(cls, stopped: NDArray[np.bool_], xon: NDArray[np.int64], queued: NDArray[np.int64]) -> Waiting:
        """Sum up the packets in the queues.

        Args:
            stopped: See Waiting.
            xon: See Waiting.
            queued: For each packet the lane that it arrived on, the lane that it waits for, and its bytes, [packets,
                3].
        """
        sums: Counter[tuple[int, int]] = Counter()
        for came, lane, size in queued.tolist():
            sums[came, lane] += size
        return cls(stopped, xon, sums)

    def circle(self) -> list[int]:
        """Return lanes each of which waits for the next, and the last for the first. Empty if there is no deadlock."""
        left = set(np.flatnonzero(self.stopped).tolist())
        while True:
            stuck = dict.fromkeys(left, 0)
            for (came, lane), size in self.bytes.items():
                if came in left and lane in left:
                    stuck[came] += size
            going = {lane for lane, size in stuck.items() if size <= self.xon[lane]}
            if not going:
                break
            left -= going
        if not left:
            return []
        # Each waits for some of the others, so following them from one to the next leads back to an earlier one.
        ahead = {came: lane for (came, lane) in sorted(self.bytes) if came in left and lane in left}
        way = [min(left)]
        while ahead[way[-1]] not in way:
            way.append(ahead[way[-1]])
        return way[way.index(ahead[way[-1]]) :]


def describe(circle: Sequence[int], link_ends: Sequence[tuple[str, str]], priorities: int) -> str:
    """Describe the circle of lanes in words."""
    links = [" → ".join(link_ends[lane // priorities]) for lane in circle]
    more = f" and {len(links) - _SHOWN} more" if len(links) > _SHOWN else ""
    of = f" of priority {circle[0] % priorities}" if priorities > 1 else ""
    return (
        f"deadlock of priority flow control{of}: each of these links waits for the next and the last for the first, "
        f"so none will ever send again: {', '.join(links[:_SHOWN])}{more}"
    )
