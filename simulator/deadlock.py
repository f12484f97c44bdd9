"""Deadlocks of priority flow control: links that wait for one another in a circle, and so for ever.

A link is let go once no more than xon_bytes of what came by it wait at its far end. So one of which more than that
waits before links that stand still themselves, stands still, too. What is left when all links are struck out that
might go on, if everything else moved, will never move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_SHOWN = 8


class DeadlockError(RuntimeError):
    """Links of a network in virtual time wait for one another for ever; says which."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """stopped: lanes that have been told to wait, and are by nobody else let go, [lanes]. xon: of each, in bytes.

    bytes: what came by one lane and waits for another, by both.
    """

    stopped: NDArray[np.bool_]
    xon: NDArray[np.int64]
    bytes: Mapping[tuple[int, int], int]

    @classmethod
    def of(cls, stopped: NDArray[np.bool_], xon: NDArray[np.int64], queued: NDArray[np.int64]) -> Waiting:
        """queued: of each packet by which lane it came, for which it waits, and its bytes, [packets, 3]."""
        sums: Counter[tuple[int, int]] = Counter()
        for came, lane, size in queued.tolist():
            sums[came, lane] += size
        return cls(stopped, xon, sums)

    def circle(self) -> list[int]:
        """Lanes of which each waits for the next, and the last for the first; none: all may go on."""
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
        # Each waits for some of the others, so whoever goes on from one to the next comes back to one.
        ahead = {came: lane for (came, lane) in sorted(self.bytes) if came in left and lane in left}
        way = [min(left)]
        while ahead[way[-1]] not in way:
            way.append(ahead[way[-1]])
        return way[way.index(ahead[way[-1]]) :]


def describe(circle: Sequence[int], link_ends: Sequence[tuple[str, str]], priorities: int) -> str:
    """The circle in words."""
    links = [" → ".join(link_ends[lane // priorities]) for lane in circle]
    more = f" and {len(links) - _SHOWN} more" if len(links) > _SHOWN else ""
    of = f" of priority {circle[0] % priorities}" if priorities > 1 else ""
    return (
        f"deadlock of priority flow control{of}: each of these links waits for the next, the last for the first, and "
        f"all for ever: {', '.join(links[:_SHOWN])}{more}"
    )
