"""What set the time of live all-reduces: the links, the processors of this machine, or neither."""

from __future__ import annotations

from typing import Literal

Limit = Literal["links", "processors", "neither"]

# A link that carries nothing but an all-reduce of many packets is used for 83 % (a training of the demo, whose vectors
# are a few packets) to 99 % of the time. Of one that is used for less, something else has kept packets away.
_FULL_LINK = 0.8
# Workers and switches wait for one another's packets now and then, however many are on their way, and leave cores idle
# for that long.
_FULL_PROCESSORS = 0.8


def limited_by(link: float | None, processors: float | None) -> Limit | None:
    """From shares of the time of the all-reduces: what the busiest link was used, and what processors were.

    A full link sets the time, however busy processors are. neither: packets waited for something else, as timers
    after a loss, a window that is smaller than what fits on the way, or delays. link: None, where links have no rate;
    processors: None, not known. None: it cannot be said.
    """
    if link is not None and link >= _FULL_LINK:
        return "links"
    if processors is None:
        return None
    return "processors" if processors >= _FULL_PROCESSORS else "neither"
