"""The limit of live all-reduces: the links, the processors of this machine, or neither."""

from __future__ import annotations

from typing import Literal

Limit = Literal["links", "processors", "neither"]

# A link that carries nothing but an all-reduce is used for 83 % (the demo's training, whose vectors are a few packets)
# to 99 % of the time. If it is used for less, something else limits the packets.
_FULL_LINK = 0.8
# Workers and switches sometimes wait for each other's packets, however many are in flight, and leave cores idle.
_FULL_PROCESSORS = 0.8


def limited_by(link: float | None, processors: float | None) -> Limit | None:
    """Return what limited all-reduces, from shares of their time.

    A full link is the limit, however busy processors are. "neither" means that packets waited for something else, such
    as timers after a loss, a window that is too small for the path, or delays.

    Args:
        link: Utilization of the busiest link; None if links have no rate.
        processors: Utilization of the processors; None if unknown.

    Returns:
        The limit; None if it cannot be determined.
    """
    if link is not None and link >= _FULL_LINK:
        return "links"
    if processors is None:
        return None
    return "processors" if processors >= _FULL_PROCESSORS else "neither"
