"""A worker's window and timers in virtual time: the scenario's values, or what suits the paths of its packets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import chain

from fanin.controller.tree import SLOTS
from fanin.experiments.models.alone import Alone
from fanin.experiments.models.packets import full_frame, full_payload, largest_frame
from fanin.experiments.models.paths import Paths
from fanin.experiments.scenario.settings import Settings
from fanin.workers.collective import Transport
from fanin.workers.recovery import Recovery

_FAR_ABOVE = 20  # round trips above which a timeout is too long
_WINDOWS = 3  # windows open at once: to the next stage, to the previous one, and in a tensor group
_OVERLAP = 1  # one more for gradients that do not wait for the end of the backward pass


def virtual_window(settings: Settings) -> int:
    """Return how many packets a worker may have in flight; several sums in the network share the slots."""
    if settings.window is None and settings.algorithm == "in-network":
        return min(settings.VIRTUAL_WINDOW, SLOTS // settings.sums)
    return settings.window or settings.VIRTUAL_WINDOW


_TCP_MAX_RTO = 120.0  # seconds, Linux's TCP_RTO_MAX


def recovery(settings: Settings, queued: float = 0.0, transport: Transport | None = None) -> Recovery:
    """Return the timers of a virtual point: the scenario's, and for those that it leaves out what suits its paths.

    A silence of twice the longest round trip R means that a packet is lost. The first timeout is what RFC 6298 (2.2)
    derives from a first measurement of that length, R + 4 R/2. The granularity is the time in which a host notices
    packets. A timeout that is left out gives way to the scenario's, so that the timeouts stay in order.

    Args:
        settings: The point.
        queued: Seconds for which a packet may wait in addition, behind others than those of the job.
        transport: The transport; None: that of the job. TCP has timeouts of its own, whatever the path.
    """
    given = settings.recovery
    longest = longest_round_trip(settings) + queued
    initial = given.initial_rto or max(3 * longest, given.min_rto or 0)
    suited = {
        "initial_rto": initial,
        "min_rto": min(2 * longest, initial),
        "max_rto": max(initial, Recovery().max_rto),
        "granularity": settings.coalescing,
    }
    chosen = given.model_dump(exclude_none=True)
    if (transport or settings.transport) == "tcp" and settings.world == "virtual":
        tcp = settings.tcp
        chosen |= {"initial_rto": tcp.initial_rto, "min_rto": tcp.min_rto, "max_rto": _TCP_MAX_RTO}
    return Recovery(**suited | chosen)


def flows_round_trip(settings: Settings, sizes: Mapping[tuple[str, str], int], window: int) -> float:
    """Return the seconds of a packet that waits in a queue behind a window of each flow that shares the link.

    Args:
        settings: The point.
        sizes: Bytes of the largest flow from one host to another, by both. There must be at least one.
        window: Packets that a flow may have in flight.
    """
    ranks: dict[str, int] = {}
    for host in chain.from_iterable(sizes):
        ranks.setdefault(host, len(ranks))
    packets = {pair: -(-size // settings.payload) for pair, size in sizes.items()}
    most = max(packets.values())
    shares: tuple[dict[int, float], ...] = tuple({} for _ in ranks)
    for (source, destination), count in packets.items():
        shares[ranks[source]][ranks[destination]] = count / most
    between = settings.model_copy(
        update={"algorithm": "ring", "flows_per_pair": 1, "window_per": "connection"}
    )
    paths = Paths(between, full_frame(between), patient=True, members=tuple(ranks), shares=shares)
    return paths.round_trip + paths.shared(window, most)


def beside_workers(settings: Settings, sizes: Mapping[tuple[str, str], int], window: int) -> float:
    """Return the seconds for which a worker's packet and its answer may wait on the worker's link behind other flows.

    Args:
        settings: The point.
        sizes: Bytes of the largest flow from one host to another, by both.
        window: Packets that a flow may have in flight.
    """
    alone, packets = Alone(settings), Counter[str]()
    for pair, size in sizes.items():
        for host in pair:
            packets[host] += min(window, -(-size // settings.payload))
    return max(packets[member] * alone.packet_seconds(member) for member in settings.members)


def ring_recovery(settings: Settings, queued: float = 0.0) -> Recovery | None:
    """Return the timers of a job that may have to fall back to a ring; None if nothing fails. See recovery()."""
    return recovery(settings.model_copy(update={"algorithm": "ring"}), queued) if settings.faults else None


def longest_round_trip(settings: Settings) -> float:
    """Return the seconds of a packet that waits in a queue behind the windows of all hosts that share the link.

    A window is never fuller than what is sent of one vector. A worker of a model that is cut has several windows.
    """
    settings = settings.as_vectors
    paths = Paths(settings, largest_frame(settings), patient=True)
    assert settings.size is not None
    largest, windows = -(-settings.size // settings.trees), 1
    if settings.parallelism is not None:
        cut = settings.parallelism
        largest = max(largest // cut.model, cut.activations or 0)
        windows = _WINDOWS + (_OVERLAP if cut.bucket else 0)
    packets = -(-largest // full_payload(settings))
    # The circuits of both ends may have to change, one after the other.
    dark = 2 * (settings.topology.reconfiguration or 0.0)
    return dark + paths.round_trip + windows * paths.shared(virtual_window(settings), packets)


def mistimed(settings: Settings) -> str | None:
    """Return a warning for a virtual point with loss whose shortest timeout is far above the round trip, else None."""
    if settings.world == "live" or settings.recovery.min_rto is None or settings.transport == "tcp":
        return None
    if not any(link.properties.mean_loss for link in settings.network.links):
        return None
    shortest, longest = recovery(settings).min_rto, longest_round_trip(settings)
    if shortest < _FAR_ABOVE * longest:
        return None
    return (
        f"recovery.min_rto: is {1e6 * shortest:,.0f} us, but the longest round trip takes {1e6 * longest:,.0f} us: "
        f"workers wait long for lost packets; leave min_rto out, or set min_rto to about {2e6 * longest:.0f} us"
    )
