"""A worker's window and timers in virtual time: what its scenario says, or what suits the paths of its packets."""

from __future__ import annotations

from fanin.controller.tree import SLOTS
from fanin.experiments.models.packets import full_frame, full_payload
from fanin.experiments.models.paths import Paths
from fanin.experiments.scenario.settings import VIRTUAL_WINDOW, Settings
from fanin.workers.recovery import Recovery

_FAR_ABOVE = 20  # round trips
_WINDOWS = 3  # that are open at once: to the next stage, to the one before, and of a group that adds up;
_OVERLAP = 1  # and of another one, where gradients do not wait for the end of the backward pass


def virtual_window(settings: Settings) -> int:
    """Packets in flight of a worker; of several sums in the network, each has its part of the slots."""
    if settings.window is None and settings.algorithm == "in-network":
        return min(VIRTUAL_WINDOW, SLOTS // settings.sums)
    return settings.window or VIRTUAL_WINDOW


def recovery(settings: Settings) -> Recovery:
    """The timers of a virtual point.

    A scenario that sets one of them has the others as workers/recovery.py has them, which suit a live worker. Left out,
    a silence of twice the longest round trip means that something is lost. The first timeout is what RFC 6298 (2.2)
    makes of a first measurement as long, R + 4 R/2. The clock is as exact as a host is quick to notice.
    """
    given = settings.recovery.model_dump(exclude_none=True)
    if settings.recovery.timers:
        return Recovery(**given)
    longest = longest_round_trip(settings)
    first = 3 * longest
    return Recovery(
        initial_rto=first,
        min_rto=2 * longest,
        max_rto=max(first, Recovery().max_rto),
        granularity=settings.coalescing,
        **given,
    )


def ring_recovery(settings: Settings) -> Recovery | None:
    """Those of a job that may have to go on by ring; None: nothing fails."""
    return recovery(settings.model_copy(update={"algorithm": "ring"})) if settings.faults else None


def longest_round_trip(settings: Settings) -> float:
    """Seconds of a packet that finds the windows of all hosts that share a link before it, in that link's queue.

    A window is never fuller than with what is sent of one vector. A worker of a model that is cut has several.
    """
    paths = Paths(settings, full_frame(settings), patient=True)
    assert settings.size is not None
    largest, windows = -(-settings.size // settings.trees), 1
    if settings.parallelism is not None:
        cut = settings.parallelism
        largest = max(largest // cut.model, cut.activations or 0)
        windows = _WINDOWS + (_OVERLAP if cut.bucket else 0)
    packets = -(-largest // full_payload(settings))
    return paths.round_trip + windows * paths.shared(virtual_window(settings), packets)


def mistimed(settings: Settings) -> str | None:
    """What to say of a virtual point that loses packets and whose shortest timeout is far above the round trip."""
    if settings.world == "live" or not settings.recovery.timers:
        return None
    if not any(link.properties.mean_loss for link in settings.network.links):
        return None
    shortest, longest = recovery(settings).min_rto, longest_round_trip(settings)
    if shortest < _FAR_ABOVE * longest:
        return None
    return (
        f"recovery.min_rto: is {1e6 * shortest:,.0f} us where the longest round trip takes {1e6 * longest:,.0f} us: "
        f"workers wait long for what is lost; leave out [recovery], or set min_rto to about {2e6 * longest:.0f} us"
    )
